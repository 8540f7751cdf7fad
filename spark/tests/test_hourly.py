"""Figures for each hour of lifecycle records, without Spark running (P8)."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from spark.tests.captured_rows import LATER_MS

from shardbus.app.pipelines.hours import read_hours
from shardbus.core.lifecycle.latency import SETTLEMENTS as CORE_SETTLEMENTS
from shardbus.core.lifecycle.latency import is_first_delivery, rank
from shardbus.core.lifecycle.rows import EVENTS
from shardbus.gateway.flight.reading.schema import RECORD_COLUMNS
from shardbus_spark.pipelines.lifecycle import RECORDS, Figurer, figuring
from shardbus_spark.schema import record_schema
from shardbus_spark.tables.bare import BareTable
from shardbus_spark.tables.compaction import compact, compactable
from shardbus_spark.tables.delta import DeltaForm
from shardbus_spark.tables.files import Directory
from shardbus_spark.tables.form import DELTA, PARQUET, Form
from shardbus_spark.tables.hourly import COUNTS, HOURS, KEYS, KEYS_SHOWN, SETTLEMENTS, Hourly
from shardbus_spark.tables.writing import arrow_schema, write_hours

AT: Final = datetime(2026, 11, 18, 12, tzinfo=UTC)
TIME: Final = "event_time"
SCHEMA: Final = arrow_schema(record_schema(), TIME)
Row = dict[str, object]


def record(event: str, number: int = 1, *, minutes: int = 0, **more: object) -> Row:
    row: Row = dict.fromkeys(RECORD_COLUMNS)
    row |= {"fragment": 0, "block": number, "row": 0, "event": event, "sequence_number": number}
    return {**row, "event_time": AT + timedelta(minutes=minutes), **more}


class Table:
    """A table of records that batches are written to, and its figures."""

    def __init__(self, root: Path, form: str = PARQUET) -> None:
        self.root = root
        records = root / RECORDS
        records.mkdir(parents=True)
        self._table: Form = (
            BareTable(Directory(records))
            if form == PARQUET
            else DeltaForm(Directory(records), SCHEMA)
        )
        self._batch = 0
        self.hourly = Hourly(Directory(records), Directory(root))

    def write(self, *rows: Row) -> None:
        batch = pa.RecordBatch.from_pylist(list(rows), schema=SCHEMA)
        written = write_hours(
            [batch], SCHEMA, "orders", lambda hour: self._table.place(self._batch, hour), TIME
        )
        assert self._table.commit("query", self._batch, written)
        self._batch += 1

    def read(self, table: str) -> list[Row]:
        files = sorted((self.root / table).glob("*.parquet"))
        return [row for file in files for row in parquet.read_table(file).to_pylist()]


@pytest.mark.parametrize("form", [PARQUET, DELTA])
def test_an_hour_has_its_counts_times_and_keys(tmp_path: Path, form: str) -> None:
    """P8"""
    table = Table(tmp_path, form)
    table.write(
        *(record("enqueue", at, key=f"k{at % 3}", size_bytes=10) for at in range(1, 10)),
        record("lock", 1, age_ms=40, delivery_count=0),
        record("abandon", 1, age_ms=50, held_ms=10, delivery_count=1),
        record("lock", 1, age_ms=90, delivery_count=1),
        record("complete", 1, age_ms=100, held_ms=10, delivery_count=1),
        record("receive", 2, age_ms=70, delivery_count=0),
        record("lock_lost", 3, held_ms=60_000),
        record("dead_letter", 3, held_ms=30),
        record("duplicate", 0, fragment=1),
    )
    table.write(record("enqueue", 11, minutes=61, key="later", size_bytes=1))

    assert table.hourly.update() == 2

    whole, zero, one, later, _ = table.read(HOURS)
    expected = {"enqueued": 9, "delivered": 3, "settled": 2, "abandoned": 1, "lost_locks": 1}
    assert {name: whole[name] for name in expected} == expected
    assert (whole["records"], zero["records"], one["records"]) == (17, 16, 1)
    assert (whole["redelivered"], whole["dead_lettered"], one["duplicates"]) == (1, 1, 1)
    assert whole["enqueued_bytes"] == 90
    assert (whole["queue_ms_p50"], whole["queue_ms_max"]) == (40, 70)
    assert (whole["settle_ms_p50"], whole["settle_ms_max"]) == (10, 30)
    assert (whole["fragment"], zero["fragment"], one["queue_ms_p99"]) == (None, 0, None)
    assert (whole["hour"], later["hour"]) == (AT, AT + timedelta(hours=1))
    assert [(row["key"], row["enqueued"]) for row in table.read(KEYS)] == [
        ("k0", 3),
        ("k1", 3),
        ("k2", 3),
        ("later", 1),
    ]


def test_the_bus_reads_what_the_connector_keeps(tmp_path: Path) -> None:
    """P8: for its plots."""
    table = Table(tmp_path)
    table.write(record("enqueue", 1, key="k"), record("lock", 1, age_ms=40, delivery_count=0))
    table.write(record("expire", 1, minutes=130))
    table.hourly.update()

    found = read_hours(tmp_path)

    assert found.count == 3
    assert set(COUNTS) | {"redelivered", "queue_ms_p99", "settle_ms_max"} <= set(found.series)
    shown = {name: found.series[name] for name in ("enqueued", "expired", "queue_ms_p50")}
    assert shown == {
        "enqueued": [1, None, 0],
        "expired": [0, None, 1],
        "queue_ms_p50": [40, None, None],
    }
    assert found.keys == []


def test_an_hour_is_computed_again_only_when_it_has_more_records(tmp_path: Path) -> None:
    """P8: so each record is counted once, whatever was interrupted."""
    table = Table(tmp_path)
    table.write(record("enqueue", 1))
    table.write(record("enqueue", 2, minutes=70))

    assert [table.hourly.update(), table.hourly.update()] == [2, 0]
    table.write(record("enqueue", 3))
    # Another driver knows nothing but the files.
    assert [
        Hourly(Directory(tmp_path / RECORDS), Directory(tmp_path)).update(),
        table.hourly.update(),
    ] == [1, 0]

    totals = [row["enqueued"] for row in table.read(HOURS) if row["fragment"] is None]
    assert totals == [2, 1]


def test_compaction_changes_no_figures(tmp_path: Path) -> None:
    """P8"""
    table = Table(tmp_path)
    for at in range(5):
        table.write(record("enqueue", at + 1))
    table.hourly.update()
    before = table.read(HOURS)
    found = compactable(str(tmp_path / RECORDS))
    assert found is not None

    done = compact(found, LATER_MS, lambda: False)

    assert done.files_before == 5
    assert (table.hourly.update(), table.read(HOURS)) == (0, before)


def test_percentiles_are_those_of_the_bus_and_nearly_exact(tmp_path: Path) -> None:
    """P8: by nearest rank, and long ones are less than one percent too short."""
    dice = random.Random(8)
    ages = [dice.choice([dice.randrange(256), dice.randrange(10_000_000)]) for _ in range(999)]
    table = Table(tmp_path)
    table.write(*(record("lock", at, age_ms=age, delivery_count=0) for at, age in enumerate(ages)))
    table.hourly.update()

    whole = table.read(HOURS)[0]
    for percent in (50, 95, 99):
        exact, found = rank(sorted(ages), percent), whole[f"queue_ms_p{percent}"]
        assert isinstance(found, int) and exact * 0.99 <= found <= exact


def test_only_the_hottest_keys_are_kept(tmp_path: Path) -> None:
    table = Table(tmp_path)
    table.write(*(record("enqueue", at, key=f"key-{at % 100}") for at in range(150)))
    table.hourly.update()

    keys = table.read(KEYS)
    assert len(keys) == KEYS_SHOWN
    assert {row["enqueued"] for row in keys} == {2}


def test_the_bus_and_the_connector_count_the_same_events() -> None:
    assert set(SETTLEMENTS) == CORE_SETTLEMENTS
    assert {event for events in COUNTS.values() for event in events} <= set(EVENTS)
    assert is_first_delivery("lock", 0) and is_first_delivery("receive", 3)
    assert not is_first_delivery("lock", 1)


def test_figures_are_complete_when_the_pipeline_ends(tmp_path: Path) -> None:
    """P8: also without a pass before."""
    table = Table(tmp_path)
    told: list[object] = []
    with figuring(str(tmp_path), lambda event: told.append(dict(event))):
        table.write(record("enqueue", 1))

    assert told == [{"event": "figures", "hours": 1}]
    assert table.read(HOURS)[0]["enqueued"] == 1


def test_a_pass_that_fails_is_told_and_ends_nothing(tmp_path: Path) -> None:
    table = Table(tmp_path)
    table.write(record("enqueue", 1))
    (tmp_path / HOURS).write_text("in the way")
    told: list[dict[str, object]] = []
    figurer = Figurer(table.hourly, lambda event: told.append(dict(event)))

    figurer.finish()

    assert [event["event"] for event in told] == ["figures"] * 3
    assert all("error" in event for event in told)
    (tmp_path / HOURS).unlink()
    assert figurer.look() and table.read(HOURS)[0]["enqueued"] == 1
