"""What `MessageStore` promises about heads, and about claimed messages that are due."""

from __future__ import annotations

import itertools

from shardbus.core.message import DEAD_LETTER_LINE, DEFERRED, MAIN_LINE, NEVER_MS, Entry
from shardbus.core.runs import runs_of
from shardbus.stores.base.store import MessageStore, Page
from tests.stores.harness import (
    Pen,
    Scalpel,
    SqliteCase,
    StoreCase,
    facts,
    numbers,
    without_payload,
)

BYTES_MAX = 1 << 20


def heads(
    store: MessageStore,
    pen: Pen,
    *,
    line: int = MAIN_LINE,
    after: int = 0,
    count_max: int = 99,
    bytes_max: int = BYTES_MAX,
) -> Page:
    return store.read_heads(
        pen.fragment, line, after=after, count_max=count_max, bytes_max=bytes_max
    )


def delivered(entries: list[Entry]) -> list[Entry]:
    """Messages that left their chunks because a delivery of them failed."""
    changed = without_payload(entries)
    for entry in changed:
        entry.delivery_count += 1
    return changed


def check_beside_line(
    store: MessageStore, pen: Pen, line: int, after: int, count_max: int, bytes_max: int
) -> None:
    """Heads are what a line has, but for the payloads."""
    found = heads(store, pen, line=line, after=after, count_max=count_max, bytes_max=bytes_max)
    page = store.read_line(
        pen.fragment, line, after=after, count_max=count_max, bytes_max=bytes_max
    )
    for entry in page.entries:
        entry.payload = None
    assert [facts(entry) for entry in found.entries] == [facts(entry) for entry in page.entries]
    assert (found.damaged, found.is_end) == (page.damaged, page.is_end)


def test_heads_are_those_of_the_line(case: StoreCase, pen: Pen) -> None:
    for size in range(1, 101):
        entries = pen.append([b"x" * (size % 9), b"y" * 3])
        pen.write(case.store)
        if size % 10 == 0:
            pen.move(without_payload(entries[:1]), line=DEAD_LETTER_LINE)
        elif size % 7 == 0:
            pen.move(without_payload(entries[:1]), state=DEFERRED)
        elif size % 4 == 0:
            pen.remove(entries[:1])
        elif size % 3 == 0:
            pen.update(delivered(entries[:1]))
        pen.write(case.store)
    case.reopen()

    for line, after, count_max, bytes_max in itertools.product(
        (MAIN_LINE, DEAD_LETTER_LINE), (0, 1, 50, 199, 200), (1, 3, 7, 200), (1, 25, BYTES_MAX)
    ):
        check_beside_line(case.store, pen, line, pen.sequence(after), count_max, bytes_max)


def test_heads_go_on_beyond_many_small_chunks(store: MessageStore, pen: Pen) -> None:
    for _ in range(150):
        pen.append([b"x"])
        pen.write(store)

    whole = heads(store, pen, count_max=200)
    first = heads(store, pen, count_max=149)
    exact = heads(store, pen, count_max=150)

    assert numbers(whole.entries) == [pen.sequence(n) for n in range(1, 151)]
    assert (whole.is_end, first.is_end, exact.is_end) == (True, False, True)
    assert all(entry.payload is None for entry in whole.entries)


def test_a_damaged_head_is_told_without_the_payload(sqlite_case: SqliteCase, pen: Pen) -> None:
    pen.append([b"a", b"b"])
    pen.write(sqlite_case.store)
    pen.append([b"c"])
    pen.write(sqlite_case.store)
    with Scalpel(sqlite_case.path) as scalpel:
        scalpel.flip_head(pen.fragment, pen.sequence(1), 12)

    page = heads(sqlite_case.store, pen)

    assert page.damaged == [pen.sequence(1), pen.sequence(2)]
    assert numbers(page.entries) == [pen.sequence(3)]


def test_a_damaged_payload_does_not_show_in_a_head(sqlite_case: SqliteCase, pen: Pen) -> None:
    pen.append([b"a", b"b"])
    pen.write(sqlite_case.store)
    sqlite_case.damage(pen.fragment, pen.sequence(1))

    page = heads(sqlite_case.store, pen)

    assert (numbers(page.entries), page.damaged) == ([pen.sequence(1), pen.sequence(2)], [])
    assert sqlite_case.store.read_entries(pen.fragment, [pen.sequence(1)], bytes_max=BYTES_MAX) == [
        None
    ]


def test_claimed_messages_are_not_due(store: MessageStore, pen: Pen) -> None:
    for _ in range(6):
        pen.append([b"x"] * 3, expires_at_ms=1_000)
        pen.write(store)
    moved = pen.append([b"x"] * 4, expires_at_ms=1_000)
    pen.write(store)
    pen.update(delivered(moved))
    pen.append([b"x"], expires_at_ms=9_000)
    pen.write(store)
    claimed = [*range(1, 12), *range(13, 19), 19, 21]

    due = store.read_due(
        pen.fragment,
        now_ms=2_000,
        count_max=2,
        bytes_max=BYTES_MAX,
        claimed=runs_of([pen.sequence(each) for each in claimed]),
    )
    all_due = store.read_due(
        pen.fragment,
        now_ms=2_000,
        count_max=99,
        bytes_max=BYTES_MAX,
        claimed=runs_of([pen.sequence(each) for each in claimed]),
    )

    assert set(numbers(due.entries)) < {pen.sequence(each) for each in (12, 20, 22)}
    assert len(due.entries) == 2 and due.next_due_ms <= 2_000
    assert sorted(numbers(all_due.entries)) == [pen.sequence(each) for each in (12, 20, 22)]
    assert all_due.next_due_ms == 9_000


def test_nothing_is_due_where_everything_is_claimed(store: MessageStore, pen: Pen) -> None:
    for _ in range(9):
        pen.append([b"x"] * 3, expires_at_ms=1_000)
        pen.write(store)

    due = store.read_due(
        pen.fragment,
        now_ms=2_000,
        count_max=2,
        bytes_max=BYTES_MAX,
        claimed=runs_of([pen.sequence(each) for each in range(1, 28)]),
    )

    assert (due.entries, due.damaged, due.next_due_ms) == ([], [], NEVER_MS)
