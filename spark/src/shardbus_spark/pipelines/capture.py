"""Capture: an entity, or its dead letters, to a table by entity, date and hour (P4).

Exactly once: a batch is a fixed range of claims, the table takes each batch of a query once, and
messages leave the bus only afterwards. `shardbus_spark.tables` defines the table: Parquet files
that anybody can read, Delta or Iceberg, in a directory or in an object store. Where only Spark can
write, and in what an earlier version has begun, Spark's own file sink is used.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as column
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from shardbus_spark.errors import OptionError
from shardbus_spark.pipelines.compacting import compacting
from shardbus_spark.pipelines.definition import Definition
from shardbus_spark.pipelines.driver import Run
from shardbus_spark.pipelines.events import say
from shardbus_spark.pipelines.selection import check_where
from shardbus_spark.pipelines.streaming import run_stream, source, started
from shardbus_spark.pipelines.targets import check_writable, has_numbers, table_path
from shardbus_spark.tables.files import OBJECT_SCHEMES, Files, check_tried, files_at
from shardbus_spark.tables.form import DELTA_LOG, ICEBERG_LOG, PARQUET, SINK_LOG, SPARK, form_of
from shardbus_spark.tables.layout import CHECKPOINT, PARTITIONS
from shardbus_spark.tables.sink import TableSink, need_form


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


def check(definition: Definition) -> None:
    """OptionError for a condition that cannot be used."""
    check_where(definition)


def start_capture(
    spark: SparkSession, definition: Definition, options: Mapping[str, str], is_once: bool
) -> StreamingQuery:
    """The query that captures; `options` are those of the source."""
    stream = source(spark, definition, options)
    files = files_at(definition.path)
    if files is None or form_of(files) == SPARK:
        return started(_to_files(stream, definition), definition, is_once)
    spark.dataSource.register(TableSink)
    return started(_to_table(stream, definition, table_path(definition)), definition, is_once)


def check_path(definition: Definition) -> None:
    """OptionError for an unusable location, as far as this machine can see it."""
    form = definition.text("format")
    need_form(form)
    check_tried(definition.path)
    files = files_at(definition.path)
    if files is None and form != PARQUET:
        raise OptionError(
            f"path is {definition.path}; format {form} needs a directory that all nodes share, or "
            f"an object store ({', '.join(OBJECT_SCHEMES)})"
        )
    if files is None:
        return
    check_writable(files, definition)
    _check_table(files, definition)


def _check_table(files: Files, definition: Definition) -> None:
    form = form_of(files)
    if form is None:
        for log, whose in ((DELTA_LOG, "a Delta"), (ICEBERG_LOG, "an Iceberg")):
            if files.has_directory(log):
                raise OptionError(
                    f"path {files.location} is {whose} table that was not made by a capture"
                )
        return
    if form == SPARK and not has_numbers(files, SINK_LOG):
        return
    wanted = definition.text("format")
    if form != wanted and (form, wanted) != (SPARK, PARQUET):
        raise OptionError(
            f"path {files.location} was captured as {form}, not {wanted}: choose another path"
        )
    # A table skips batch numbers that it has: with a new checkpoint these begin again, and their
    # messages would be removed from the bus and written nowhere.
    if not has_numbers(files, f"{CHECKPOINT}/offsets"):
        raise OptionError(
            f"path {files.location} has captured data without its {CHECKPOINT}: continuing there "
            "would lose messages. Restore the checkpoint, or choose another path"
        )


def _has_begun(definition: Definition) -> bool:
    """Whether a batch may be under way, as far as this machine can see."""
    files = files_at(definition.path)
    return files is None or has_numbers(files, f"{CHECKPOINT}/offsets")


def _to_table(stream: DataFrame, definition: Definition, path: str) -> DataStreamWriter:
    return (
        stream.writeStream.format(TableSink.name())
        .option("path", path)
        .option("entity", definition.entity)
        .option("form", definition.text("format"))
        .option("checkpointLocation", f"{path}/{CHECKPOINT}")
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
