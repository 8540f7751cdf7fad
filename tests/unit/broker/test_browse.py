"""Browsing over fragments (R20, R21)."""

import pytest

from shardbus.broker.fragment.runner import Runner
from shardbus.broker.operations.browse import PLACES_MAX, BrowseCursor, browse
from shardbus.core.errors import Unavailable
from shardbus.core.fragment.change import Append
from shardbus.core.limits import PEEK_BYTES_MAX, PEEK_COUNT_MAX
from shardbus.core.message import DEAD_LETTER_LINE, MAIN_LINE, Entry
from shardbus.core.messages.command import COMPLETE, DEAD_LETTER
from shardbus.core.sequence import sequence_number
from shardbus.stores.base.store import FragmentCommit
from tests.unit.broker.house import House, send_of


def peek(
    house: House,
    runners: list[Runner],
    *,
    start: int = 0,
    count_max: int = 100,
    line: int = MAIN_LINE,
    cursor: BrowseCursor | None = None,
) -> list[Entry]:
    asked = browse(runners, line, start=start, count_max=count_max, cursor=cursor or BrowseCursor())
    return house.loop.run_until_complete(asked)


def peek_on(house: House, runners: list[Runner], *, count_max: int) -> list[bytes | None]:
    """Peek from the start to the end as clients do: after the last one they got."""
    cursor = BrowseCursor()
    start = 0
    seen: list[bytes | None] = []
    while entries := peek(house, runners, start=start, count_max=count_max, cursor=cursor):
        seen += payloads(entries)
        start = entries[-1].sequence_number + 1
    return seen


def payloads(entries: list[Entry]) -> list[bytes | None]:
    return [entry.payload for entry in entries]


def spread(house: House, runners: list[Runner], count: int, size_bytes: int = 0) -> list[bytes]:
    """Messages to the fragments in turn, a moment apart."""
    sent: list[bytes] = []
    for number in range(count):
        sent.append(b"%d" % number + bytes(size_bytes))
        house.answer(runners[number % len(runners)], send_of(sent[-1]))
    return sent


def test_a_conventional_entity_shows_the_oldest_message_first(house: House) -> None:
    """R20."""
    runner = house.runner()
    sent = spread(house, [runner], 5)

    assert payloads(peek(house, [runner], count_max=1)) == sent[:1]
    assert payloads(peek(house, [runner])) == sent


@pytest.mark.parametrize("count_max", [1, 3, 100])
def test_a_peek_from_the_start_merges_fragments_by_enqueue_time(
    house: House, count_max: int
) -> None:
    """R20: going beyond the original, the oldest reachable message comes first."""
    runners = [house.runner(number) for number in range(3)]
    sent = spread(house, runners, 10)

    assert peek_on(house, runners, count_max=count_max) == sent


def test_several_who_browse_with_one_cursor_see_everything(house: House) -> None:
    """R20: receivers of one Java client share a management link, and each has its own place."""
    runners = [house.runner(number) for number in range(3)]
    sent = spread(house, runners, 12)
    cursor = BrowseCursor()
    seen: list[list[bytes | None]] = [[], [], []]
    starts = [0, 0, 0]

    for _ in range(12):
        for who, count_max in enumerate((1, 2, 3)):
            start = starts[who]
            page = peek(house, runners, start=start, count_max=count_max, cursor=cursor)
            seen[who] += payloads(page)
            starts[who] = page[-1].sequence_number + 1 if page else start

    assert seen == [sent] * 3


def test_a_page_that_is_asked_for_again_is_the_same(house: House) -> None:
    """R20: the answer to a request may be lost on its way."""
    runners = [house.runner(number) for number in range(3)]
    sent = spread(house, runners, 9)
    cursor = BrowseCursor()
    first = peek(house, runners, count_max=2, cursor=cursor)
    start = first[-1].sequence_number + 1

    pages = [peek(house, runners, start=start, count_max=3, cursor=cursor) for _ in range(2)]

    assert [payloads(page) for page in pages] == [sent[2:5]] * 2


def test_only_so_many_places_are_remembered(house: House) -> None:
    cursor = BrowseCursor()
    for number in range(PLACES_MAX + 1):
        cursor.note(number, [number])

    assert cursor.positions_at(0) is None
    assert [cursor.positions_at(number) for number in (1, PLACES_MAX)] == [[1], [PLACES_MAX]]
    assert cursor.positions == [PLACES_MAX]


def test_another_start_walks_the_fragments_in_the_order_of_their_numbers(house: House) -> None:
    """R20: browsing from sequence number n walks on."""
    runners = [house.runner(number) for number in range(3)]
    sent = spread(house, runners, 9)

    found = peek(house, list(reversed(runners)), start=sequence_number(1, 2))

    assert payloads(found) == [sent[4], sent[7], sent[2], sent[5], sent[8]]
    assert payloads(peek(house, runners, start=sequence_number(2, 4))) == []


def test_a_page_ends_at_256_kb_and_repeating_it_yields_the_rest(house: House) -> None:
    """R21."""
    runners = [house.runner(number) for number in range(2)]
    sent = spread(house, runners, 8, PEEK_BYTES_MAX // 3)

    first = peek(house, runners)
    assert len(first) < 4
    assert peek_on(house, runners, count_max=100) == sent
    walked = peek(house, runners, start=2)
    assert 0 < len(walked) < 4


def test_a_message_larger_than_a_page_is_shown_alone(house: House) -> None:
    """R21: an empty answer would mean that there is no more."""
    runner = house.runner()
    sent = spread(house, [runner], 3, 2 * PEEK_BYTES_MAX)

    assert peek_on(house, [runner], count_max=100) == sent


def test_a_page_has_a_most(house: House) -> None:
    runner = house.runner()
    house.answer(runner, send_of(*[b"a"] * (PEEK_COUNT_MAX + 5)))

    assert len(peek(house, [runner], count_max=10_000)) == PEEK_COUNT_MAX


def test_locked_messages_are_shown_and_completed_ones_are_not(house: House) -> None:
    runner = house.runner()
    spread(house, [runner], 3)
    first, _ = house.receive(runner, 2)
    house.settle(runner, COMPLETE, first)

    assert payloads(peek(house, [runner])) == [b"1", b"2"]


def test_dead_letters_are_browsed_on_their_own_line(house: House) -> None:
    runner = house.runner()
    spread(house, [runner], 2)
    house.settle(runner, DEAD_LETTER, *house.receive(runner, 1))

    assert payloads(peek(house, [runner])) == [b"1"]
    assert payloads(peek(house, [runner], line=DEAD_LETTER_LINE)) == [b"0"]


def test_an_unavailable_fragment_has_nothing_to_show_and_delays_nobody(house: House) -> None:
    """R17."""
    runners = [house.runner(number) for number in range(2)]
    sent = spread(house, runners, 4)
    house.disk.broken_fragments.add(runners[0].fragment_id)

    assert payloads(peek(house, runners)) == [sent[1], sent[3]]
    assert payloads(peek(house, runners, start=2)) == [sent[1], sent[3]]


@pytest.mark.parametrize("start", [0, 2])
def test_when_no_fragment_can_be_read_that_is_told(house: House, start: int) -> None:
    """R21: an empty answer would mean that there is no more."""
    runners = [house.runner(number) for number in range(2)]
    spread(house, runners, 4)
    house.disk.broken_fragments |= {runner.fragment_id for runner in runners}

    with pytest.raises(Unavailable):
        peek(house, runners, start=start)


def test_a_clock_that_stepped_back_hides_nothing(house: House) -> None:
    """Within a fragment the order is that of its numbers, whatever the times say."""
    runners = [house.runner(number) for number in range(2)]
    times_ms = [[100, 50, 120], [60, 70, 80]]
    for runner, stamps in zip(runners, times_ms, strict=True):
        number = runner.fragment_id.number
        entries = [
            Entry(
                sequence_number(number, position + 1),
                b"%d.%d" % (number, position),
                3,
                enqueued_at_ms=stamp,
            )
            for position, stamp in enumerate(stamps)
        ]
        counters = house.disk.kept.load(runner.fragment_id).counters
        house.disk.kept.commit([FragmentCommit(runner.fragment_id, [Append(entries)], counters)])

    seen = peek_on(house, runners, count_max=1)

    assert sorted(str(each) for each in seen) == [
        str(b"%d.%d" % (number, position)) for number in (0, 1) for position in (0, 1, 2)
    ]
    assert [each for each in seen if each is not None and each.startswith(b"0")] == [
        b"0.0", b"0.1", b"0.2",
    ]  # fmt: skip


def test_damaged_messages_are_passed_over_and_not_taken_for_the_end(house: House) -> None:
    """D4, R21."""
    runner = house.runner()
    spread(house, [runner], 6)
    for counter in (1, 2, 3):
        house.disk.kept.damage(runner.fragment_id, sequence_number(0, counter))

    assert payloads(peek(house, [runner], count_max=2))[0] == b"3"
    assert payloads(peek(house, [runner])) == [b"3", b"4", b"5"]
