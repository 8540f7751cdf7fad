"""Lifecycle pipelines with bad input: they say what is wrong, lose nothing, and go on where they
were when it is mended.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from deltalake import write_deltalake
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from spark.tests.bus import Bus
from spark.tests.patience import patiently

from shardbus_spark.client import Client
from shardbus_spark.errors import OptionError, ShardbusError
from shardbus_spark.pipelines.definition import Definition, read_definition
from shardbus_spark.pipelines.events import error_text
from shardbus_spark.pipelines.lifecycle import RECORDS, checked_root, figuring, start_lifecycle
from shardbus_spark.tables import read_captured
from shardbus_spark.tables.files import Directory
from shardbus_spark.tables.form import DELTA, PARQUET, State, write_state
from shardbus_spark.tables.hourly import HOURS
from shardbus_spark.tables.layout import CHECKPOINT

KEY: Final = "bm9ib2R5IG1heSBkbyBtb3JlIHdpdGggdGhpcyBrZXk="
QUEUES: Final = ("guarded", "doomed", "blocked")
ENTITIES: Final = (
    f'[[access-rule]]\nname = "Send"\nrights = ["Send"]\nprimary-key = "{KEY}"\n'
    + "".join(f'[[queue]]\nname = "{n}"\npartitioning = false\nlifecycle = true\n' for n in QUEUES)
)
FIVE: Final = 5
Event = Mapping[str, object]


def access(bus: Bus, right: str = "") -> dict[str, str]:
    return {"endpoint": bus.url, **({"keyName": right, "key": KEY} if right else {})}


def send(bus: Bus, entity: str, count: int = FIVE) -> None:
    bus.send(entity, [{"body": str(number)} for number in range(count)])


def keep(spark: SparkSession, given: dict[str, str], entity: str, path: Path) -> str:
    """One run that takes the records that there are; why it failed, or nothing."""
    definition = definition_of(path, entity=entity, once=True)

    def run() -> None:
        start_lifecycle(spark, definition, given, is_once=True).awaitTermination()

    try:
        patiently(run)
    except (PySparkException, ShardbusError) as error:
        return error_text(error)
    return ""


def kept(spark: SparkSession, path: Path) -> int:
    """How many messages were enqueued, according to the table; each record is there once."""
    rows = read_captured(spark, str(path / RECORDS))
    assert rows.select("fragment", "block", "row").distinct().count() == rows.count()
    return rows.where("event = 'enqueue'").count()


def definition_of(path: Path, **members: object) -> Definition:
    usual = {"kind": "lifecycle", "name": "k", "entity": "orders", "path": str(path)}
    return read_definition({**usual, **members})


def place(path: Path, rows: pa.Table, *, form: str = "") -> None:
    """A table where the records of a pipeline would be; with a form it is one of ours, with its
    checkpoint.
    """
    records = path / RECORDS
    now = datetime.now(UTC)
    hour = records / "entity=orders" / f"date={now:%Y-%m-%d}" / f"hour={now:%H}"
    hour.mkdir(parents=True)
    parquet.write_table(rows, hour / "a.parquet")
    if form:
        offsets = records / CHECKPOINT / "offsets"
        offsets.mkdir(parents=True)
        (offsets / "0").write_text("{}", "utf-8")
        with Directory(records).turn():
            write_state(Directory(records), State(form, "query", 0))


def everything_in(path: Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


@pytest.mark.parametrize("form", ["", PARQUET])
def test_a_table_of_another_shape_is_refused_and_left_as_it_is(tmp_path: Path, form: str) -> None:
    """P8: one of another writer, or a capture with its checkpoint, which was deleted."""
    place(tmp_path, pa.table({"body": [b"a"], "enqueued_time": [datetime.now(UTC)]}), form=form)
    before = everything_in(tmp_path)

    with pytest.raises(OptionError, match="records"):
        checked_root(definition_of(tmp_path))

    assert everything_in(tmp_path) == before


def test_a_delta_table_of_another_writer_is_refused(tmp_path: Path) -> None:
    """P8"""
    write_deltalake(tmp_path / RECORDS, pa.table({"event": ["enqueue"]}))
    before = everything_in(tmp_path)

    with pytest.raises(OptionError, match="writer"):
        checked_root(definition_of(tmp_path, format=DELTA))

    assert everything_in(tmp_path) == before


def test_a_table_in_the_other_form_is_refused(bus: Bus, client: Client, tmp_path: Path) -> None:
    """P8: with the form that it has, the pipeline continues."""
    place(tmp_path, client.read("guarded", table="lifecycle"), form=PARQUET)

    with pytest.raises(OptionError, match="parquet, not"):
        checked_root(definition_of(tmp_path, format=DELTA))

    assert checked_root(definition_of(tmp_path)) == str(tmp_path)


def test_figures_that_cannot_be_written_are_told_and_written_later(
    bus: Bus, client: Client, tmp_path: Path
) -> None:
    """P8: the records are kept meanwhile."""
    send(bus, "blocked")
    rows = client.read("blocked", table="lifecycle")
    place(tmp_path, rows, form=PARQUET)
    (tmp_path / HOURS).touch()
    told: list[Event] = []

    with figuring(str(tmp_path), told.append):
        pass
    assert {event["event"] for event in told} == {"figures"}
    assert all(HOURS in str(event["error"]) for event in told)

    (tmp_path / HOURS).unlink()
    with figuring(str(tmp_path), told.append):
        pass
    assert "error" not in told[-1]
    whole = [row for row in parquet.read_table(tmp_path / HOURS).to_pylist() if row["records"]]
    assert [row["enqueued"] for row in whole if row["fragment"] is None] == [FIVE]


@pytest.mark.release
@pytest.mark.timeout(900)
def test_a_pipeline_without_the_right_says_so_and_continues_when_it_has_it(
    spark: SparkSession, bus: Bus, tmp_path: Path
) -> None:
    """P8: nothing is lost meanwhile."""
    send(bus, "guarded")
    assert keep(spark, access(bus), "guarded", tmp_path) == ""
    first = kept(spark, tmp_path)
    send(bus, "guarded")

    assert "Listen" in keep(spark, access(bus, "Send"), "guarded", tmp_path)
    assert "'nowhere' does not exist" in keep(spark, access(bus), "nowhere", tmp_path / "other")
    assert kept(spark, tmp_path) == first

    assert keep(spark, access(bus), "guarded", tmp_path) == ""
    assert kept(spark, tmp_path) == first + FIVE


@pytest.mark.release
@pytest.mark.timeout(900)
def test_a_queue_that_is_deleted_midway_leaves_its_records_and_a_new_one_needs_another_path(
    spark: SparkSession, bus: Bus, tmp_path: Path
) -> None:
    """P8: the new queue counts its records from the beginning."""
    path, other = tmp_path / "first", tmp_path / "second"
    send(bus, "doomed")
    assert keep(spark, access(bus), "doomed", path) == ""
    bus.run("queue", "delete", "doomed", "--yes")

    assert "'doomed' does not exist" in keep(spark, access(bus), "doomed", path)

    bus.run("queue", "create", "doomed", "--lifecycle")
    send(bus, "doomed")
    assert "checkpoint" in keep(spark, access(bus), "doomed", path)
    assert kept(spark, path) == FIVE
    assert keep(spark, access(bus), "doomed", other) == ""
    assert kept(spark, other) == FIVE
