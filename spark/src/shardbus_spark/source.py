"""format("shardbus"), as Spark finds it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
)
from pyspark.sql.types import DataType, StructField, StructType

from shardbus_spark.errors import OptionError
from shardbus_spark.options import CONSUME, SourceOptions, options_of_table, read_options
from shardbus_spark.schema import (
    asked_columns,
    check_written,
    message_schema,
    origin_of,
    record_schema,
    with_origin,
)
from shardbus_spark.sink_options import KNOWN as KNOWN_OF_SINKS
from shardbus_spark.sink_options import SinkOptions, read_sink_options
from shardbus_spark.staging import new_job
from shardbus_spark.versions import STREAMS_READ, STREAMS_WRITTEN, check_pyspark

if TYPE_CHECKING:
    # Missing in some versions of PySpark that can read and write batches.
    from pyspark.sql.datasource import DataSourceStreamArrowWriter


class ShardbusSource(DataSource):
    """Entities of a Shardbus namespace as tables and streams."""

    # Spark pickles a source twice: for another process of the driver, which needs all options to
    # make a reader, and then for tasks, which need none.
    _is_planned = False

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        # Made once for each query and pickled with the source: what its writers share.
        self._use = new_job()

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, **({"options": {}} if self._is_planned else {})}

    @classmethod
    def name(cls) -> str:
        return "shardbus"

    def schema(self) -> StructType:
        checked = self._checked()
        schema = schema_of(checked)
        options = options_of_table(self.options)
        return with_origin(schema, options) if options else schema

    def reader(self, schema: StructType) -> DataSourceReader:
        from shardbus_spark.batch import BatchReader

        self._is_planned = True
        options = self._checked(schema)
        return BatchReader(options, columns_of(schema, options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        check_pyspark(
            "reading a stream", STREAMS_READ, "read batches with spark.read, or capture to a table"
        )
        options = self._checked(schema)
        columns = columns_of(schema, options)
        self._is_planned = True
        if options.mode == CONSUME:
            from shardbus_spark.consuming import ConsumeStream

            return ConsumeStream(options, columns)
        from shardbus_spark.browsing import BrowseStream

        return BrowseStream(options, columns)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        from shardbus_spark.batch_sink import BatchWriter

        if overwrite:
            raise OptionError(
                "mode('overwrite') would delete messages of other senders: use mode('append')"
            )
        return BatchWriter(self._sink(schema).for_tasks())

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        check_pyspark(
            "writing a stream", STREAMS_WRITTEN, "write with foreachBatch and a transactionId"
        )
        from shardbus_spark.stream_sink import StreamWriter

        if overwrite:
            raise OptionError("outputMode('complete') is not supported: use 'append'")
        return StreamWriter(self._sink(schema).for_tasks(), self._use)

    def _sink(self, schema: StructType) -> SinkOptions:
        check_written(schema)
        known = {name.lower() for name in KNOWN_OF_SINKS}
        origin = {name: value for name, value in origin_of(schema).items() if name in known}
        return read_sink_options({**origin, **self.options})

    def _checked(self, schema: StructType | None = None) -> SourceOptions:
        origin = {} if schema is None else origin_of(schema)
        return read_options({**origin, **self.options})


def schema_of(options: SourceOptions) -> StructType:
    """The columns that a read with these options has."""
    if options.is_of_records:
        return record_schema()
    schema = message_schema(
        includes_json=options.includes_json,
        includes_amqp=options.includes_amqp,
        includes_state=options.includes_state,
    )
    more = [StructField(name, kind, True) for name, kind in _of_bodies(options).items()]
    return StructType([*schema.fields, *more])


def columns_of(schema: StructType, options: SourceOptions) -> list[str]:
    """The names in a given schema; OptionError for a column that such a read does not have."""
    return asked_columns(schema, is_of_records=options.is_of_records, more=_of_bodies(options))


def _of_bodies(options: SourceOptions) -> dict[str, DataType]:
    if not options.body_schema:
        return {}
    # Late: it loads Arrow, which most drivers need only in tasks.
    from shardbus_spark.bodies import JSON, body_schema

    return {JSON: body_schema(options.body_schema)}
