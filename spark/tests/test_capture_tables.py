"""Captured tables written and read by real Spark: batches that are run again, both forms (P4)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from pyspark.sql import SparkSession
from spark.tests.captured_rows import ENTITY, LATER_MS, SCHEMA, rows_of, seen

from shardbus_spark.errors import OptionError
from shardbus_spark.pipelines.compacting import Compactor
from shardbus_spark.schema import message_schema
from shardbus_spark.tables import captured_form, read_captured
from shardbus_spark.tables.compaction import compact, compactable
from shardbus_spark.tables.form import DELTA, PARQUET
from shardbus_spark.tables.layout import CHECKPOINT, HOUR_MS
from shardbus_spark.tables.sink import TableSink

ROWS: Final = 40
BATCHES: Final = 8


@pytest.fixture(scope="module")
def spark(spark: SparkSession) -> SparkSession:
    spark.dataSource.register(TableSink)
    return spark


def _put(source: Path, batch: int, step_ms: int = HOUR_MS // ROWS) -> None:
    """What the next batch is to have: all rows of an hour, or of so many milliseconds each."""
    source.mkdir(exist_ok=True)
    numbers = range(batch * ROWS, (batch + 1) * ROWS)
    rows = pa.Table.from_batches([rows_of(numbers, step_ms)]).cast(SCHEMA)
    parquet.write_table(rows, source / f"{batch}.parquet")


def _run(spark: SparkSession, source: Path, table: Path, form: str, tasks: int) -> None:
    (
        spark.readStream.schema(message_schema())
        .option("maxFilesPerTrigger", 1)
        .parquet(str(source))
        .repartition(tasks)
        .writeStream.format(TableSink.name())
        .queryName(f"capture-{form}")
        .option("path", str(table))
        .option("entity", ENTITY)
        .option("form", form)
        .option("checkpointLocation", str(table / CHECKPOINT))
        .trigger(availableNow=True)
        .start()
        .awaitTermination()
    )


@pytest.mark.timeout(600)
@pytest.mark.parametrize("form", [pytest.param(PARQUET, marks=pytest.mark.long), DELTA])
def test_a_batch_that_spark_runs_again_with_other_tasks_is_in_the_table_once(
    spark: SparkSession, tmp_path: Path, form: str
) -> None:
    """P4: as after a kill between the table's commit and Spark's; then it goes on, compacted."""
    source, table = tmp_path / "source", tmp_path / "table"
    _put(source, 0)
    _put(source, 1)
    _run(spark, source, table, form, 1)

    for file in (".1.crc", "1"):
        (table / CHECKPOINT / "commits" / file).unlink()
    _put(source, 2)
    _run(spark, source, table, form, 3)

    assert captured_form(str(table)) == form
    assert seen(table, form) == Counter(range(3 * ROWS))
    captured = read_captured(spark, str(table))
    assert captured.where(f"entity = '{ENTITY}' and date = '2026-01-31'").count() == 3 * ROWS
    assert captured.where("hour = 8").select("sequence_number").distinct().count() == ROWS
    assert captured.where("properties['n'] = '7'").count() == 1

    hours = compactable(str(table))
    assert hours is not None
    done = compact(hours, LATER_MS, lambda: False)

    # The hour of the batch that one task has written has one file, the last one has three.
    assert (done.files_before, done.files_after) == (3, 1)
    again = read_captured(spark, str(table))
    assert {row.hour: row["count"] for row in again.groupBy("hour").count().collect()} == {
        7: ROWS,
        8: ROWS,
        9: ROWS,
    }


@pytest.mark.timeout(600)
@pytest.mark.parametrize("form", [PARQUET, DELTA])
def test_hours_are_compacted_while_batches_are_added_to_them(
    spark: SparkSession, tmp_path: Path, form: str
) -> None:
    """P4: as beside a capture that runs, but for a clock that says that every hour is over."""
    source, table = tmp_path / "source", tmp_path / "table"
    for batch in range(BATCHES):
        _put(source, batch, HOUR_MS // (BATCHES * ROWS))
    said: list[Mapping[str, object]] = []
    compactor = Compactor(str(table), said.append)

    def compact_again_and_again() -> None:
        while not compactor.told.is_set():
            compactor.look(LATER_MS)

    with ThreadPoolExecutor(1) as pool:
        compacted = pool.submit(compact_again_and_again)
        try:
            _run(spark, source, table, form, 2)
        finally:
            compactor.told.set()
        compacted.result()

    assert len(said) > 1, "nothing was compacted while batches came"
    assert all("files_after" in event for event in said), said
    assert seen(table, form) == Counter(range(BATCHES * ROWS))
    assert read_captured(spark, str(table)).count() == BATCHES * ROWS


def test_a_directory_in_which_nothing_was_captured_is_told(
    spark: SparkSession, tmp_path: Path
) -> None:
    with pytest.raises(OptionError, match="nothing was captured"):
        read_captured(spark, str(tmp_path))
