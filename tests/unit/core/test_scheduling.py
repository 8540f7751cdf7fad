"""Scheduled messages: numbered at once, enqueued when their moment comes."""

import pytest

from shardbus.core.errors import INVALID_ARGUMENT, MESSAGE_NOT_FOUND, QUOTA_EXCEEDED, Refused
from shardbus.core.fragment.bounds import Bounds
from shardbus.core.limits import CANCEL_COUNT_MAX, DUE_COUNT_MAX, PAGE_BYTES_MAX, WINDOW_COUNT_MAX
from shardbus.core.message import (
    DEAD_LETTER_LINE,
    MAIN_LINE,
    NEVER_MS,
    SCHEDULED,
    SET_ASIDE,
    Message,
)
from shardbus.core.messages.command import COMPLETE, DEFER, Cancel, Send
from tests.unit.core.desk import LOCK_MS, START_MS, Desk, rules

LATER_MS = START_MS + 5_000


def counts(desk: Desk) -> tuple[int, int, int]:
    counters = desk.shelf.counters.lines[MAIN_LINE]
    return counters.count, counters.scheduled, counters.size_bytes


def test_a_scheduled_message_waits_for_its_moment_and_not_longer() -> None:
    desk = Desk()
    desk.send(b"a", scheduled_at_ms=LATER_MS)

    desk.wait(4_999)
    assert desk.payloads(5) == []
    desk.wait(1)
    assert desk.payloads(5) == [b"a"]


def test_waking_is_asked_for_at_the_next_scheduled_moment() -> None:
    desk = Desk()
    desk.send(b"late", scheduled_at_ms=LATER_MS + 1_000)
    desk.send(b"soon", scheduled_at_ms=LATER_MS)
    assert desk.wake_at_ms() == LATER_MS

    desk.wait(5_000)

    assert desk.wake_at_ms() == LATER_MS + 1_000


def test_a_moment_that_has_passed_means_now() -> None:
    desk = Desk()
    desk.send(b"a", scheduled_at_ms=START_MS)

    [delivery] = desk.receive()

    assert delivery.entry.enqueued_at_ms == START_MS


def test_a_scheduled_message_has_a_number_state_and_size_at_once() -> None:
    desk = Desk()
    [number] = desk.send(b"abc", scheduled_at_ms=LATER_MS)

    entry = desk.shelf.entries[number]

    assert (entry.state, entry.delayed_until_ms) == (SCHEDULED, LATER_MS)
    assert entry.enqueued_at_ms == desk.now_ms
    assert counts(desk) == (0, 1, 3)


def test_what_was_stored_with_its_moment_alone_is_enqueued_at_that_moment() -> None:
    """Earlier versions stored the moment in place of the time at which the message was sent."""
    desk = Desk()
    [number] = desk.send(b"abc", scheduled_at_ms=LATER_MS, ttl_ms=60_000)
    entry = desk.shelf.entries[number]
    entry.enqueued_at_ms, entry.delayed_until_ms = LATER_MS, NEVER_MS
    desk.reload()

    assert (entry.due_ms(), entry.lives_ms()) == (LATER_MS, 60_000)
    desk.wait(6_000)

    [delivery] = desk.receive()
    assert delivery.entry.enqueued_at_ms == desk.now_ms
    assert delivery.entry.expires_at_ms == desk.now_ms + 60_000


def test_when_it_is_due_it_is_enqueued_anew_with_a_new_number() -> None:
    desk = Desk()
    [number] = desk.send(b"abc", scheduled_at_ms=LATER_MS)
    [other] = desk.send(b"d")

    desk.wait(7_000)

    first, second = desk.receive(2)
    assert first.entry.sequence_number == other
    assert second.entry.sequence_number > other
    assert (second.payload, second.entry.enqueued_at_ms) == (b"abc", START_MS + 7_000)
    assert number not in desk.shelf.entries
    assert counts(desk) == (2, 0, 4)


def test_messages_due_together_are_enqueued_in_the_order_of_their_moments() -> None:
    desk = Desk()
    for delay_ms in (3_000, 1_000, 2_000):
        desk.send(b"%d" % delay_ms, scheduled_at_ms=START_MS + delay_ms)

    desk.wait(10_000)

    assert desk.payloads(5) == [b"1000", b"2000", b"3000"]


def test_a_moment_that_came_while_the_bus_was_down_is_made_up_for() -> None:
    desk = Desk()
    desk.send(b"a", scheduled_at_ms=LATER_MS)
    desk.now_ms += 60_000
    desk.reload()

    desk.wait(0)

    assert desk.payloads(5) == [b"a"]


def test_scheduled_and_other_messages_can_be_sent_together() -> None:
    desk = Desk()
    sent = desk.send_all(
        [Message(b"a", scheduled_at_ms=LATER_MS), Message(b"b"), Message(b"c", scheduled_at_ms=1)]
    )

    assert len(sent.numbers()) == 3
    assert desk.payloads(5) == [b"b", b"c"]


def test_more_than_fit_in_a_read_are_all_activated() -> None:
    desk = Desk()
    count = DUE_COUNT_MAX + WINDOW_COUNT_MAX + 100
    desk.send(*[b"a"] * count, scheduled_at_ms=LATER_MS)

    desk.wait(5_000)

    assert counts(desk) == (count, 0, count)


def test_large_ones_are_activated_in_bounded_pieces() -> None:
    desk = Desk()
    desk.send(*[bytes(PAGE_BYTES_MAX // 2)] * 7, scheduled_at_ms=LATER_MS)

    desk.wait(5_000)

    assert counts(desk)[:2] == (7, 0)


def test_a_million_scheduled_messages_leave_nothing_in_memory() -> None:
    """Only the next moment is kept: nothing waits in the line."""
    desk = Desk()
    desk.send(*[b"a"] * 10_000, scheduled_at_ms=LATER_MS)

    assert len(desk.fragment._lines[MAIN_LINE]) == 0
    assert not desk.fragment.is_ready(MAIN_LINE)


def test_time_to_live_counts_from_the_moment_it_is_enqueued() -> None:
    desk = Desk()
    [number] = desk.send(b"a", ttl_ms=1_000, scheduled_at_ms=LATER_MS)
    assert desk.shelf.entries[number].expires_at_ms == LATER_MS + 1_000

    desk.wait(5_500)
    desk.now_ms += 999
    assert desk.payloads() == [b"a"]


def test_an_activated_message_expires() -> None:
    desk = Desk(rules(dead_letters_on_expiration=True))
    desk.send(b"a", ttl_ms=1_000, scheduled_at_ms=LATER_MS)

    desk.wait(5_500)
    desk.wait(1_000)

    assert desk.payloads(5) == []
    assert desk.payloads(5, line=DEAD_LETTER_LINE) == [b"a"]


def test_a_cancelled_message_is_gone() -> None:
    desk = Desk()
    first, second, third = desk.send(b"a", b"b", b"c", scheduled_at_ms=LATER_MS)
    desk.do(Cancel([first, third]))

    desk.wait(5_000)

    assert desk.payloads(5) == [b"b"]
    assert second not in desk.shelf.entries
    assert counts(desk) == (1, 0, 1)


def test_cancelling_one_that_is_not_there_cancels_none() -> None:
    desk = Desk()
    [number] = desk.send(b"a", scheduled_at_ms=LATER_MS)

    with pytest.raises(Refused) as refusal:
        desk.do(Cancel([number, number + 1]))

    assert refusal.value.kind is MESSAGE_NOT_FOUND
    assert number in desk.shelf.entries


def test_a_message_that_was_activated_cannot_be_cancelled() -> None:
    """Cancel uses the scheduled number, which is gone."""
    desk = Desk()
    [number] = desk.send(b"a", scheduled_at_ms=LATER_MS)
    desk.wait(5_000)
    [delivery] = desk.receive()

    for gone in (number, delivery.entry.sequence_number):
        with pytest.raises(Refused) as refusal:
            desk.do(Cancel([gone]))
        assert refusal.value.kind is MESSAGE_NOT_FOUND


def test_neither_active_nor_deferred_messages_can_be_cancelled() -> None:
    desk = Desk()
    active, deferred = desk.send(b"a", b"b")
    first, second = desk.receive(2)
    desk.settle(DEFER, second)

    for number in (active, deferred):
        with pytest.raises(Refused) as refusal:
            desk.do(Cancel([number]))
        assert refusal.value.kind is MESSAGE_NOT_FOUND
    assert desk.settle(COMPLETE, first) == [False]


def test_too_many_cancellations_at_once_are_refused() -> None:
    desk = Desk()

    with pytest.raises(Refused) as refusal:
        desk.do(Cancel(list(range(CANCEL_COUNT_MAX + 1))))

    assert refusal.value.kind is INVALID_ARGUMENT


def test_scheduled_messages_count_in_the_quota() -> None:
    desk = Desk(rules(size_bytes_max=3))
    desk.send(b"abc", scheduled_at_ms=LATER_MS)

    with pytest.raises(Refused) as refusal:
        desk.do(Send([Message(b"d")]))

    assert refusal.value.kind is QUOTA_EXCEEDED


def test_expired_messages_that_are_locked_do_not_hide_what_is_scheduled() -> None:
    desk = Desk(bounds=Bounds(due_count_max=3))
    desk.send(*[b"locked"] * 20, ttl_ms=100)
    desk.receive(20)
    desk.send(b"scheduled", scheduled_at_ms=START_MS + 200)

    desk.wait(1_000)

    assert desk.payloads(5) == [b"scheduled"]
    assert desk.now_ms < START_MS + LOCK_MS


def test_a_damaged_scheduled_message_is_set_aside_and_the_rest_activated() -> None:
    """D4."""
    desk = Desk()
    first, second = desk.send(b"a", b"b", scheduled_at_ms=LATER_MS)
    desk.shelf.damaged = {first}

    desk.wait(5_000)

    assert desk.payloads(5) == [b"b"]
    assert desk.shelf.entries[first].state == SET_ASIDE
    assert desk.shelf.counters.set_aside == 1
    assert counts(desk) == (1, 0, 1)
    assert second not in desk.shelf.entries
