"""Capture: an entity, or its dead letters, to a table by entity, date and hour (P4).

Exactly once: a batch is a fixed range of claims, the table takes each batch of a query once, and
messages leave the bus only afterwards. `shardbus_spark.tables` defines the table: Parquet files
that anybody can read, or Delta. Where files cannot be renamed, as in object stores, and in
directories begun by an earlier version, Spark's own file sink is used.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as column
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from shardbus_spark.errors import OptionError
from shardbus_spark.options import BROWSE, CONSUME
from shardbus_spark.pipelines.compacting import compacting
from shardbus_spark.pipelines.definition import Definition
from shardbus_spark.pipelines.driver import Run
from shardbus_spark.pipelines.events import Teller, say
from shardbus_spark.tables.delta import need_delta
from shardbus_spark.tables.form import (
    DELTA,
    DELTA_LOG,
    PARQUET,
    SINK_LOG,
    SPARK,
    captured_form,
    local_directory,
)
from shardbus_spark.tables.layout import CHECKPOINT, PARTITIONS
from shardbus_spark.tables.sink import TableSink

BATCH_END_S: Final = 15.0
LAST_WORD_S: Final = 5.0
_LOOK_S: Final = 1
_POLL_S: Final = 0.2


def run(run: Run) -> bool:
    """Whether everything is captured; false when it was told to stop before."""
    definition, stopping = run.definition, run.stopping
    check_path(definition)
    # Java takes long to start, and a capture that has never begun has no claims.
    stopping.ends_at_once = not _has_begun(definition)
    say({"event": "starting"})
    spark = run.session()
    stopping.ends_at_once = False
    teller = Teller()
    spark.streams.addListener(teller)
    try:
        if not stopping.told.is_set():
            with compacting(definition, say):
                query = start_capture(spark, definition, run.access)
                say({"event": "running"})
                _follow(query, stopping.told)
        is_told = stopping.told.is_set()
        if is_told:
            say({"event": "stopping"})
            last = finish_capture(spark, definition, run.access)
            if last is not None:
                last.awaitTermination()
        if definition.flag("once") or not definition.flag("keep"):
            teller.wait_ended(LAST_WORD_S)
    finally:
        spark.stop()
    return not is_told


def start_capture(
    spark: SparkSession, definition: Definition, access: Mapping[str, str]
) -> StreamingQuery:
    """The query that captures; `access` has the source's options for address and credential."""
    return _started(spark, definition, _source_options(definition, access), definition.flag("once"))


def finish_capture(
    spark: SparkSession, definition: Definition, access: Mapping[str, str]
) -> StreamingQuery | None:
    """The query that finishes what a stopped one has begun, so that no message stays claimed.

    None when there is nothing to finish: a capture that browses claims nothing.
    """
    if definition.flag("keep"):
        return None
    options = {**_source_options(definition, access), "finishOnly": "true"}
    return _started(spark, definition, options, True)


def check_path(definition: Definition) -> None:
    """OptionError for an unusable location, as far as this machine can see it."""
    directory = local_directory(definition.path)
    if definition.text("format") == DELTA:
        need_delta()
        if directory is None:
            raise OptionError(
                f"path is {definition.path}; format delta needs a directory that all nodes share"
            )
    if directory is None:
        return
    if not definition.spark_master:
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OptionError(f"path {directory} cannot be written to: {error.strerror}") from error
    _check_table(directory, definition)


def _check_table(directory: Path, definition: Definition) -> None:
    form = captured_form(definition.path)
    if form is None and (directory / DELTA_LOG).exists():
        raise OptionError(f"path {directory} is a Delta table that was not made by a capture")
    if form is None or (form == SPARK and not _has_files(directory / SINK_LOG)):
        return
    wanted = definition.text("format")
    if form != wanted and (form, wanted) != (SPARK, PARQUET):
        raise OptionError(
            f"path {directory} was captured as {form}, not {wanted}: choose another path"
        )
    # A table skips batch numbers that it has: with a new checkpoint these begin again, and their
    # messages would be removed from the bus and written nowhere.
    if not _has_files(directory / CHECKPOINT / "offsets"):
        raise OptionError(
            f"path {directory} has captured data without its {CHECKPOINT}: continuing there "
            "would lose messages. Restore the checkpoint, or choose another path"
        )


def reader_of(definition: Definition) -> str:
    """The reader under which messages are claimed."""
    return f"pipeline-{definition.name}"


def _has_begun(definition: Definition) -> bool:
    """Whether a batch may be under way, as far as this machine can see."""
    directory = local_directory(definition.path)
    return directory is None or any((directory / CHECKPOINT / "offsets").glob("[0-9]*"))


def _follow(query: StreamingQuery, stopping: threading.Event) -> None:
    """Wait until the query has ended, or stop it after its batch when told to."""
    while not query.awaitTermination(_LOOK_S):
        if stopping.is_set():
            deadline_s = time.monotonic() + BATCH_END_S
            while query.status["isTriggerActive"] and time.monotonic() < deadline_s:
                time.sleep(_POLL_S)
            query.stop()
            return


def _has_files(directory: Path) -> bool:
    return directory.is_dir() and any(file.name.isdigit() for file in directory.iterdir())


def _source_options(definition: Definition, access: Mapping[str, str]) -> dict[str, str]:
    mode = BROWSE if definition.flag("keep") else CONSUME
    # So that a replay sends the whole message, and not only what the columns show.
    options = {**access, "mode": mode, "includeAmqp": "true"}
    if not definition.flag("keep"):
        options["readerName"] = reader_of(definition)
    if definition.number("rows_max"):
        options["maxRowsPerTrigger"] = str(definition.number("rows_max"))
    return options


def _started(
    spark: SparkSession, definition: Definition, options: Mapping[str, str], is_once: bool
) -> StreamingQuery:
    stream = spark.readStream.format("shardbus").options(**options).load(definition.entity)
    directory = local_directory(definition.path)
    if directory is None or captured_form(definition.path) == SPARK:
        writer = _to_files(stream, definition)
    else:
        spark.dataSource.register(TableSink)
        writer = _to_table(stream, definition, directory.absolute())
    writer = writer.queryName(definition.name)
    if is_once:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{definition.number('interval_ms')} milliseconds").start()


def _to_table(stream: DataFrame, definition: Definition, directory: Path) -> DataStreamWriter:
    return (
        stream.writeStream.format(TableSink.name())
        .option("path", str(directory))
        .option("entity", definition.entity)
        .option("form", definition.text("format"))
        .option("checkpointLocation", str(directory / CHECKPOINT))
    )


def _to_files(stream: DataFrame, definition: Definition) -> DataStreamWriter:
    """With the columns that become directories; the session is in UTC."""
    placed = (
        stream.withColumn("entity", column.lit(definition.entity))
        .withColumn("date", column.date_format("enqueued_time", "yyyy-MM-dd"))
        .withColumn("hour", column.date_format("enqueued_time", "HH"))
    )
    return (
        placed.writeStream.format("parquet")
        .partitionBy(*PARTITIONS)
        .option("path", definition.path)
        .option("checkpointLocation", f"{definition.path.rstrip('/')}/{CHECKPOINT}")
    )
