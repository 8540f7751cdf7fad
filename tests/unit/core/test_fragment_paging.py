"""Long lines: a bounded window in memory, the rest in the store (D3)."""

import tracemalloc

from shardbus.core.fragment.need import NeedPayloads
from shardbus.core.limits import LOCKS_MAX, PAGE_BYTES_MAX, WINDOW_BYTES_MAX, WINDOW_COUNT_MAX
from shardbus.core.message import DEAD_LETTER_LINE, MAIN_LINE, SET_ASIDE
from shardbus.core.messages.command import (
    ABANDON,
    COMPLETE,
    RELEASE,
    Delivery,
    Purge,
    Purged,
    Receive,
    Received,
)
from tests.unit.core.desk import LOCK_MS, Desk, rules


def sent(desk: Desk, count: int, payload: bytes = b"a") -> list[int]:
    numbers: list[int] = []
    for _ in range(0, count, 500):
        numbers += desk.send(*[payload] * min(500, count - len(numbers)))
    return numbers


def received(desk: Desk, count: int, *, line: int = MAIN_LINE) -> list[int]:
    """Receives and completes in uneven pieces."""
    numbers: list[int] = []
    while len(numbers) < count:
        deliveries = desk.receive(min(97, count - len(numbers)), line=line)
        if not deliveries:
            break
        assert all(delivery.payload is not None for delivery in deliveries)
        numbers += [delivery.entry.sequence_number for delivery in deliveries]
        desk.settle(COMPLETE, *deliveries)
    return numbers


def all_received(desk: Desk) -> list[Delivery]:
    deliveries: list[Delivery] = []
    while more := desk.receive(100):
        deliveries += more
    return deliveries


def purged_now(desk: Desk) -> int:
    reply = desk.do(Purge(MAIN_LINE, 300))
    assert isinstance(reply, Purged)
    return reply.count


def test_a_long_line_is_received_in_order_and_once() -> None:
    desk = Desk()
    numbers = sent(desk, 3 * WINDOW_COUNT_MAX)

    assert received(desk, len(numbers) + 1) == numbers
    assert desk.shelf.entries == {}


def test_a_line_is_received_in_order_after_a_reload_in_the_middle() -> None:
    desk = Desk(page_count=50)
    numbers = sent(desk, 1_000)

    first = received(desk, 333)
    desk.reload()
    second = received(desk, 1_000)

    assert first + second == numbers


def test_messages_sent_while_others_wait_in_the_store_come_after_them() -> None:
    desk = Desk(page_count=10)
    early = sent(desk, 30)
    desk.reload()
    first = received(desk, 5)
    late = sent(desk, 30)

    assert first + received(desk, 100) == early + late


def test_a_page_does_not_bring_a_locked_message_again() -> None:
    desk = Desk()
    numbers = sent(desk, 4 * WINDOW_COUNT_MAX)
    deliveries = desk.receive(len(numbers))
    while more := desk.receive(len(numbers)):
        deliveries += more
    # So many come back that the line leaves its far end to the store, before what is still locked.
    returned, locked = deliveries[: 3 * WINDOW_COUNT_MAX], deliveries[3 * WINDOW_COUNT_MAX :]
    desk.settle(RELEASE, *returned)

    assert received(desk, len(numbers)) == numbers[: len(returned)]
    assert desk.settle(COMPLETE, *locked) == [False] * len(locked)


def test_what_came_back_beyond_the_window_is_read_again_with_its_count() -> None:
    desk = Desk()
    numbers = sent(desk, 6 * WINDOW_COUNT_MAX)
    deliveries = desk.receive(len(numbers))
    while more := desk.receive(len(numbers)):
        deliveries += more
    desk.settle(ABANDON, *reversed(deliveries))

    again: list[int] = []
    while deliveries := desk.receive(500):
        assert {delivery.delivery_count for delivery in deliveries} == {1}
        again += [delivery.entry.sequence_number for delivery in deliveries]
        desk.settle(COMPLETE, *deliveries)

    assert again == numbers


def test_a_message_locked_while_its_page_was_read_is_not_lost_when_it_returns() -> None:
    desk = Desk(page_count=5)
    numbers = sent(desk, 20)
    desk.reload()
    deliveries = desk.receive(5)
    received(desk, 10)

    desk.settle(RELEASE, *deliveries)

    assert received(desk, 100) == numbers[:5] + numbers[15:]


def test_dead_letters_in_great_number_are_all_reachable() -> None:
    desk = Desk(rules(dead_letters_on_expiration=True))
    count = 3 * WINDOW_COUNT_MAX
    for _ in range(0, count, 512):
        desk.send(*[b"a"] * 512, ttl_ms=1)
        desk.wait(1)

    assert len(received(desk, count + 1, line=DEAD_LETTER_LINE)) == count


def test_two_lines_that_run_low_together_are_both_read() -> None:
    desk = Desk(rules(delivery_count_max=1), page_count=7)
    dead = sent(desk, 40)
    while deliveries := desk.receive(40):
        desk.settle(ABANDON, *deliveries)
    alive = sent(desk, 40)
    desk.reload()

    first = received(desk, 9)
    assert received(desk, 50, line=DEAD_LETTER_LINE) == dead
    assert first + received(desk, 50) == alive


def test_a_line_in_the_store_is_ready_before_anything_was_read() -> None:
    desk = Desk()
    desk.send(b"a")
    desk.reload()

    assert desk.fragment.is_ready(MAIN_LINE)
    assert not desk.fragment.is_ready(DEAD_LETTER_LINE)


def test_a_line_of_which_everything_is_locked_is_not_ready() -> None:
    desk = Desk()
    desk.send(b"a")
    desk.reload()
    desk.receive()

    assert not desk.fragment.is_ready(MAIN_LINE)


def test_a_damaged_message_in_a_page_is_set_aside_and_the_rest_served() -> None:
    """D4."""
    desk = Desk(page_count=4)
    numbers = sent(desk, 12)
    desk.shelf.damaged = {numbers[0], numbers[3], numbers[11]}
    desk.reload()

    assert received(desk, 100) == [n for n in numbers if n not in desk.shelf.damaged]
    assert {entry.state for entry in desk.shelf.entries.values()} == {SET_ASIDE}
    assert desk.shelf.counters.set_aside == 3
    assert desk.shelf.counters.lines[MAIN_LINE].count == 0


def test_a_payload_found_damaged_before_removal_is_set_aside_and_not_removed() -> None:
    """D4: kept as evidence."""
    desk = Desk()
    first, second = desk.send(b"a", b"b")
    desk.settle(RELEASE, *desk.receive(2))
    desk.shelf.damaged = {first}

    deliveries = desk.receive(5, is_locking=False)

    assert [delivery.entry.sequence_number for delivery in deliveries] == [second]
    assert desk.shelf.entries[first].state == SET_ASIDE
    assert desk.shelf.counters.lines[MAIN_LINE].count == 0


def test_payloads_read_for_removal_are_bounded_by_their_bytes() -> None:
    desk = Desk()
    sent(desk, 8, bytes(PAGE_BYTES_MAX // 4))
    desk.settle(RELEASE, *desk.receive(8))

    command = Receive(MAIN_LINE, 8, is_locking=False, token_seed=bytes(8))
    need = desk.fragment.need(command, desk.now_ms, desk.steady_ms)

    assert isinstance(need, NeedPayloads) and len(need.sequence_numbers) == 4
    assert len(desk.receive(8, is_locking=False)) == 4
    assert len(desk.receive(8, is_locking=False)) == 4


def test_a_purge_reaches_what_waits_in_the_store() -> None:
    desk = Desk()
    sent(desk, WINDOW_COUNT_MAX + 700)
    desk.reload()
    purged = 0
    while count := purged_now(desk):
        purged += count

    assert purged == WINDOW_COUNT_MAX + 700
    assert desk.shelf.entries == {}


def test_there_is_a_most_of_locks_and_a_released_one_makes_room() -> None:
    desk = Desk()
    for _ in range(0, LOCKS_MAX, 1_000):
        desk.send(*[b""] * 1_000)
        desk.receive(1_000)
    desk.send(b"one more")
    command = Receive(MAIN_LINE, 1, is_locking=True, token_seed=bytes(8))

    reply = desk.do(command)

    assert isinstance(reply, Received)
    assert (reply.deliveries, reply.has_more) == ([], False)
    assert not desk.fragment.is_ready(MAIN_LINE)
    desk.wait(LOCK_MS)
    assert len(desk.receive(3)) == 3


def test_memory_stays_bounded_under_long_traffic_of_large_messages() -> None:
    """D3: what was sent, received and settled leaves nothing behind in the fragment."""
    desk = Desk()
    desk.send(b"stays")
    payload_bytes = 64 * 1024
    tracemalloc.start()
    try:
        for _ in range(400):
            desk.send(bytes(payload_bytes))
            desk.settle(COMPLETE, desk.receive(2)[-1])
            desk.wait(LOCK_MS)
        kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert kept_bytes < 2 * WINDOW_BYTES_MAX


def test_redelivered_messages_are_locked_as_far_as_they_are_read_at_once() -> None:
    desk = Desk()
    numbers = sent(desk, 10, bytes(PAGE_BYTES_MAX // 3))
    desk.settle(RELEASE, *all_received(desk))

    first = desk.receive(10)

    assert [each.entry.sequence_number for each in first] == numbers[:3]
    assert desk.fragment.locked() == 3
    assert received(desk, 10) == numbers[3:]


def test_a_redelivered_message_that_is_larger_than_a_page_is_locked_alone() -> None:
    desk = Desk()
    numbers = desk.send(b"a", bytes(2 * PAGE_BYTES_MAX), b"b")
    desk.settle(ABANDON, *all_received(desk))

    first, second, third = desk.receive(3), desk.receive(3), desk.receive(3)

    found = [each.entry.sequence_number for each in first + second + third]
    assert (len(first), found) == (1, numbers)
    # What was left where it was has not been delivered.
    assert [each.delivery_count for each in first + second + third] == [1, 1, 1]
