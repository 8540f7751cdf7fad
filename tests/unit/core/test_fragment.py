"""What a fragment does with sends, receives and settlements."""

import pytest

from shardbus.core.errors import (
    INVALID_ARGUMENT,
    MESSAGE_LOCK_LOST,
    NOT_ALLOWED,
    QUOTA_EXCEEDED,
    Refused,
)
from shardbus.core.fragment.command import Configure, SetAside
from shardbus.core.fragment.fragment import Fragment
from shardbus.core.limits import MODIFIED_BYTES_MAX
from shardbus.core.message import DEAD_LETTER_LINE, MAIN_LINE, SET_ASIDE, Message
from shardbus.core.messages.command import (
    ABANDON,
    COMPLETE,
    DEAD_LETTER,
    RELEASE,
    Purge,
    Purged,
    Receive,
    Received,
    Renew,
    Renewed,
    Send,
    Sent,
    Settle,
)
from shardbus.core.properties import pack, unpack
from shardbus.core.sequence import fragment_of, fragment_of_token
from tests.support.refusals import refusal_of
from tests.unit.core.desk import LOCK_MS, START_MS, Desk, rules


def test_messages_are_received_in_the_order_they_were_sent() -> None:
    desk = Desk()
    desk.send(b"a", b"b")
    desk.send(b"c")

    assert desk.payloads(2) == [b"a", b"b"]
    assert desk.payloads(2) == [b"c"]
    assert desk.payloads(2) == []


def test_sequence_numbers_rise_without_gaps_and_tell_their_fragment() -> None:
    desk = Desk()
    fragment = Fragment(5, rules(), desk.shelf.counters, 0)

    first = fragment.apply(Send([Message(b"a"), Message(b"b")]), START_MS).reply
    second = fragment.apply(Send([Message(b"c")]), START_MS).reply

    assert isinstance(first, Sent) and isinstance(second, Sent)
    assert fragment_of(first.first) == 5
    assert second.first == first.first + 2


def test_sequence_numbers_are_never_given_out_again_after_a_reload() -> None:
    desk = Desk()
    before = desk.send(b"a", b"b")
    desk.receive(2, is_locking=False)
    desk.reload()

    assert desk.send(b"c")[0] > before[-1]


def test_a_lock_token_tells_its_fragment_and_is_never_repeated() -> None:
    fragment = Fragment(300, rules(), Desk().shelf.counters, 0)
    fragment.apply(Send([Message(b"a"), Message(b"b")]), START_MS)
    tokens: set[bytes] = set()

    for _ in range(2):
        command = Receive(MAIN_LINE, 1, is_locking=True, token_seed=bytes(8))
        reply = fragment.apply(command, START_MS).reply
        assert isinstance(reply, Received)
        tokens.update(delivery.token for delivery in reply.deliveries)

    assert len(tokens) == 2
    assert {fragment_of_token(token) for token in tokens} == {300}


def test_a_send_of_nothing_changes_nothing() -> None:
    desk = Desk()

    assert desk.send() == []
    assert desk.shelf.commits == 0


def test_a_locked_message_is_given_to_nobody_else() -> None:
    desk = Desk()
    desk.send(b"a", b"b")
    desk.receive(1)

    assert desk.payloads(5) == [b"b"]


def test_a_delivery_says_until_when_it_is_locked() -> None:
    desk = Desk(rules(lock_ms=7_000))
    desk.send(b"a")

    [delivery] = desk.receive()

    assert delivery.locked_until_ms == START_MS + 7_000


def test_a_completed_message_is_gone_from_memory_store_and_counters() -> None:
    desk = Desk()
    desk.send(b"abc")
    [delivery] = desk.receive()

    assert desk.settle(COMPLETE, delivery) == [False]
    desk.wait(2 * LOCK_MS)
    desk.reload()

    assert desk.payloads(5) == []
    assert desk.shelf.entries == {}
    assert desk.shelf.counters.total_bytes() == 0


def test_completing_twice_finds_the_lock_lost() -> None:
    desk = Desk()
    desk.send(b"a")
    [delivery] = desk.receive()
    desk.settle(COMPLETE, delivery)

    assert desk.settle(COMPLETE, delivery) == [True]
    assert desk.settle(COMPLETE, delivery, delivery) == [True, True]


def test_a_settlement_says_of_each_token_whether_its_lock_was_lost() -> None:
    desk = Desk()
    desk.send(b"a", b"b", b"c")
    first, second, third = desk.receive(3)
    desk.settle(COMPLETE, second)

    assert desk.settle(COMPLETE, first, second, third) == [False, True, False]


def test_receive_and_delete_removes_at_once_and_counts_nothing() -> None:
    """Delivery counts are not raised by receive-and-delete."""
    desk = Desk()
    desk.send(b"a")

    [delivery] = desk.receive(is_locking=False)
    desk.reload()

    assert (delivery.payload, delivery.delivery_count, delivery.token) == (b"a", 0, b"")
    assert desk.payloads(5) == []
    assert desk.fragment.locked() == 0


def test_receive_and_delete_hands_out_what_came_back_without_its_payload() -> None:
    """The payload of a message that was locked is only in the store: it is read before removal."""
    desk = Desk()
    desk.send(b"a", b"b", b"c")
    first, second = desk.receive(2)
    desk.settle(RELEASE, first, second)

    deliveries = desk.receive(3, is_locking=False)

    assert [delivery.payload for delivery in deliveries] == [b"a", b"b", b"c"]
    assert desk.fragment.counters.lines[MAIN_LINE].count == 0


def test_receive_and_delete_never_removes_what_it_cannot_hand_out() -> None:
    desk = Desk()
    desk.send(b"a", b"b", ttl_ms=1_000)
    desk.send(b"c")
    [first, second, third] = desk.receive(3)
    desk.settle(RELEASE, first, second, third)
    command = Receive(MAIN_LINE, 5, is_locking=False, token_seed=bytes(8))

    reply = desk.fragment.apply(command, desk.now_ms, desk.steady_ms).reply

    assert isinstance(reply, Received)
    assert (reply.deliveries, reply.has_more) == ([], True)
    assert len(desk.receive(5, is_locking=False)) == 3


def test_a_reply_says_whether_more_is_waiting() -> None:
    desk = Desk()
    desk.send(b"a", b"b")
    command = Receive(MAIN_LINE, 1, is_locking=True, token_seed=bytes(8))

    first = desk.do(command)
    second = desk.do(command)

    assert isinstance(first, Received) and isinstance(second, Received)
    assert (first.has_more, second.has_more) == (True, False)


def test_abandoning_raises_the_delivery_count() -> None:
    desk = Desk()
    desk.send(b"a")

    for expected in range(3):
        [delivery] = desk.receive()
        assert delivery.delivery_count == expected
        desk.settle(ABANDON, delivery)

    desk.reload()
    assert desk.receive()[0].delivery_count == 3


def test_an_expired_lock_raises_the_delivery_count() -> None:
    desk = Desk()
    desk.send(b"a")
    desk.receive()

    desk.wait(LOCK_MS)
    desk.reload()

    assert desk.receive()[0].delivery_count == 1


def test_releasing_does_not_raise_the_delivery_count() -> None:
    desk = Desk()
    desk.send(b"a")
    [delivery] = desk.receive()

    desk.settle(RELEASE, delivery)

    assert desk.receive()[0].delivery_count == 0
    assert desk.shelf.commits == 1


def test_an_abandoned_message_returns_to_the_front() -> None:
    desk = Desk()
    desk.send(b"a", b"b", b"c")
    first, second = desk.receive(2)

    desk.settle(ABANDON, second)
    desk.settle(ABANDON, first)

    assert desk.payloads(3) == [b"a", b"b", b"c"]


def test_an_expired_lock_returns_the_message_to_the_front() -> None:
    desk = Desk()
    desk.send(b"a", b"b")
    desk.receive()

    desk.wait(LOCK_MS)

    assert desk.payloads(2) == [b"a", b"b"]


def test_the_deadline_decides_although_nobody_took_the_lock_away() -> None:
    desk = Desk()
    desk.send(b"a")
    [delivery] = desk.receive()
    desk.now_ms += LOCK_MS

    lost = desk.fragment.apply(Settle(COMPLETE, [delivery.token]), desk.now_ms, desk.steady_ms)

    assert lost.changes == []
    desk.wait(0)
    assert desk.payloads() == [b"a"]


def test_a_lock_may_be_settled_up_to_its_last_moment() -> None:
    desk = Desk()
    desk.send(b"a")
    [delivery] = desk.receive()

    desk.wait(LOCK_MS - 1)

    assert desk.settle(COMPLETE, delivery) == [False]


def test_the_lock_of_an_earlier_delivery_settles_nothing() -> None:
    desk = Desk()
    desk.send(b"a")
    [earlier] = desk.receive()
    desk.wait(LOCK_MS)
    [later] = desk.receive()

    assert desk.settle(COMPLETE, earlier) == [True]
    assert desk.settle(COMPLETE, later) == [False]


def test_after_the_last_delivery_a_message_is_dead_lettered() -> None:
    desk = Desk(rules(delivery_count_max=2))
    desk.send(b"a")
    desk.settle(ABANDON, *desk.receive())
    assert desk.payloads() == [b"a"]

    desk.wait(LOCK_MS)

    assert desk.receive() == []
    [dead] = desk.receive(line=DEAD_LETTER_LINE)
    assert (dead.payload, dead.delivery_count) == (b"a", 2)
    assert dead.entry.reason == "MaxDeliveryCountExceeded"
    assert dead.entry.description == "Message could not be consumed after 2 delivery attempts."


def test_dead_lettering_keeps_the_reason_the_description_and_the_number() -> None:
    desk = Desk()
    [number] = desk.send(b"a")
    [delivery] = desk.receive()

    settle = Settle(DEAD_LETTER, [delivery.token], reason="bad", description="worse", modified=b"m")
    desk.do(settle)
    desk.reload()

    [dead] = desk.receive(line=DEAD_LETTER_LINE)
    assert dead.entry.sequence_number == number
    assert (dead.entry.reason, dead.entry.description) == ("bad", "worse")
    assert (dead.entry.modified, dead.delivery_count) == (b"m", 0)
    assert desk.receive() == []


def test_abandoning_keeps_what_it_modified() -> None:
    desk = Desk()
    desk.send(b"a")
    [delivery] = desk.receive()

    desk.do(Settle(ABANDON, [delivery.token], modified=b"new"))
    desk.reload()

    assert desk.receive()[0].entry.modified == b"new"


def test_what_settlements_modify_is_bounded_together_and_a_refused_one_changes_nothing() -> None:
    desk = Desk()
    desk.send(b"a")
    half = MODIFIED_BYTES_MAX // 2
    [delivery] = desk.receive()
    desk.do(Settle(ABANDON, [delivery.token], modified=pack({"first": bytes(half)})))
    [delivery] = desk.receive()

    with refusal_of(INVALID_ARGUMENT) as refusal:
        desk.do(Settle(ABANDON, [delivery.token], modified=pack({"second": bytes(half)})))
    desk.do(Settle(ABANDON, [delivery.token], modified=pack({"first": bytes(half + 9)})))

    assert refusal.value.kind is INVALID_ARGUMENT
    [delivery] = desk.receive()
    assert unpack(delivery.entry.modified) == {"first": bytes(half + 9)}
    assert delivery.delivery_count == 2


def test_dead_letters_move_between_the_counters() -> None:
    desk = Desk()
    desk.send(b"abc", b"de")

    desk.settle(DEAD_LETTER, desk.receive()[0])

    main, dead, _ = desk.shelf.counters.lines
    assert (main.count, main.size_bytes) == (1, 2)
    assert (dead.count, dead.size_bytes) == (1, 3)


def test_a_dead_letter_cannot_be_dead_lettered_again() -> None:
    desk = Desk()
    desk.send(b"a", b"b")
    desk.settle(DEAD_LETTER, desk.receive()[0])
    [dead] = desk.receive(line=DEAD_LETTER_LINE)
    [alive] = desk.receive()

    with refusal_of(NOT_ALLOWED) as refusal:
        desk.settle(DEAD_LETTER, alive, dead)

    assert refusal.value.kind is NOT_ALLOWED
    assert desk.settle(COMPLETE, alive, dead) == [False, False]


def test_a_dead_letter_may_be_abandoned_for_ever_and_keeps_its_count() -> None:
    desk = Desk(rules(delivery_count_max=1))
    desk.send(b"a")
    desk.settle(ABANDON, *desk.receive())

    for _ in range(5):
        desk.settle(ABANDON, *desk.receive(line=DEAD_LETTER_LINE))
    desk.receive(line=DEAD_LETTER_LINE)
    desk.wait(LOCK_MS)
    desk.reload()

    [dead] = desk.receive(line=DEAD_LETTER_LINE)
    assert dead.delivery_count == 1
    assert desk.settle(COMPLETE, dead) == [False]
    assert desk.shelf.entries == {}


def test_dead_letters_are_received_in_the_order_of_their_numbers() -> None:
    desk = Desk()
    desk.send(b"a", b"b", b"c")
    first, second, third = desk.receive(3)

    for delivery in (third, first, second):
        desk.settle(DEAD_LETTER, delivery)

    assert desk.payloads(3, line=DEAD_LETTER_LINE) == [b"a", b"b", b"c"]


def test_renewing_gives_the_full_duration_from_now() -> None:
    desk = Desk()
    desk.send(b"a")
    [delivery] = desk.receive()
    desk.wait(LOCK_MS - 1)

    reply = desk.do(Renew([delivery.token]))

    assert isinstance(reply, Renewed)
    assert reply.locked_until_ms == desk.now_ms + LOCK_MS
    desk.wait(LOCK_MS - 1)
    assert desk.settle(COMPLETE, delivery) == [False]


def test_renewing_is_all_or_nothing() -> None:
    desk = Desk()
    desk.send(b"a", b"b")
    first, second = desk.receive(2)
    desk.settle(COMPLETE, first)
    desk.wait(LOCK_MS - 1)

    with refusal_of(MESSAGE_LOCK_LOST) as refusal:
        desk.do(Renew([second.token, first.token]))

    assert refusal.value.kind is MESSAGE_LOCK_LOST
    desk.wait(1)
    assert desk.settle(COMPLETE, second) == [True]


def test_a_lock_whose_time_has_come_cannot_be_renewed() -> None:
    desk = Desk()
    desk.send(b"a")
    [delivery] = desk.receive()
    desk.now_ms += LOCK_MS

    with pytest.raises(Refused):
        desk.fragment.apply(Renew([delivery.token]), desk.now_ms, desk.steady_ms)


def test_a_full_fragment_refuses_sends_and_loses_nothing() -> None:
    """R9."""
    desk = Desk(rules(size_bytes_max=4))
    desk.send(b"ab", b"cd")

    with refusal_of(QUOTA_EXCEEDED, "4") as refusal:
        desk.send(b"e")

    assert refusal.value.kind is QUOTA_EXCEEDED
    desk.settle(COMPLETE, desk.receive()[0])
    desk.send(b"e")
    assert desk.payloads(5) == [b"cd", b"e"]


def test_dead_letters_count_towards_the_size_of_the_entity() -> None:
    """R9."""
    desk = Desk(rules(size_bytes_max=2))
    desk.send(b"ab")
    desk.settle(DEAD_LETTER, *desk.receive())

    with pytest.raises(Refused):
        desk.send(b"c")


def test_a_purge_removes_what_is_not_locked_from_the_front() -> None:
    desk = Desk()
    desk.send(b"a", b"b", b"c", b"d")
    [locked] = desk.receive()

    reply = desk.do(Purge(MAIN_LINE, 2))

    assert isinstance(reply, Purged) and reply.count == 2
    assert desk.payloads(5) == [b"d"]
    assert desk.settle(COMPLETE, locked) == [False]
    assert len(desk.shelf.entries) == 1


def test_new_rules_apply_from_now_on_and_leave_locks_alone() -> None:
    desk = Desk()
    desk.send(b"a", b"b")
    [old] = desk.receive()

    desk.do(Configure(rules(lock_ms=5_000)))
    [new] = desk.receive()

    assert old.locked_until_ms == START_MS + LOCK_MS
    assert new.locked_until_ms == START_MS + 5_000


def test_a_damaged_message_is_taken_out_of_service_and_counted_apart() -> None:
    """D4: reported and set aside, never served and never fatal to the rest."""
    desk = Desk()
    numbers = desk.send(b"a", b"b", b"c")
    desk.receive()

    desk.do(SetAside(numbers[:2]))
    desk.reload()

    assert desk.payloads(5) == [b"c"]
    assert desk.shelf.counters.set_aside == 2
    assert desk.shelf.counters.lines[MAIN_LINE].count == 1
    assert [desk.shelf.entries[number].state for number in numbers[:2]] == [SET_ASIDE] * 2


def test_reloading_lets_all_locks_go_without_counting_a_delivery() -> None:
    desk = Desk()
    desk.send(b"a")
    [delivery] = desk.receive()

    desk.reload()

    assert desk.settle(COMPLETE, delivery) == [True]
    assert desk.receive()[0].delivery_count == 0


def test_waking_is_asked_for_at_the_next_deadline() -> None:
    desk = Desk()
    desk.send(b"a", b"b")
    assert desk.wake_at_ms() == 0
    desk.receive()
    desk.wait(1_000)
    [second] = desk.receive()

    assert desk.wake_at_ms() == START_MS + LOCK_MS
    desk.wait(LOCK_MS - 1_000)
    assert desk.wake_at_ms() == second.locked_until_ms
