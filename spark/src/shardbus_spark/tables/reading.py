"""Captured data as a DataFrame."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.parquet as parquet
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DateType, IntegerType, StringType, StructField, StructType

from shardbus_spark.errors import OptionError, Unavailable
from shardbus_spark.schema import COLUMNS, EXTRA_COLUMNS, message_schema
from shardbus_spark.tables.bare import STAGED
from shardbus_spark.tables.delta import is_delta, need_delta, open_delta
from shardbus_spark.tables.files import Files, files_at
from shardbus_spark.tables.form import DELTA, ICEBERG, SPARK, form_of, read_state
from shardbus_spark.tables.iceberg import iceberg_paths
from shardbus_spark.tables.layout import hour_of

ATTEMPTS_MAX: Final = 5
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
    files = files_at(path)
    form = None if files is None else form_of(files)
    reader = spark.read.schema(captured_schema())
    if files is None or form == SPARK:
        # By the list of Spark's own sink.
        return reader.parquet(path)
    if form is None:
        raise OptionError(
            f"path {path}: nothing was captured there, as far as this machine can see"
        )
    paths = captured_files(files, form)
    if not paths:
        return spark.createDataFrame([], captured_schema())
    if not has_messages(files, paths[0]):
        reader = spark.read
    return reader.option("basePath", files.location).parquet(*paths)


def has_messages(files: Files, path: str) -> bool:
    """Whether its rows are messages; the table of a transform has other columns, in all files."""
    names = set(schema_of(files, path).names)
    return set(COLUMNS) <= names <= {*COLUMNS, *EXTRA_COLUMNS}


def schema_of(files: Files, path: str) -> pa.Schema:
    """The schema of one file."""
    return parquet.read_schema(files.open(files.named(path)))


def captured_files(files: Files, form: str) -> list[str]:
    """The paths of the files that have the rows of a table at this moment, in whole batches."""
    if form == DELTA:
        need_delta()
        return open_delta(files).file_uris() if is_delta(files) else []
    if form == ICEBERG:
        return iceberg_paths(files)
    with files.turn(is_shared=True):
        return [f"{files.location}/{name}" for name in _whole_batches(files)]


def _whole_batches(files: Files) -> list[str]:
    """Where nobody can be kept from writing, a batch whose files are still being moved is left
    out, and the list is made again if another batch came meanwhile.
    """
    for _attempt in range(ATTEMPTS_MAX):
        state = read_state(files)
        there = dict.fromkeys(file.name for file in files.names(""))
        if state == read_state(files):
            break
    else:
        raise Unavailable(f"{files.location} keeps changing while it is listed: try again")
    moves = () if state is None else state.moves
    is_whole = all(target in there or f"{STAGED}/{source}" not in there for source, target in moves)
    last = () if is_whole else {target for _source, target in moves}
    return [name for name in there if hour_of(name) is not None and name not in last]
