"""Reads cost what they return, however much waits: counted in steps of SQLite's machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardbus.core.message import DEAD_LETTER_LINE, DEFERRED, MAIN_LINE
from shardbus.core.runs import Runs
from shardbus.stores.base.store import FragmentId
from shardbus.stores.sqlite import lookup
from shardbus.stores.sqlite import store as sqlite
from shardbus.stores.sqlite.database import open_reader
from shardbus.stores.sqlite.store import SqliteStore
from tests.stores.harness import Pen, SqliteCase, numbers, without_payload
from tests.stores.step_meter import StepMeter

FRAGMENT = FragmentId(7, 3)


@pytest.fixture
def meter(monkeypatch: pytest.MonkeyPatch) -> StepMeter:
    made = StepMeter()
    monkeypatch.setattr(sqlite, "open_reader", made.open_reader)
    return made


@pytest.fixture
def case(meter: StepMeter, tmp_path: Path) -> SqliteCase:
    # Recent chunks are scanned; with few of them the rest of the cost shows.
    return SqliteCase(tmp_path / "store.db", "relaxed", recent_max=8)


def filled(case: SqliteCase, messages: int, per_commit: int) -> Pen:
    """A fragment with a long line, and a neighbour on either side of it."""
    case.store.create([FragmentId(6, 0), FRAGMENT, FragmentId(8, 0)])
    pens = [Pen(FragmentId(6, 0)), Pen(FRAGMENT), Pen(FragmentId(8, 0))]
    for _ in range(messages // per_commit):
        for pen in pens:
            pen.append([b"x"] * per_commit)
        case.store.commit([pen.commit() for pen in pens])
    return pens[1]


def page(store: SqliteStore, line: int, after: int, count_max: int) -> list[int]:
    found = store.read_line(FRAGMENT, line, after=after, count_max=count_max, bytes_max=1 << 20)
    return numbers(found.entries)


@pytest.mark.parametrize("per_commit", [1, 50])
def test_a_page_costs_the_same_in_a_long_line(
    case: SqliteCase, meter: StepMeter, per_commit: int
) -> None:
    """D3: cost depends on what is returned, not on how many messages wait."""
    pen = filled(case, 1_000, per_commit)
    store = case.store
    assert isinstance(store, SqliteStore)
    near = meter.steps(lambda: page(store, MAIN_LINE, pen.sequence(100), 20))
    for _ in range(60):
        pen.append([b"x"] * 100)
        pen.write(store)
    far = meter.steps(lambda: page(store, MAIN_LINE, pen.sequence(3_000), 20))
    case.close()

    assert far <= 2 * near


def test_passed_messages_that_were_deferred_cost_nothing(
    case: SqliteCase, meter: StepMeter
) -> None:
    pen = filled(case, 200, 20)
    store = case.store
    assert isinstance(store, SqliteStore)
    before = meter.steps(lambda: page(store, MAIN_LINE, 0, 5))
    for _ in range(40):
        entries = pen.append([b"x"] * 100)
        pen.write(store)
        pen.move(without_payload(entries[:99]), state=DEFERRED)
        pen.remove(entries[99:])
        pen.write(store)
    everything = [pen.sequence(n) for n in range(1, 201)]
    assert page(store, MAIN_LINE, 0, 500) == everything
    after = meter.steps(lambda: page(store, MAIN_LINE, 0, 5))
    beyond = meter.steps(lambda: page(store, MAIN_LINE, pen.sequence(200), 5))
    case.close()

    assert after <= 2 * before
    assert beyond <= 2 * before


def test_dead_letters_cost_what_is_read_of_them(case: SqliteCase, meter: StepMeter) -> None:
    pen = filled(case, 2_000, 50)
    store = case.store
    assert isinstance(store, SqliteStore)
    entries = pen.append([b"letter"] * 3)
    pen.write(store)
    pen.move(without_payload(entries), line=DEAD_LETTER_LINE)
    pen.write(store)
    few = meter.steps(lambda: page(store, DEAD_LETTER_LINE, 0, 3))
    for _ in range(20):
        more = pen.append([b"letter"] * 100)
        pen.write(store)
        pen.move(without_payload(more), line=DEAD_LETTER_LINE)
        pen.write(store)
    many = meter.steps(lambda: page(store, DEAD_LETTER_LINE, 0, 3))
    case.close()

    assert few < 2_000
    assert many <= 2 * few


def test_the_next_due_moment_is_found_without_a_search(case: SqliteCase, meter: StepMeter) -> None:
    pen = filled(case, 100, 10)
    store = case.store
    for _ in range(60):
        pen.append([b"x"], expires_at_ms=50_000)
        pen.append([b"x"] * 60, expires_at_ms=90_000)
        pen.write(store)
    case.reopen()
    steps = meter.steps(lambda: case.store.load(FRAGMENT))
    nothing = meter.steps(
        lambda: case.store.read_due(FRAGMENT, now_ms=49_999, count_max=100, bytes_max=1)
    )
    case.close()

    assert steps < 500
    assert nothing < 1_000


@pytest.mark.parametrize("table", ["place", "entry"])
def test_due_queries_use_their_index(tmp_path: Path, table: str) -> None:
    path = tmp_path / "store.db"
    SqliteStore(path).close()
    connection = open_reader(path)
    plan = " ".join(
        str(row[3]) for row in connection.execute("EXPLAIN QUERY PLAN " + lookup.NEXT_DUE, (1, 2))
    )
    connection.close()

    assert f"USING COVERING INDEX {table}_due (<expr>=? AND due_at>?)" in plan


def test_heads_are_read_without_bodies_and_cost_no_more_the_larger_those_are(
    case: SqliteCase, meter: StepMeter
) -> None:
    """Claims are made from heads, so that a bulk reader does not read everything twice (D10)."""
    case.store.create([FRAGMENT])
    pen = Pen(FRAGMENT)
    for size_bytes in (10, 10_000):
        for _ in range(40):
            pen.append([b"x" * size_bytes] * 20)
            pen.write(case.store)
    case.reopen()
    store = case.store
    pages: list[int] = []

    def read(after: int, *, is_bare: bool) -> int:
        reading = store.read_heads if is_bare else store.read_line
        return meter.steps(
            lambda: pages.append(
                len(
                    reading(
                        FRAGMENT, MAIN_LINE, after=after, count_max=500, bytes_max=1 << 30
                    ).entries
                )
            )
        )

    small = read(0, is_bare=True)
    large = read(pen.sequence(800), is_bare=True)
    bare = [sql for sql in meter.statements if "body" in sql]
    read(0, is_bare=False)
    case.close()

    assert pages == [500, 500, 500]
    assert large <= 1.2 * small
    assert bare == []
    assert [sql for sql in meter.statements if "body" in sql] != []


def test_claimed_chunks_are_passed_over_without_being_opened(
    case: SqliteCase, meter: StepMeter
) -> None:
    case.store.create([FRAGMENT])
    pen = Pen(FRAGMENT)
    for _ in range(50):
        pen.append([b"x"] * 100, expires_at_ms=1_000)
        pen.write(case.store)
    pen.append([b"x"], expires_at_ms=1_000)
    pen.write(case.store)
    case.reopen()
    claimed = Runs()
    claimed.add(pen.sequence(1), pen.sequence(5_000))
    found: list[int] = []

    def look() -> None:
        due = case.store.read_due(
            FRAGMENT, now_ms=2_000, count_max=10, bytes_max=1, claimed=claimed
        )
        found.extend(numbers(due.entries))

    steps = meter.steps(look)
    case.close()

    assert found == [pen.sequence(5_001)]
    assert steps < 20_000
