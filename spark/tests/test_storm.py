"""Storms small enough for every day: what `make storm` does to a million messages."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest
from spark.tests.storm.backfill import backfill_storm
from spark.tests.storm.books import Books, body_of
from spark.tests.storm.capture import capture_storm
from spark.tests.storm.lifecycle import COLUMNS, judged, lifecycle_storm
from spark.tests.storm.plan import SMALL, Plan, Victim
from spark.tests.storm.replay import replay_storm
from spark.tests.storm.sink import sink_storm
from spark.tests.storm.transforms import python_storm, sql_storm

SIZE_BYTES: Final = 64
NOON: Final = datetime(2026, 11, 18, 12, tzinfo=UTC)
TYPES: Final[dict[str, pa.DataType]] = {
    "fragment": pa.int32(),
    "block": pa.int64(),
    "row": pa.int32(),
    "event": pa.string(),
    "event_time": pa.timestamp("us", "UTC"),
    "sequence_number": pa.int64(),
    "key": pa.string(),
}
SCHEMA: Final = pa.schema([pa.field(name, kind) for name, kind in TYPES.items()])


@pytest.mark.release
@pytest.mark.timeout(900)
def test_brokers_that_are_killed_cost_a_capture_nothing(tmp_path: Path) -> None:
    """P2: processes of brokers, and a driver without Java, which can be killed often."""
    kills = {Victim.DRIVER: 2, Victim.BROKER: 3}
    plan = Plan(3_000, 3, kills, size_bytes=SIZE_BYTES, rows_max=200, reader=SMALL)

    verdict, field = capture_storm(plan, tmp_path)

    assert verdict.is_good, verdict
    assert verdict.found > plan.messages // 2, "receivers did not take it all"
    assert verdict.completed > plan.messages // 20, "nor did the driver"
    assert field.kills == {Victim.DRIVER: 2, Victim.EXECUTOR: 0, Victim.BROKER: 3, Victim.BUS: 0}


@pytest.mark.release
@pytest.mark.timeout(900)
def test_an_executor_and_a_broker_that_are_killed_cost_a_sink_nothing(tmp_path: Path) -> None:
    """P3: two executors write, and one of them ends in the middle."""
    kills = {Victim.EXECUTOR: 1, Victim.BROKER: 1}
    plan = Plan(1_500, 5, kills, size_bytes=SIZE_BYTES, rows_max=100)

    verdict, field = sink_storm(plan, tmp_path)

    assert verdict.is_good, verdict
    assert verdict.found == plan.messages
    assert field.kills[Victim.EXECUTOR] == 1


@pytest.mark.release
@pytest.mark.timeout(900)
def test_a_driver_a_broker_and_a_bus_that_are_killed_cost_a_replay_nothing(tmp_path: Path) -> None:
    """P5, P9: the driver that the bus starts; rows of a key are there in their order."""
    kills = {Victim.DRIVER: 1, Victim.BROKER: 1, Victim.BUS: 1}
    plan = Plan(800, 11, kills, size_bytes=SIZE_BYTES, rows_max=100)

    verdict, field = replay_storm(plan, tmp_path)

    assert verdict.is_good, verdict
    assert verdict.found == plan.messages
    assert field.kills == {**kills, Victim.EXECUTOR: 0}


@pytest.mark.release
@pytest.mark.timeout(900)
def test_a_driver_and_a_bus_that_are_killed_cost_a_backfill_nothing(tmp_path: Path) -> None:
    """P5, P9: while publishers go on; from a table and from what the archive holds."""
    kills = {Victim.DRIVER: 1, Victim.BROKER: 1, Victim.BUS: 1}
    plan = Plan(600, 12, kills, size_bytes=SIZE_BYTES, rows_max=100)

    verdict, field = backfill_storm(plan, tmp_path)

    assert verdict.is_good, verdict
    assert verdict.found > plan.messages, "publishers went on"
    assert field.kills == {**kills, Victim.EXECUTOR: 0}


@pytest.mark.release
@pytest.mark.timeout(900)
def test_an_executor_a_driver_and_a_broker_that_are_killed_cost_sql_nothing(
    tmp_path: Path,
) -> None:
    """P9: to a queue that would show what comes twice, while receivers compete."""
    kills = {Victim.EXECUTOR: 1, Victim.DRIVER: 1, Victim.BROKER: 1}
    plan = Plan(600, 13, kills, size_bytes=SIZE_BYTES, rows_max=200)

    verdict, field = sql_storm(plan, tmp_path)

    assert verdict.is_good, verdict
    assert verdict.found > 0 and verdict.completed > 0
    assert field.kills == {**kills, Victim.BUS: 0}


@pytest.mark.release
@pytest.mark.timeout(900)
def test_a_driver_and_a_bus_that_are_killed_cost_python_nothing(tmp_path: Path) -> None:
    """P9: a function of the operator, to a Delta table."""
    kills = {Victim.DRIVER: 1, Victim.BUS: 1}
    plan = Plan(600, 14, kills, size_bytes=SIZE_BYTES, rows_max=200)

    verdict, field = python_storm(plan, tmp_path)

    assert verdict.is_good, verdict
    assert verdict.found > 0 and verdict.completed > 0
    assert field.kills == {**kills, Victim.EXECUTOR: 0, Victim.BROKER: 0}


@pytest.mark.release
@pytest.mark.timeout(900)
def test_a_driver_an_executor_a_broker_and_a_bus_that_are_killed_cost_no_record(
    tmp_path: Path,
) -> None:
    """P8, P9: each event of each message is in the table once."""
    kills = {Victim.DRIVER: 1, Victim.EXECUTOR: 1, Victim.BROKER: 1, Victim.BUS: 1}
    plan = Plan(600, 15, kills, size_bytes=SIZE_BYTES)

    verdict, field = lifecycle_storm(plan, tmp_path)

    assert verdict.is_good, verdict
    assert verdict.found > plan.messages, "nothing was completed"
    assert field.kills == kills


def records(*rows: tuple[int, str, int, str | None]) -> pa.Table:
    """Records of one fragment: block, event, sequence number and key."""
    return pa.Table.from_pylist(
        [
            dict(zip(COLUMNS, (0, block, 0, event, NOON, number, key), strict=True))
            for block, event, number, key in rows
        ],
        schema=SCHEMA,
    )


def test_the_records_tell_what_is_missing_twice_and_strange() -> None:
    """P8: a checker that cannot fail proves nothing."""
    on_bus = [
        (1, "enqueue", 7, "0"),
        (2, "enqueue", 8, "1"),
        (3, "lock", 7, None),
        (4, "complete", 7, None),
        (5, "complete", 8, None),
    ]
    wrong = [
        (on_bus, (0, 0, 0, 0)),
        # An event, and a record that no message accounts for.
        (on_bus[:4], (2, 0, 0, 0)),
        ([*on_bus[:2], *on_bus[3:]], (1, 0, 0, 0)),
        ([*on_bus, on_bus[2]], (0, 1, 0, 0)),
        ([*on_bus, on_bus[0]], (0, 2, 0, 0)),
        ([*on_bus, (6, "lock", 8, None)], (0, 0, 1, 0)),
        # Its content differs.
        ([*on_bus[:2], (3, "lock", 8, None), *on_bus[3:]], (1, 0, 1, 0)),
        # Nobody completed it.
        ([*on_bus, (6, "complete", 9, None)], (0, 0, 1, 1)),
    ]
    for kept, (missing, twice, strangers, damaged) in wrong:
        books = Books(10, SIZE_BYTES)
        for number in books.attempt(4):
            books.accept(number)
        there = records(*on_bus)

        verdict = judged(books, {0, 1}, records(*kept), there, there)

        found = (verdict.missing, verdict.twice, verdict.strangers, verdict.damaged)
        assert found == (missing, twice, strangers, damaged), kept


def test_the_books_tell_what_is_missing_twice_strange_and_damaged() -> None:
    """P2: a checker that cannot fail proves nothing."""
    books = Books(10, SIZE_BYTES)
    for number in books.attempt(6):
        books.accept(number)
    for number in (0, 1, 1, 7):
        books.find(body_of(number, SIZE_BYTES))
    books.find(body_of(2, SIZE_BYTES)[:-1])
    books.settle(3)
    books.complete(3)
    books.settle(4)

    verdict = books.verdict()

    assert (verdict.missing, verdict.twice, verdict.strangers, verdict.damaged) == (2, 1, 1, 1)
    assert verdict.examples == [2, 5, 1, 7]
    assert (verdict.unsure_completed, verdict.is_good) == (1, False)


def test_the_books_tell_what_a_key_has_out_of_order() -> None:
    """P5: among what was accepted; a send that nobody answered may arrive late."""
    books = Books(6, SIZE_BYTES)
    for number in books.attempt(6):
        if number != 1:
            books.accept(number)
    for number in (0, 2, 1, 4):
        books.find(body_of(number, SIZE_BYTES), "k")
    books.find(body_of(5, SIZE_BYTES), "other")
    assert books.verdict().disordered == 0

    books.find(body_of(3, SIZE_BYTES), "k")

    verdict = books.verdict()
    assert (verdict.disordered, verdict.is_good) == (1, False)


def test_what_receivers_and_spark_both_have_is_there_twice() -> None:
    """P2."""
    books = Books(1, SIZE_BYTES)
    for number in books.attempt(1):
        books.accept(number)
        books.settle(number)
        books.complete(number)
    assert books.verdict().is_good

    books.find(body_of(0, SIZE_BYTES))

    assert books.verdict().twice == 1
