"""Purging: from the front, bounded by count and time, honest about what is left (R32)."""

from shardbus.core.fragment.bounds import Bounds
from shardbus.core.message import DEAD_LETTER_LINE, MAIN_LINE, NEVER_MS
from shardbus.core.messages.command import COMPLETE, DEAD_LETTER, RELEASE, Purge, Purged
from tests.unit.core.desk import START_MS, Desk


def purged(
    desk: Desk, count_max: int, *, until_ms: int = NEVER_MS, line: int = MAIN_LINE
) -> tuple[int, bool]:
    reply = desk.do(Purge(line, count_max, enqueued_until_ms=until_ms))
    assert isinstance(reply, Purged)
    return reply.count, reply.has_more


def test_a_purge_removes_from_the_front_and_says_whether_more_is_left() -> None:
    desk = Desk()
    desk.send(b"a", b"b", b"c")

    assert purged(desk, 2) == (2, True)
    assert purged(desk, 2) == (1, False)
    assert purged(desk, 2) == (0, False)


def test_a_purge_leaves_locked_messages_to_their_holders() -> None:
    desk = Desk()
    desk.send(b"a", b"b")
    [delivery] = desk.receive()

    assert purged(desk, 10) == (1, False)
    assert desk.settle(COMPLETE, delivery) == [False]


def test_a_purge_stops_at_the_first_message_enqueued_later() -> None:
    desk = Desk()
    desk.send(b"a", b"b")
    desk.wait(1_000)
    desk.send(b"c", b"d")

    assert purged(desk, 10, until_ms=START_MS + 999) == (2, False)
    assert purged(desk, 1, until_ms=START_MS + 1_000) == (1, True)
    assert desk.payloads(5) == [b"d"]


def test_a_purge_that_removed_nothing_for_expired_messages_says_that_more_may_be_left() -> None:
    desk = Desk(bounds=Bounds(window_count_max=2, window_count_low=1, page_count_max=2))
    desk.send(b"a", b"b", ttl_ms=100)
    desk.send(b"c")
    desk.now_ms += 100

    assert purged(desk, 1) == (0, True)
    assert purged(desk, 1) == (1, False)


def test_a_purge_takes_what_came_back() -> None:
    desk = Desk()
    desk.send(b"a", b"b")
    desk.settle(RELEASE, *desk.receive(2))

    assert purged(desk, 10) == (2, False)
    assert desk.shelf.entries == {}


def test_what_a_purge_by_time_left_is_received_in_order() -> None:
    desk = Desk()
    for payload in (b"a", b"b", b"c"):
        desk.send(payload)
        desk.wait(1_000)

    assert purged(desk, 10, until_ms=START_MS) == (1, False)
    assert desk.payloads(5) == [b"b", b"c"]


def test_dead_letters_can_be_purged_and_the_main_line_stays() -> None:
    desk = Desk()
    desk.send(b"a", b"b")
    desk.settle(DEAD_LETTER, *desk.receive())

    assert purged(desk, 10, line=DEAD_LETTER_LINE) == (1, False)
    assert desk.payloads(5) == [b"b"]
