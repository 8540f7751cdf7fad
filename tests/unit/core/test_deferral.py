"""Deferred messages: kept, and given only to who asks for their number."""

import pytest

from shardbus.core.errors import (
    INVALID_ARGUMENT,
    MESSAGE_NOT_FOUND,
    SERVER_BUSY,
    SESSION_LOCK_LOST,
    ErrorKind,
    Refused,
)
from shardbus.core.fragment.bounds import Bounds
from shardbus.core.limits import DEFERRED_BYTES_MAX, DEFERRED_COUNT_MAX, PAGE_BYTES_MAX
from shardbus.core.message import ACTIVE, DEAD_LETTER_LINE, DEFERRED, MAIN_LINE
from shardbus.core.messages.command import (
    ABANDON,
    COMPLETE,
    DEAD_LETTER,
    DEFER,
    RELEASE,
    Delivery,
    Purge,
    Purged,
)
from shardbus.core.properties import pack, unpack
from tests.support.refusals import refusal_of
from tests.unit.core.desk import LOCK_MS, Desk, rules


def deferred(desk: Desk, *payloads: bytes, ttl_ms: int = -1) -> list[int]:
    numbers = desk.send(*payloads, ttl_ms=ttl_ms)
    desk.settle(DEFER, *desk.receive(len(payloads)))
    return numbers


def dead_lettered(desk: Desk, payload: bytes) -> Delivery:
    desk.send(payload)
    desk.settle(DEAD_LETTER, *desk.receive())
    [delivery] = desk.receive(line=DEAD_LETTER_LINE)
    return delivery


def kind_refused(desk: Desk, *numbers: int, line: int = MAIN_LINE) -> ErrorKind:
    with pytest.raises(Refused) as refusal:
        desk.receive_deferred(*numbers, line=line)
    return refusal.value.kind


def counts(desk: Desk, line: int = MAIN_LINE) -> tuple[int, int, int]:
    counters = desk.shelf.counters.lines[line]
    return counters.count, counters.deferred, counters.size_bytes


def test_a_deferred_message_is_kept_but_no_longer_received() -> None:
    desk = Desk()
    [number] = deferred(desk, b"abc")

    assert desk.payloads(5) == []
    desk.reload()

    assert desk.payloads(5) == []
    assert desk.shelf.entries[number].state == DEFERRED
    assert counts(desk) == (0, 1, 3)


def test_a_delivery_that_ends_with_deferring_is_counted() -> None:
    desk = Desk()
    [number] = deferred(desk, b"a")

    [delivery] = desk.receive_deferred(number)
    assert delivery.delivery_count == 1
    desk.settle(DEFER, delivery)
    desk.reload()

    assert desk.receive_deferred(number)[0].delivery_count == 2


def test_what_is_deferred_for_the_first_time_can_be_received_at_least_once() -> None:
    desk = Desk(rules(delivery_count_max=1))
    [number] = deferred(desk, b"a")

    [delivery] = desk.receive_deferred(number)

    assert delivery.delivery_count == 1
    assert desk.settle(COMPLETE, delivery) == [False]


def test_deferring_again_is_the_end_at_the_last_delivery() -> None:
    desk = Desk(rules(delivery_count_max=3))
    first, second = deferred(desk, b"a", b"b")
    desk.settle(DEFER, *desk.receive_deferred(first))

    desk.settle(DEFER, *desk.receive_deferred(first, second), modified=pack({"k": b"1"}))

    assert kind_refused(desk, first) is MESSAGE_NOT_FOUND
    [dead] = desk.receive(line=DEAD_LETTER_LINE)
    assert (dead.payload, dead.entry.reason) == (b"a", "MaxDeliveryCountExceeded")
    assert (dead.delivery_count, dead.entry.modified) == (3, pack({"k": b"1"}))
    assert [d.payload for d in desk.receive_deferred(second)] == [b"b"]
    assert (counts(desk), counts(desk, DEAD_LETTER_LINE)) == ((0, 1, 1), (1, 0, 1))


def test_deferring_a_dead_letter_does_not_count() -> None:
    desk = Desk(rules(delivery_count_max=2))
    [number] = desk.send(b"a")
    desk.settle(DEAD_LETTER, *desk.receive())
    desk.settle(DEFER, *desk.receive(line=DEAD_LETTER_LINE))

    for _ in range(3):
        [dead] = desk.receive_deferred(number, line=DEAD_LETTER_LINE)
        assert dead.delivery_count == 0
        desk.settle(DEFER, dead)


def test_deferred_messages_are_received_by_number_in_the_order_asked_for() -> None:
    desk = Desk()
    first, second, third = deferred(desk, b"a", b"b", b"c")

    deliveries = desk.receive_deferred(third, first)

    assert [delivery.payload for delivery in deliveries] == [b"c", b"a"]
    assert all(d.locked_until_ms == desk.now_ms + LOCK_MS for d in deliveries)
    assert [d.payload for d in desk.receive_deferred(second)] == [b"b"]


def test_deferred_messages_are_found_after_a_reload() -> None:
    desk = Desk()
    [number] = deferred(desk, b"a")
    desk.reload()

    assert [d.payload for d in desk.receive_deferred(number)] == [b"a"]


def test_one_that_is_not_there_refuses_all_of_them() -> None:
    desk = Desk()
    first, second = deferred(desk, b"a", b"b")

    assert kind_refused(desk, first, second + 100) is MESSAGE_NOT_FOUND

    assert len(desk.receive_deferred(first, second)) == 2


def test_an_active_message_is_not_received_by_number() -> None:
    desk = Desk()
    [number] = desk.send(b"a")

    assert kind_refused(desk, number) is MESSAGE_NOT_FOUND


def test_a_deferred_message_that_is_locked_is_given_to_nobody_else() -> None:
    desk = Desk()
    [number] = deferred(desk, b"a")
    desk.receive_deferred(number)

    assert kind_refused(desk, number) is MESSAGE_NOT_FOUND


def test_a_deferred_message_is_asked_for_on_its_own_line() -> None:
    desk = Desk()
    [number] = deferred(desk, b"a")

    assert kind_refused(desk, number, line=DEAD_LETTER_LINE) is MESSAGE_NOT_FOUND


def test_an_abandoned_deferred_message_stays_deferred_and_counts() -> None:
    desk = Desk()
    [number] = deferred(desk, b"a")

    desk.settle(ABANDON, *desk.receive_deferred(number))

    assert desk.payloads(5) == []
    [delivery] = desk.receive_deferred(number)
    assert (delivery.payload, delivery.delivery_count) == (b"a", 2)


def test_a_deferred_message_whose_lock_expires_stays_deferred_and_counts() -> None:
    desk = Desk()
    [number] = deferred(desk, b"a")
    desk.receive_deferred(number)

    desk.wait(LOCK_MS)

    assert desk.payloads(5) == []
    assert desk.receive_deferred(number)[0].delivery_count == 2


def test_a_deferred_message_is_dead_lettered_when_its_deliveries_are_exhausted() -> None:
    desk = Desk(rules(delivery_count_max=3))
    [number] = deferred(desk, b"a")

    for _ in range(2):
        desk.settle(ABANDON, *desk.receive_deferred(number))

    [dead] = desk.receive(line=DEAD_LETTER_LINE)
    assert (dead.payload, dead.entry.reason) == (b"a", "MaxDeliveryCountExceeded")
    assert (counts(desk), counts(desk, DEAD_LETTER_LINE)) == ((0, 0, 0), (1, 0, 1))


def test_a_released_deferred_message_stays_deferred_uncounted() -> None:
    desk = Desk()
    [number] = deferred(desk, b"a")

    desk.settle(RELEASE, *desk.receive_deferred(number))

    assert desk.receive_deferred(number)[0].delivery_count == 1


def test_a_completed_deferred_message_is_gone() -> None:
    desk = Desk()
    [number] = deferred(desk, b"a")

    assert desk.settle(COMPLETE, *desk.receive_deferred(number)) == [False]

    assert desk.shelf.entries == {}
    assert counts(desk) == (0, 0, 0)


def test_deferring_again_keeps_what_was_modified_before() -> None:
    desk = Desk()
    [number] = deferred(desk, b"a")
    desk.settle(DEFER, *desk.receive_deferred(number), modified=pack({"a": b"1", "b": b"1"}))

    desk.settle(DEFER, *desk.receive_deferred(number), modified=pack({"b": b"2"}))

    [delivery] = desk.receive_deferred(number)
    assert unpack(delivery.entry.modified) == {"a": b"1", "b": b"2"}


def test_a_deferred_message_can_be_dead_lettered_and_is_active_there() -> None:
    desk = Desk()
    [number] = deferred(desk, b"a")

    desk.settle(DEAD_LETTER, *desk.receive_deferred(number), reason="why")

    [dead] = desk.receive(line=DEAD_LETTER_LINE)
    assert (dead.payload, dead.entry.state, dead.entry.reason) == (b"a", ACTIVE, "why")


def test_dead_letters_can_be_deferred_too() -> None:
    desk = Desk()
    dead = dead_lettered(desk, b"a")
    number = dead.entry.sequence_number

    desk.settle(DEFER, dead)

    assert desk.payloads(5, line=DEAD_LETTER_LINE) == []
    assert counts(desk, DEAD_LETTER_LINE) == (0, 1, 1)
    assert kind_refused(desk, number) is MESSAGE_NOT_FOUND
    assert [d.payload for d in desk.receive_deferred(number, line=DEAD_LETTER_LINE)] == [b"a"]


def test_an_expired_deferred_message_is_removed_and_never_dead_lettered() -> None:
    desk = Desk(rules(dead_letters_on_expiration=True))
    deferred(desk, b"a", ttl_ms=500)

    desk.wait(500)

    assert desk.shelf.entries == {}
    assert counts(desk) == (0, 0, 0)


def test_an_expired_deferred_message_is_not_found_although_nobody_looked_for_it() -> None:
    desk = Desk()
    [number] = deferred(desk, b"a", ttl_ms=500)
    desk.now_ms += 500

    assert kind_refused(desk, number) is MESSAGE_NOT_FOUND


@pytest.mark.parametrize("how", [ABANDON, RELEASE, DEFER])
def test_a_deferred_message_that_expired_while_locked_is_removed_when_it_comes_back(
    how: int,
) -> None:
    desk = Desk(rules(dead_letters_on_expiration=True))
    [number] = deferred(desk, b"a", ttl_ms=500)
    [delivery] = desk.receive_deferred(number)
    desk.wait(1_000)

    desk.settle(how, delivery)

    assert desk.shelf.entries == {}
    assert counts(desk) == (0, 0, 0)


def test_a_message_that_expired_while_it_was_locked_is_not_deferred() -> None:
    desk = Desk(rules(dead_letters_on_expiration=True))
    desk.send(b"a", ttl_ms=500)
    [delivery] = desk.receive()
    desk.wait(1_000)

    desk.settle(DEFER, delivery)

    assert desk.shelf.entries == {}


def test_receive_and_delete_by_number_hands_out_and_removes() -> None:
    desk = Desk()
    first, second = deferred(desk, b"a", b"b")

    deliveries = desk.receive_deferred(second, first, is_locking=False)

    assert [(d.payload, d.token) for d in deliveries] == [(b"b", b""), (b"a", b"")]
    assert desk.shelf.entries == {}


def test_receive_and_delete_by_number_reads_every_payload_before_it_removes() -> None:
    desk = Desk()
    numbers = deferred(desk, *[bytes([letter]) * (PAGE_BYTES_MAX // 3) for letter in range(5)])

    deliveries = desk.receive_deferred(*numbers, is_locking=False)

    assert [d.payload is not None and d.payload[0] for d in deliveries] == [0, 1, 2, 3, 4]


def test_too_many_numbers_at_once_are_refused() -> None:
    desk = Desk()

    assert kind_refused(desk, *range(1, DEFERRED_COUNT_MAX + 2)) is INVALID_ARGUMENT
    assert kind_refused(desk, *range(1, DEFERRED_COUNT_MAX + 1)) is MESSAGE_NOT_FOUND


def test_a_number_given_twice_is_refused() -> None:
    desk = Desk()
    [number] = deferred(desk, b"a")

    assert kind_refused(desk, number, number) is INVALID_ARGUMENT


def test_there_is_a_most_of_locks_for_deferred_messages_too() -> None:
    desk = Desk(bounds=Bounds(locks_max=2))
    first, second = deferred(desk, b"a", b"b")
    desk.send(b"c")
    desk.receive()

    assert kind_refused(desk, first, second) is SERVER_BUSY
    assert len(desk.receive_deferred(first)) == 1


def test_a_session_token_means_nothing_where_sessions_are_not_required() -> None:
    desk = Desk()
    [number] = deferred(desk, b"a")

    with pytest.raises(Refused) as refusal:
        desk.receive_deferred(number, session=bytes(16))

    assert refusal.value.kind is SESSION_LOCK_LOST


def test_a_purge_leaves_deferred_messages_alone() -> None:
    desk = Desk()
    [number] = deferred(desk, b"a")

    reply = desk.do(Purge(MAIN_LINE, 10))

    assert isinstance(reply, Purged) and (reply.count, reply.has_more) == (0, False)
    assert number in desk.shelf.entries


@pytest.mark.parametrize("is_locking", [True, False])
def test_deferred_messages_that_are_too_large_together_are_refused_unread(is_locking: bool) -> None:
    desk = Desk()
    numbers: list[int] = []
    for _ in range(2):
        numbers += deferred(desk, bytes(DEFERRED_BYTES_MAX // 2 + 1))

    with refusal_of(INVALID_ARGUMENT) as caught:
        desk.receive_deferred(*numbers, is_locking=is_locking)

    assert caught.value.kind is INVALID_ARGUMENT
    [delivery] = desk.receive_deferred(numbers[0], is_locking=is_locking)
    assert delivery.entry.size_bytes == DEFERRED_BYTES_MAX // 2 + 1


def test_one_deferred_message_may_be_of_any_size() -> None:
    desk = Desk()
    numbers = deferred(desk, bytes(DEFERRED_BYTES_MAX + 1))

    assert len(desk.receive_deferred(*numbers)) == 1
