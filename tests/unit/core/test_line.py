"""A line of waiting messages: a bounded window in memory, the rest in the store (D3)."""

import tracemalloc
from random import Random

from shardbus.core.fragment.line import Line
from shardbus.core.limits import (
    PAGE_BYTES_MAX,
    PAGE_COUNT_MAX,
    WINDOW_BYTES_MAX,
    WINDOW_COUNT_LOW,
    WINDOW_COUNT_MAX,
)
from shardbus.core.message import Entry


def entry(number: int, *, size_bytes: int = 10, expires_at_ms: int = 0) -> Entry:
    payload = bytes(size_bytes)
    return Entry(number, payload, size_bytes, enqueued_at_ms=0, expires_at_ms=expires_at_ms)


def numbers(entries: list[Entry]) -> list[int]:
    return [each.sequence_number for each in entries]


def taken(line: Line) -> list[int]:
    found: list[int] = []
    while (each := line.take()) is not None:
        found.append(each.sequence_number)
    return found


def filled(count: int, *, size_bytes: int = 10) -> Line:
    line = Line(has_tail=False)
    for number in range(1, count + 1):
        line.append(entry(number, size_bytes=size_bytes))
    return line


def test_messages_leave_in_the_order_they_came() -> None:
    line = filled(3)

    assert taken(line) == [1, 2, 3]
    assert len(line) == 0


def test_a_message_that_comes_back_waits_at_its_own_place() -> None:
    line = filled(5)
    first, second, third = line.take(), line.take(), line.take()
    assert first is not None and second is not None and third is not None

    line.put_back(third)
    line.put_back(first)

    assert taken(line) == [1, 3, 4, 5]


def test_beyond_the_window_messages_stay_in_the_store_alone() -> None:
    line = filled(WINDOW_COUNT_MAX + 10)

    assert len(line) == WINDOW_COUNT_MAX
    assert line.has_tail
    assert line.end == WINDOW_COUNT_MAX


def test_large_messages_fill_the_window_by_their_bytes() -> None:
    size_bytes = WINDOW_BYTES_MAX // 4
    line = filled(10, size_bytes=size_bytes)

    assert len(line) == 4
    assert line.has_tail


def test_once_there_is_a_tail_new_messages_join_it_even_when_there_is_room() -> None:
    line = filled(WINDOW_COUNT_MAX + 1)
    for _ in range(100):
        line.take()

    line.append(entry(WINDOW_COUNT_MAX + 2))

    assert line.end == WINDOW_COUNT_MAX
    assert taken(line)[-1] == WINDOW_COUNT_MAX


def test_a_window_that_runs_low_asks_for_the_next_page_only_if_there_is_one() -> None:
    line = filled(WINDOW_COUNT_MAX + 1)
    while len(line) >= WINDOW_COUNT_LOW:
        assert not line.is_low()
        line.take()

    assert line.is_low()
    line.page_in([entry(WINDOW_COUNT_MAX + 1)], True, WINDOW_COUNT_MAX + 1)
    assert not line.is_low()


def test_a_window_full_of_bytes_does_not_ask_for_more() -> None:
    line = Line(has_tail=True)
    line.page_in([entry(1, size_bytes=PAGE_BYTES_MAX + 1)], False, 1)

    assert not line.is_low()


def test_a_page_continues_the_line() -> None:
    line = Line(has_tail=True)
    line.page_in([entry(1), entry(2)], False, 2)
    line.page_in([entry(5)], True, 6)
    line.append(entry(7))

    assert taken(line) == [1, 2, 5, 7]
    assert not line.has_tail


def test_a_message_inside_the_pages_read_so_far_comes_back_to_memory() -> None:
    """It was locked when its page was read, so that no later page will bring it."""
    line = Line(has_tail=True)
    line.page_in([entry(1), entry(3)], False, 4)

    line.put_back(entry(2))
    line.put_back(entry(4))

    assert taken(line) == [1, 2, 3, 4]


def test_a_message_beyond_the_pages_read_so_far_is_left_to_the_store() -> None:
    line = Line(has_tail=True)
    line.page_in([entry(1)], False, 1)

    line.put_back(entry(2))

    assert taken(line) == [1]
    assert line.has_tail


def test_a_line_that_much_comes_back_to_leaves_the_far_end_to_the_store() -> None:
    line = Line(has_tail=False)
    order = list(range(1, 3 * WINDOW_COUNT_MAX))
    Random(1).shuffle(order)

    for number in order:
        line.put_back(entry(number))
        assert len(line) <= 2 * WINDOW_COUNT_MAX

    assert line.has_tail
    assert taken(line) == list(range(1, line.end + 1))


def test_large_messages_that_come_back_are_bounded_by_their_bytes() -> None:
    """D3: expired messages arrive among the dead letters with their payloads."""
    line = Line(has_tail=False)
    size_bytes = WINDOW_BYTES_MAX // 8

    for number in range(1, 100):
        line.put_back(entry(number, size_bytes=size_bytes))
        assert line.size_bytes <= 2 * WINDOW_BYTES_MAX

    assert line.has_tail
    assert taken(line) == list(range(1, line.end + 1))


def test_one_enormous_message_still_fits() -> None:
    line = Line(has_tail=False)

    line.put_back(entry(1, size_bytes=5 * WINDOW_BYTES_MAX))

    assert taken(line) == [1]
    assert line.size_bytes == 0


def test_what_was_taken_is_not_kept_in_memory() -> None:
    """D3: a line that never runs empty must let go of what has passed through."""
    line = filled(1)
    tracemalloc.start()
    try:
        for number in range(2, 400):
            line.append(entry(number, size_bytes=WINDOW_BYTES_MAX // 16))
            line.take()
        kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert kept_bytes <= 2 * WINDOW_BYTES_MAX


def test_bytes_are_counted_only_while_the_payload_is_in_memory() -> None:
    line = filled(2)
    first = line.take()
    assert first is not None and line.size_bytes == 10

    first.payload = None
    line.put_back(first)
    assert line.size_bytes == 10

    assert taken(line) == [1, 2]
    assert line.size_bytes == 0


def test_expired_messages_leave_the_line_wherever_they_wait() -> None:
    line = Line(has_tail=False)
    for number in range(1, 7):
        line.append(entry(number, expires_at_ms=100 if number % 2 else 0))
    first = line.take()
    assert first is not None
    line.put_back(first)

    assert sorted(numbers(line.take_expired(99))) == []
    assert sorted(numbers(line.take_expired(100))) == [1, 3, 5]
    assert line.size_bytes == 30
    assert taken(line) == [2, 4, 6]


def test_dropped_messages_leave_the_line_and_unknown_ones_are_passed_over() -> None:
    line = filled(4)

    assert numbers(line.drop({2, 4, 99})) == [2, 4]
    assert line.drop({99}) == []
    assert taken(line) == [1, 3]


def test_the_front_shows_what_would_be_taken_and_takes_nothing() -> None:
    line = filled(5)
    first, second = line.take(), line.take()
    assert first is not None and second is not None
    line.put_back(second)

    assert numbers(line.front(3)) == [2, 3, 4]
    assert numbers(line.front(100)) == [2, 3, 4, 5]
    assert taken(line) == [2, 3, 4, 5]


def test_payloads_read_again_count_as_memory() -> None:
    line = filled(3)
    first = line.take()
    assert first is not None
    first.payload = None
    line.put_back(first)

    line.fill({1: b"0123456789", 2: b"not asked for"})

    assert [each.payload for each in line.front(1)] == [b"0123456789"]
    assert line.size_bytes == 30
    assert taken(line) == [1, 2, 3] and line.size_bytes == 0


def test_a_page_fits_into_a_window_that_asked_for_it() -> None:
    line = Line(has_tail=True)
    line.page_in([entry(number) for number in range(1, WINDOW_COUNT_LOW)], False, WINDOW_COUNT_LOW)
    assert line.is_low()

    page = [entry(WINDOW_COUNT_LOW + number) for number in range(1, PAGE_COUNT_MAX + 1)]
    line.page_in(page, False, page[-1].sequence_number)

    assert len(line) <= WINDOW_COUNT_MAX
