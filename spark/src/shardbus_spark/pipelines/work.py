"""The working directory of a replay, which may be anywhere that Spark can write.

It has the selected rows (`rows`), the plan, a mark of the progress, and finally the result. Spark
reads and writes all of it, so that no other program needs access to the location. A text is one
file that appears as a whole: Spark renames it when it is complete.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, final

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from shardbus_spark.pipelines.plan import SLICE_BYTES_MAX, Slice
from shardbus_spark.schema import AMQP_COLUMN

ROW: Final = "_row"
SIZE: Final = "_size"
# Besides body and properties: ids, times, the encoding.
AROUND_BYTES: Final = 256
_NOTHING_THERE: Final = ("PATH_NOT_FOUND", "UNABLE_TO_INFER_SCHEMA")


@final
class Work:
    """A directory or URL."""

    def __init__(self, spark: SparkSession, place: str) -> None:
        self._spark = spark
        self._place = place.rstrip("/")
        self._schema: StructType | None = None

    def read_text(self, name: str) -> str | None:
        """None when it was never written."""
        try:
            found = self._spark.read.text(self._at(name), wholetext=True).collect()
        except AnalysisException as error:
            if error.getCondition() in _NOTHING_THERE:
                return None
            raise
        return str(found[0][0]).strip() if found else None

    def write_text(self, name: str, text: str) -> None:
        """Replace the text of a file. After a crash it may be missing, but it is never partial."""
        frame = self._spark.range(1).select(F.lit(text).alias("value"))
        frame.coalesce(1).write.mode("overwrite").text(self._at(name))

    def put_rows(self, rows: DataFrame, file_rows: int) -> None:
        """Sorted rows, in files of at most `file_rows`."""
        sized = rows.withColumn(SIZE, _size(rows))
        writer = sized.write.mode("overwrite").option("maxRecordsPerFile", file_rows)
        writer.parquet(self._at("rows"))

    def drop_rows(self) -> None:
        """Free the space; Spark can remove files only by overwriting them with nothing."""
        nothing = self._spark.range(0).select(F.lit("").alias("value"))
        nothing.write.mode("overwrite").text(self._at("rows"))

    def slices(self, slice_rows: int) -> Iterator[Slice]:
        """Runs of rows within the maximum length and, except for single rows, size."""
        stored = self._spark.read.parquet(self._at("rows"))
        places = stored.select(
            F.col("_metadata.file_name").alias("file"),
            F.col("_metadata.row_index").alias(ROW),
            SIZE,
        )
        before = Window.partitionBy("file").orderBy(ROW).rowsBetween(Window.unboundedPreceding, 0)
        runs = places.select(
            "file",
            ROW,
            F.floor(F.sum(SIZE).over(before) / SLICE_BYTES_MAX).alias("by_size"),
            F.floor(F.col(ROW) / slice_rows).alias("by_count"),
        )
        ends = runs.groupBy("file", "by_size", "by_count").agg(F.min(ROW), F.max(ROW))
        for found in ends.toLocalIterator():
            yield Slice(found[0], found[3], found[4] + 1)

    def count_without_session(self) -> int:
        stored = self._spark.read.parquet(self._at("rows"))
        if "session_id" not in stored.columns:
            return stored.count()
        return stored.where(F.col("session_id").isNull()).count()

    def rows_of(self, one: Slice) -> DataFrame:
        """The rows of a slice, with their index in the file as ROW."""
        if self._schema is None:
            self._schema = self._spark.read.parquet(self._at("rows")).schema
        stored = self._spark.read.schema(self._schema).parquet(f"{self._at('rows')}/{one.file}")
        placed = stored.drop(SIZE).withColumn(ROW, F.col("_metadata.row_index"))
        return placed.where((F.col(ROW) >= one.first) & (F.col(ROW) < one.end))

    def _at(self, name: str) -> str:
        return f"{self._place}/{name}"


def _size(rows: DataFrame) -> Column:
    """About how many bytes the message of a row has."""
    size = F.coalesce(F.octet_length("body"), F.lit(0)) + F.lit(AROUND_BYTES)
    if "properties" in rows.columns:
        size = size + F.coalesce(F.octet_length(F.to_json("properties")), F.lit(0))
    if AMQP_COLUMN in rows.columns:
        size = size + F.coalesce(F.octet_length(AMQP_COLUMN), F.lit(0))
    return size.cast("bigint")
