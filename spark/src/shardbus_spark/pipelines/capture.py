"""Capture: an entity, or its dead letters, to a table by entity, date and hour (P4).

Exactly once: a batch is a fixed range of claims, the table takes each batch of a query once, and
messages leave the bus only afterwards. `shardbus_spark.tables` defines the table: Parquet files
that anybody can read, or Delta. Where files cannot be renamed, as in object stores, and in
directories begun by an earlier version, Spark's own file sink is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as column
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from shardbus_spark.errors import OptionError
from shardbus_spark.pipelines.compacting import compacting
from shardbus_spark.pipelines.definition import Definition
from shardbus_spark.pipelines.driver import Run
from shardbus_spark.pipelines.events import say
from shardbus_spark.pipelines.streaming import run_stream, source, started
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


def run(run: Run) -> bool:
    """Whether everything was captured; false if it was stopped earlier."""
    definition = run.definition
    check_path(definition)
    return run_stream(
        run,
        lambda spark, options, is_once: start_capture(spark, definition, options, is_once),
        has_begun=_has_begun(definition),
        beside=compacting(definition, say),
    )


def start_capture(
    spark: SparkSession, definition: Definition, options: Mapping[str, str], is_once: bool
) -> StreamingQuery:
    """The query that captures; `options` are those of the source."""
    stream = source(spark, definition, options)
    directory = local_directory(definition.path)
    if directory is None or captured_form(definition.path) == SPARK:
        return started(_to_files(stream, definition), definition, is_once)
    spark.dataSource.register(TableSink)
    return started(_to_table(stream, definition, directory.absolute()), definition, is_once)


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


def _has_begun(definition: Definition) -> bool:
    """Whether a batch may be under way, as far as this machine can see."""
    directory = local_directory(definition.path)
    return directory is None or any((directory / CHECKPOINT / "offsets").glob("[0-9]*"))


def _has_files(directory: Path) -> bool:
    return directory.is_dir() and any(file.name.isdigit() for file in directory.iterdir())


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
