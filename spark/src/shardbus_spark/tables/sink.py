"""`writeStream.format("shardbus_table")`: a stream to a table, each batch once (P4).

Tasks write Parquet files with Arrow, and the driver's commit makes them part of the table under the
id of the query and the number of the batch; rows never pass through the driver.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from shardbus_spark.errors import OptionError, ShardbusError
from shardbus_spark.options import Values
from shardbus_spark.tables.bare import BareTable
from shardbus_spark.tables.delta import DeltaForm, need_delta
from shardbus_spark.tables.files import Directory, Files, files_at
from shardbus_spark.tables.form import (
    DELTA,
    FORMS,
    ICEBERG,
    PARQUET,
    Form,
    check_form,
    read_state,
)
from shardbus_spark.tables.iceberg import IcebergForm, iceberg_rows, need_iceberg
from shardbus_spark.tables.writing import TIME, WrittenFile, arrow_schema, write_hours

NAME: Final = "shardbus_table"
OPTIONS: Final[dict[str, str]] = {
    "path": "directory of the table, the same on every node, or the URL of one in an object store",
    "entity": "name of the source entity in the table's directories",
    "form": "parquet, delta or iceberg",
    "timeColumn": "column whose hour selects the directory; enqueued_time by default",
}


@dataclass
class Written(WriterCommitMessage):
    """What one task attempt has written."""

    query: str
    files: list[WrittenFile]


class TableSink(DataSource):
    """Captured tables, written by streams; `tables.read_captured` reads them."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        values = Values(self.options, OPTIONS)
        path, form = values.text("path"), values.choice("form", FORMS, PARQUET)
        files = files_at(path) if path else None
        if files is None or (isinstance(files, Directory) and not files.root.is_absolute()):
            raise OptionError(
                f"path is {path!r}; it must be an absolute directory, or a URL of an object store "
                "as s3a://bucket/orders"
            )
        if overwrite:
            raise OptionError("outputMode('complete') is not supported: use 'append'")
        check_form(files, read_state(files), form)
        time = values.text("timeColumn") or TIME
        rows = rows_of_form(form, arrow_schema(schema, time))
        table = table_of(files, form, rows, time)
        return TableWriter(table, rows, values.text("entity"), time)


def rows_of_form(form: str, rows: pa.Schema) -> pa.Schema:
    """The schema of the files of a form."""
    return iceberg_rows(rows) if form == ICEBERG else rows


def table_of(files: Files, form: str, rows: pa.Schema, time: str = TIME) -> Form:
    """A table of this form; OptionError when its library is missing."""
    need_form(form)
    if form == PARQUET:
        return BareTable(files)
    return DeltaForm(files, rows) if form == DELTA else IcebergForm(files, rows, time)


def need_form(form: str) -> None:
    """OptionError when a library is missing that the form needs."""
    if form == DELTA:
        need_delta()
    elif form == ICEBERG:
        need_iceberg()


class TableWriter(DataSourceStreamArrowWriter):
    """One batch of a stream."""

    def __init__(self, table: Form, schema: pa.Schema, entity: str, time: str = TIME) -> None:
        self._table = table
        self._schema = schema
        self._entity = entity
        self._time = time

    def write(  # type: ignore[override]  # Spark's own Arrow writers narrow it the same way
        self, iterator: Iterator[pa.RecordBatch]
    ) -> Written:
        context = TaskContext.get()
        query = None if context is None else context.getLocalProperty("sql.streaming.queryId")
        batch = None if context is None else context.getLocalProperty("streaming.sql.batchId")
        if not query or not batch:
            raise ShardbusError(
                "Spark does not report the batch: the write must be that of a stream"
            )
        number = int(batch)
        files = write_hours(
            iterator,
            self._schema,
            self._entity,
            lambda hour: self._table.place(number, hour),
            self._time,
        )
        return Written(query, files)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        written = [message for message in messages if isinstance(message, Written)]
        files = [file for message in written for file in message.files]
        if files:
            self._table.commit(written[0].query, batchId, files)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        written = [message for message in messages if isinstance(message, Written)]
        self._table.discard([file for message in written for file in message.files])
