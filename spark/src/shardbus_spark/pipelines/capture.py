"""Capture: an entity, or its dead letters, to Parquet files by entity, date and hour (P4).

Exactly once: a batch is a fixed range of claims, Spark's file sink lists its files under the
number of the batch, and messages leave the bus only when that list is written. Read what was
captured with Spark: `spark.read.parquet(path)` goes by the list, and passes over files of a batch
that was cut short.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as column
from pyspark.sql.streaming.query import StreamingQuery

from shardbus_spark.errors import OptionError
from shardbus_spark.options import BROWSE, CONSUME
from shardbus_spark.pipelines.definition import Capture

CHECKPOINT: Final = "_checkpoint"
PARTITIONS: Final = ("entity", "date", "hour")

_SINK_LOG: Final = "_spark_metadata"


def start_capture(
    spark: SparkSession, definition: Capture, access: Mapping[str, str]
) -> StreamingQuery:
    """The query that captures; `access` are the source's options that say where and with what."""
    return _started(spark, definition, _source_options(definition, access), definition.is_once)


def finish_capture(
    spark: SparkSession, definition: Capture, access: Mapping[str, str]
) -> StreamingQuery | None:
    """The query that ends what a stopped one has begun, so that no message stays set aside.

    None when there is nothing to end: who only browses sets nothing aside.
    """
    if definition.is_keeping:
        return None
    options = {**_source_options(definition, access), "finishOnly": "true"}
    return _started(spark, definition, options, True)


def check_path(definition: Capture) -> None:
    """OptionError for a directory of this machine that cannot be captured to."""
    directory = _local(definition.path)
    if directory is None or definition.spark_master:
        return
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OptionError(f"path {directory} cannot be written to: {error.strerror}") from error
    # The file sink passes over numbers of batches that its log has: with a new checkpoint these
    # begin again, and what they hold would be removed from the bus and written nowhere.
    if _has_files(directory / _SINK_LOG) and not _has_files(directory / CHECKPOINT / "offsets"):
        raise OptionError(
            f"path {directory} holds captured data without its {CHECKPOINT}: going on there would "
            "lose messages. Put the checkpoint back, or choose another path"
        )


def _has_files(directory: Path) -> bool:
    return directory.is_dir() and any(file.name.isdigit() for file in directory.iterdir())


def _local(path: str) -> Path | None:
    parts = urlsplit(path)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    return None if parts.scheme else Path(path)


def _source_options(definition: Capture, access: Mapping[str, str]) -> dict[str, str]:
    options = {**access, "mode": BROWSE if definition.is_keeping else CONSUME}
    if not definition.is_keeping:
        options["readerName"] = definition.reader
    if definition.rows_max:
        options["maxRowsPerTrigger"] = str(definition.rows_max)
    return options


def _started(
    spark: SparkSession, definition: Capture, options: Mapping[str, str], is_once: bool
) -> StreamingQuery:
    stream = spark.readStream.format("shardbus").options(**options).load(definition.entity)
    writer = (
        _placed(stream, definition.entity)
        .writeStream.format("parquet")
        .queryName(definition.name)
        .partitionBy(*PARTITIONS)
        .option("path", definition.path)
        .option("checkpointLocation", f"{definition.path.rstrip('/')}/{CHECKPOINT}")
    )
    if is_once:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{definition.interval_ms} milliseconds").start()


def _placed(stream: DataFrame, entity: str) -> DataFrame:
    """With the columns that become directories; the session is in UTC."""
    return (
        stream.withColumn("entity", column.lit(entity))
        .withColumn("date", column.date_format("enqueued_time", "yyyy-MM-dd"))
        .withColumn("hour", column.date_format("enqueued_time", "HH"))
    )
