"""format("shardbus"), as Spark finds it."""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
)
from pyspark.sql.types import StructType

from shardbus_spark.errors import OptionError
from shardbus_spark.options import CONSUME, SourceOptions, read_options
from shardbus_spark.schema import asked_columns, check_written, message_schema
from shardbus_spark.sink_options import SinkOptions, read_sink_options


class ShardbusSource(DataSource):
    """Entities of a Shardbus namespace as tables and streams."""

    @classmethod
    def name(cls) -> str:
        return "shardbus"

    def schema(self) -> StructType:
        options = self._checked()
        return message_schema(
            includes_json=options.includes_json, includes_amqp=options.includes_amqp
        )

    def reader(self, schema: StructType) -> DataSourceReader:
        from shardbus_spark.batch import BatchReader

        return BatchReader(self._checked(), asked_columns(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        options, columns = self._checked(), asked_columns(schema)
        if options.mode == CONSUME:
            from shardbus_spark.consuming import ConsumeStream

            return ConsumeStream(options, columns)
        from shardbus_spark.browsing import BrowseStream

        return BrowseStream(options, columns)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        from shardbus_spark.sink import BatchWriter

        if overwrite:
            raise OptionError("mode('overwrite') would delete what others sent: use mode('append')")
        return BatchWriter(self._sink(schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        from shardbus_spark.sink import StreamWriter

        if overwrite:
            raise OptionError("outputMode('complete') has no meaning here: use 'append'")
        return StreamWriter(self._sink(schema))

    def _sink(self, schema: StructType) -> SinkOptions:
        check_written(schema)
        return read_sink_options(self.options)

    def _checked(self) -> SourceOptions:
        return read_options(self.options)
