"""format("shardbus"), as Spark finds it."""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
)
from pyspark.sql.types import StructType

from shardbus_spark.options import CONSUME, SourceOptions, read_options
from shardbus_spark.schema import asked_columns, message_schema


class ShardbusSource(DataSource):
    """Entities of a Shardbus namespace as tables and streams."""

    @classmethod
    def name(cls) -> str:
        return "shardbus"

    def schema(self) -> StructType:
        return message_schema(includes_json=self._checked().includes_json)

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

    def _checked(self) -> SourceOptions:
        return read_options(self.options)
