"""Captured data as a DataFrame."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pyarrow.parquet as parquet
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DateType, IntegerType, StringType, StructField, StructType

from shardbus_spark.errors import OptionError
from shardbus_spark.schema import COLUMNS, EXTRA_COLUMNS, message_schema
from shardbus_spark.tables.delta import is_delta, need_delta, open_delta
from shardbus_spark.tables.form import (
    DELTA,
    SPARK,
    captured_form,
    local_directory,
    table_turn,
)
from shardbus_spark.tables.layout import files_in, hours_in

_PARTITION_FIELDS: Final = (
    StructField("entity", StringType()),
    StructField("date", DateType()),
    StructField("hour", IntegerType()),
)


def captured_schema() -> StructType:
    """The columns of messages, then entity, date and hour. Rows that were captured before there was
    a column amqp have null in it.
    """
    return StructType([*message_schema(includes_amqp=True).fields, *_PARTITION_FIELDS])


def read_captured(spark: SparkSession, path: str) -> DataFrame:
    """Each captured row once, as the table is now; OptionError when nothing was captured there.

    The list of files is made at this moment: later rows are not in it. Compaction of bare Parquet
    may remove a file before it is read, which fails the job: run it again. Delta keeps replaced
    files for a week.
    """
    root, form = local_directory(path), captured_form(path)
    reader = spark.read.schema(captured_schema())
    if root is None or form == SPARK:
        # By the list of Spark's own sink.
        return reader.parquet(path)
    if form is None:
        raise OptionError(
            f"path {root}: nothing was captured there, as far as this machine can see"
        )
    files = captured_files(root, form)
    if not files:
        return spark.createDataFrame([], captured_schema())
    if not _has_messages(files[0]):
        reader = spark.read
    return reader.option("basePath", str(root)).parquet(*files)


def _has_messages(file: str) -> bool:
    """Whether its rows are messages; the table of a transform has other columns, in all files."""
    names = set(parquet.read_schema(file).names)
    return set(COLUMNS) <= names <= {*COLUMNS, *EXTRA_COLUMNS}


def captured_files(root: Path, form: str) -> list[str]:
    """The files that have the rows of a table at this moment, in whole batches."""
    if form == DELTA:
        need_delta()
        return open_delta(root).file_uris() if is_delta(root) else []
    with table_turn(root, is_shared=True):
        return [str(file) for _hour, directory in hours_in(root) for file in files_in(directory)]
