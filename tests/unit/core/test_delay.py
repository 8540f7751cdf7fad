"""Abandoning with a delay: the message waits, then comes back at its own place."""

import pytest

from shardbus.core.errors import INVALID_ARGUMENT, Refused
from shardbus.core.limits import DELAY_MS_MAX
from shardbus.core.message import DEAD_LETTER_LINE, DELAYED, MAIN_LINE
from shardbus.core.messages.command import ABANDON, DEAD_LETTER, DEFER, Settle
from tests.unit.core.desk import START_MS, Desk, rules


def counts(desk: Desk, line: int = MAIN_LINE) -> tuple[int, int, int]:
    counters = desk.shelf.counters.lines[line]
    return counters.count, counters.scheduled, counters.size_bytes


def test_a_message_abandoned_with_a_delay_comes_back_after_it_and_not_before() -> None:
    desk = Desk()
    desk.send(b"a")
    desk.settle(ABANDON, *desk.receive(), delay_ms=2_000)

    desk.wait(1_999)
    assert desk.payloads(5) == []
    desk.wait(1)

    [delivery] = desk.receive()
    assert (delivery.payload, delivery.delivery_count) == (b"a", 1)


def test_it_comes_back_at_its_own_place() -> None:
    desk = Desk()
    desk.send(b"a", b"b", b"c")
    desk.settle(ABANDON, *desk.receive(), delay_ms=2_000)
    assert desk.payloads(1) == [b"b"]

    desk.wait(2_000)

    assert desk.payloads(2) == [b"a", b"c"]


def test_the_delay_is_stored_and_counted() -> None:
    desk = Desk()
    [number] = desk.send(b"abc")
    desk.settle(ABANDON, *desk.receive(), delay_ms=2_000)

    entry = desk.shelf.entries[number]

    assert (entry.state, entry.delayed_until_ms) == (DELAYED, START_MS + 2_000)
    assert counts(desk) == (0, 1, 3)
    desk.wait(2_000)
    assert counts(desk) == (1, 0, 3)


def test_a_delay_survives_a_reload() -> None:
    desk = Desk()
    desk.send(b"a")
    desk.settle(ABANDON, *desk.receive(), delay_ms=2_000)
    desk.reload()

    assert desk.payloads(5) == []
    desk.wait(2_000)
    assert desk.payloads(5) == [b"a"]


def test_waking_is_asked_for_at_the_end_of_the_delay() -> None:
    desk = Desk()
    desk.send(b"a")
    desk.settle(ABANDON, *desk.receive(), delay_ms=2_000)

    assert desk.wake_at_ms() == START_MS + 2_000


def test_a_delay_is_a_failed_delivery_and_the_last_one_kills() -> None:
    desk = Desk(rules(delivery_count_max=2))
    desk.send(b"a")
    desk.settle(ABANDON, *desk.receive(), delay_ms=1_000)
    desk.wait(1_000)

    desk.settle(ABANDON, *desk.receive(), delay_ms=1_000)

    assert desk.payloads(5, line=DEAD_LETTER_LINE) == [b"a"]


@pytest.mark.parametrize("dead_letters", [True, False])
def test_a_delay_does_not_outlive_the_message(dead_letters: bool) -> None:
    desk = Desk(rules(dead_letters_on_expiration=dead_letters))
    desk.send(b"a", ttl_ms=500)
    desk.settle(ABANDON, *desk.receive(), delay_ms=2_000)
    assert desk.wake_at_ms() == START_MS + 500

    desk.wait(500)

    assert counts(desk) == (0, 0, 0)
    assert len(desk.payloads(5, line=DEAD_LETTER_LINE)) == int(dead_letters)


def test_a_message_that_comes_back_from_a_delay_still_expires() -> None:
    desk = Desk()
    desk.send(b"a", ttl_ms=5_000)
    desk.settle(ABANDON, *desk.receive(), delay_ms=1_000)
    desk.wait(1_000)

    desk.wait(4_000)

    assert desk.shelf.entries == {}


def test_dead_letters_can_be_delayed_too() -> None:
    desk = Desk()
    desk.send(b"a")
    desk.settle(DEAD_LETTER, *desk.receive())
    desk.settle(ABANDON, *desk.receive(line=DEAD_LETTER_LINE), delay_ms=1_000)
    assert desk.payloads(5, line=DEAD_LETTER_LINE) == []
    assert counts(desk, DEAD_LETTER_LINE) == (0, 1, 1)

    desk.wait(1_000)

    assert desk.payloads(5, line=DEAD_LETTER_LINE) == [b"a"]


def test_a_deferred_message_stays_deferred_and_is_not_delayed() -> None:
    desk = Desk()
    [number] = desk.send(b"a")
    desk.settle(DEFER, *desk.receive())

    desk.settle(ABANDON, *desk.receive_deferred(number), delay_ms=1_000)

    assert [d.payload for d in desk.receive_deferred(number)] == [b"a"]


@pytest.mark.parametrize("delay_ms", [-1, DELAY_MS_MAX + 1])
def test_a_delay_out_of_range_is_refused_and_the_lock_kept(delay_ms: int) -> None:
    desk = Desk()
    desk.send(b"a")
    [delivery] = desk.receive()

    with pytest.raises(Refused) as refusal:
        desk.do(Settle(ABANDON, [delivery.token], delay_ms=delay_ms))

    assert refusal.value.kind is INVALID_ARGUMENT
    assert desk.settle(ABANDON, delivery, delay_ms=DELAY_MS_MAX) == [False]
