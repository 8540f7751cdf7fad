"""Sessions and schedules cost what is touched of them: counted in steps of SQLite's machine."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from shardbus.core.message import Entry
from shardbus.stores.base.store import FragmentId
from shardbus.stores.sqlite import store as sqlite
from shardbus.stores.sqlite.database import open_reader
from tests.stores.harness import Pen, SqliteCase, without_payload
from tests.stores.step_meter import StepMeter

FRAGMENT = FragmentId(7, 3)
FEW = 1_000
MANY = 100_000
PER_COMMIT = 2_000
BYTES_MAX = 1 << 20


@pytest.fixture
def meter(monkeypatch: pytest.MonkeyPatch) -> StepMeter:
    made = StepMeter()
    monkeypatch.setattr(sqlite, "open_reader", made.open_reader)
    monkeypatch.setattr(sqlite, "open_writer", made.open_writer)
    return made


@pytest.fixture
def case(meter: StepMeter, tmp_path: Path) -> Iterator[SqliteCase]:
    opened = SqliteCase(tmp_path / "store.db", "relaxed")
    opened.store.create([FragmentId(6, 0), FRAGMENT, FragmentId(8, 0)])
    yield opened
    opened.close()


class Sessions:
    """A fragment with a message in each of many sessions, added in rising order."""

    def __init__(self, case: SqliteCase) -> None:
        self.store = case.store
        self.pen = Pen(FRAGMENT)
        self.entries: list[Entry] = []

    def grow(self, count: int) -> None:
        while len(self.entries) < count:
            start = len(self.entries)
            for at in range(start, min(start + PER_COMMIT, count)):
                self.entries += without_payload(self._new(at))
            self.pen.write(self.store)

    def _new(self, at: int) -> list[Entry]:
        new = self.pen.append([b"x" * 20], session_id=name(at))
        # The commit needs the payload, so what is kept here is a second description of it.
        first = new[0]
        return [
            Entry(
                first.sequence_number,
                None,
                first.size_bytes,
                enqueued_at_ms=first.enqueued_at_ms,
                session_id=first.session_id,
            )
        ]

    def page(self, at: int) -> None:
        found = self.store.read_sessions(FRAGMENT, after=self.pen.sequence(at), count_max=20)
        assert [session.key for session in found.sessions] == [
            name(other) for other in range(at, at + 20)
        ]

    def accept(self, at: int) -> None:
        """What it takes to hand a session out and to complete its message."""
        found = self.store.read_session(
            FRAGMENT, name(at), after=0, count_max=64, bytes_max=BYTES_MAX
        )
        assert [entry.session_id for entry in found.entries] == [name(at)]
        self.pen.remove(self.entries[at : at + 1])
        self.pen.write(self.store)

    def defer_and_return(self, at: int) -> None:
        entry = self.entries[at : at + 1]
        for state in (1, 0):
            self.pen.move(entry, state=state)
            self.pen.write(self.store)

    def state(self, at: int) -> None:
        self.pen.set_state(name(at), b"state")
        self.pen.write(self.store)
        assert self.store.read_state(FRAGMENT, name(at)) == b"state"
        self.pen.set_state(name(at), None)
        self.pen.write(self.store)


def name(at: int) -> str:
    """Spread over the alphabet, as ids of clients are."""
    return f"{at * 7919 % 99991:05d}-{at}"


def test_a_session_costs_the_same_among_many(case: SqliteCase, meter: StepMeter) -> None:
    """R26: many thousand sessions without a scan per accept."""
    sessions = Sessions(case)
    actions = (sessions.page, sessions.defer_and_return, sessions.state, sessions.accept)

    def measured(at: int) -> list[int]:
        # The next numbers of chunks and the like are looked up once, by the first commit.
        actions[1](at)
        return [meter.steps(partial(action, at)) for action in actions]

    sessions.grow(FEW)
    few = measured(FEW // 2)
    sessions.grow(MANY)
    many = [measured(at) for at in (FEW, MANY // 2, MANY - 100)]

    for costs in many:
        for cost, among_few in zip(costs, few, strict=True):
            assert 0 < cost <= 1.2 * among_few


def test_a_session_with_many_messages_is_read_from_where_it_is_asked_for(
    case: SqliteCase, meter: StepMeter
) -> None:
    pen = Pen(FRAGMENT)

    def grow(count: int) -> None:
        for _ in range(count // 500):
            pen.append([b"x"] * 499, session_id="long")
            pen.append([b"x"], session_id="other")
            pen.write(case.store)

    def page(after: int) -> int:
        def read() -> None:
            found = case.store.read_session(
                FRAGMENT, "long", after=pen.sequence(after), count_max=10, bytes_max=BYTES_MAX
            )
            assert len(found.entries) == 10

        return meter.steps(read)

    def browse(after: int) -> int:
        return meter.steps(
            lambda: case.store.browse(
                FRAGMENT,
                0,
                start=pen.sequence(after),
                count_max=10,
                bytes_max=BYTES_MAX,
                session_id="other",
            )
        )

    grow(1_000)
    few = (page(100), browse(0))
    grow(20_000)

    assert max(page(at) for at in (100, 10_000, 20_000)) <= 1.2 * few[0]
    # Ten of the others are found here, and were two there.
    assert browse(5_000) <= 8 * few[1]
    assert browse(5_000) < 5_000


def test_what_is_due_costs_what_is_returned_among_many_scheduled(
    case: SqliteCase, meter: StepMeter
) -> None:
    """R21: a million scheduled messages must not make each tick slower."""
    pen = Pen(FRAGMENT)

    def grow(first: int, last: int) -> None:
        for start in range(first, last, PER_COMMIT):
            for at in range(start, min(start + PER_COMMIT, last)):
                pen.append([b"later"], scheduled_at_ms=10_000 + at)
            pen.write(case.store)

    def due(now_ms: int) -> int:
        def read() -> None:
            found = case.store.read_due(FRAGMENT, now_ms=now_ms, count_max=10, bytes_max=BYTES_MAX)
            assert [e.payload for e in found.entries] == [b"later"] * min(10, now_ms - 9_999)

        return meter.steps(read)

    grow(0, FEW)
    few = [due(now_ms) for now_ms in (9_999, 10_000, 10_900)]
    load = meter.steps(lambda: case.store.load(FRAGMENT))
    grow(FEW, MANY)
    many = [due(now_ms) for now_ms in (9_999, 10_000, 10_900)]

    assert all(cost <= 1.2 * among_few for cost, among_few in zip(many, few, strict=True))
    assert due(10_000 + MANY) <= 1.2 * few[2]
    assert meter.steps(lambda: case.store.load(FRAGMENT)) <= 1.2 * load


def test_remembering_costs_the_same_after_many(case: SqliteCase, meter: StepMeter) -> None:
    pen = Pen(FRAGMENT)

    def remember(at: int) -> None:
        pen.remember(at.to_bytes(16, "big") * 10, at)
        pen.write(case.store)

    for at in range(100):
        remember(at)
    few = meter.steps(lambda: remember(100))
    for at in range(101, 5_000):
        remember(at)
    many = meter.steps(lambda: remember(5_000))
    pen.forget_ids(4_000)
    forgetting = meter.steps(lambda: pen.write(case.store))
    after = meter.steps(lambda: remember(5_001))

    assert many <= 1.2 * few
    assert forgetting < 10_000
    assert after <= 3 * few


@pytest.mark.parametrize(
    ("index", "sql"),
    [
        ("session_rank", "SELECT rank FROM session WHERE rank >= 1 AND rank <= 9 ORDER BY rank"),
        (
            "entry_session",
            "SELECT key FROM entry WHERE session = 1 AND state = 0 AND key >= 1 ORDER BY key",
        ),
        (
            "entry_due",
            "SELECT key FROM entry WHERE key >> 43 = 1 AND due_at > 0 AND due_at <= 5 "
            "ORDER BY due_at, key",
        ),
    ],
)
def test_queries_are_answered_by_an_index_in_its_order(
    tmp_path: Path, index: str, sql: str
) -> None:
    path = tmp_path / "store.db"
    sqlite.SqliteStore(path).close()
    connection = open_reader(path)
    plan = " ".join(str(row[3]) for row in connection.execute("EXPLAIN QUERY PLAN " + sql))
    connection.close()

    assert f"INDEX {index} (" in plan
    assert "TEMP B-TREE" not in plan
