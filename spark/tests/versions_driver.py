"""`python -m spark.tests.versions_driver ENDPOINT DIRECTORY`: what the PySpark of this interpreter
can do with a bus that has the queues `written`, `streamed`, `source` and `sink`.

Says a line of JSON for each way to use the connector: its name, and why it does not work, if so.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

import shardbus_spark

ROWS: Final = 1_000
_ERROR: Final = "shardbus_spark.errors."


class Trial:
    """One session; each way finds what the ways before it have left on the bus."""

    def __init__(self, spark: SparkSession, endpoint: str, directory: Path) -> None:
        self._spark = spark
        self._endpoint = endpoint
        self._directory = directory
        self.ways: list[tuple[str, Callable[[], None]]] = [
            ("batch write", self.write),
            ("batch read", self.read),
            ("SQL table", self.query),
            ("foreachBatch", self.write_each),
            ("stream write", self.write_stream),
            ("stream read, browse", self.browse),
            ("stream read, consume", self.consume),
        ]

    def write(self) -> None:
        for _ in range(2):
            self._write(self._rows(), "written", "once")
        expect(self._bodies("written"), ROWS)

    def read(self) -> None:
        frame = self._entity("written")
        expect(frame.where("fragment = 3").count() + frame.where("fragment <> 3").count(), ROWS)
        expect(frame.select("sequence_number").distinct().count(), ROWS)

    def query(self) -> None:
        options = f"endpoint '{self._endpoint}', entity 'written'"
        self._spark.sql(f"CREATE TABLE waiting USING shardbus OPTIONS ({options})")
        [row] = self._spark.sql("SELECT count(*) AS n FROM waiting").collect()
        expect(row["n"], ROWS)

    def write_each(self) -> None:
        def write(batch: DataFrame, number: int) -> None:
            self._write(batch, "source", f"batch-{number}")

        writer = self._files().writeStream.foreachBatch(write)
        self._run(writer, "each")
        expect(self._bodies("source"), ROWS)

    def write_stream(self) -> None:
        writer = self._files().writeStream.format("shardbus").option("endpoint", self._endpoint)
        self._run(writer.option("entity", "streamed"), "streamed")
        expect(self._bodies("streamed"), ROWS)

    def browse(self) -> None:
        seen = self._directory / "seen"
        writer = self._stream("written", mode="browse").select("body").writeStream
        self._run(writer.format("parquet").option("path", str(seen)), "browsed")
        expect(self._spark.read.parquet(str(seen)).distinct().count(), ROWS)

    def consume(self) -> None:
        stream = self._stream("source", mode="consume", readerName="r", maxRowsPerTrigger="300")
        writer = stream.select("body").writeStream.format("shardbus")
        writer = writer.option("endpoint", self._endpoint).option("entity", "sink")
        self._run(writer, "consumed")
        expect(self._bodies("sink"), ROWS)
        expect(self._entity("source").count(), 0)

    def _rows(self) -> DataFrame:
        return self._spark.range(ROWS).selectExpr("cast(cast(id as string) as binary) as body")

    def _files(self) -> DataFrame:
        place = self._directory / "files"
        if not place.exists():
            self._rows().write.parquet(str(place))
        return self._spark.readStream.schema("body BINARY").parquet(str(place))

    def _entity(self, name: str) -> DataFrame:
        reader = self._spark.read.format("shardbus").option("endpoint", self._endpoint)
        return reader.load(name)

    def _bodies(self, entity: str) -> int:
        """How many there are, each once."""
        frame = self._entity(entity).select("body")
        expect(frame.count(), frame.distinct().count())
        return frame.count()

    def _stream(self, entity: str, **options: str) -> DataFrame:
        reader = self._spark.readStream.format("shardbus").option("endpoint", self._endpoint)
        return reader.options(**options).load(entity)

    def _write(self, frame: DataFrame, entity: str, transaction: str) -> None:
        writer = frame.write.format("shardbus").mode("append").option("endpoint", self._endpoint)
        writer.option("transactionId", transaction).save(entity)

    def _run(self, writer: DataStreamWriter, name: str) -> None:
        checkpoint = str(self._directory / f"{name}-checkpoint")
        writer = writer.option("checkpointLocation", checkpoint)
        writer.trigger(availableNow=True).start().awaitTermination()


def expect(found: int, wanted: int) -> None:
    if found != wanted:
        raise AssertionError(f"there are {found} rows instead of {wanted}")


def why(error: BaseException) -> str:
    """The line that says it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    ours = [line.partition(": ")[2] for line in lines if line.startswith(_ERROR)]
    return (ours or lines or [type(error).__name__])[-1 if ours else 0]


def main(endpoint: str, directory: Path) -> None:
    spark = shardbus_spark.session(
        "versions", master="local[2,4]", spark_sql_warehouse_dir=directory / "warehouse"
    )
    spark.sparkContext.setLogLevel("OFF")
    for name, way in Trial(spark, endpoint, directory).ways:
        told = ""
        try:
            way()
        except Exception as error:  # noqa: BLE001 - whatever a version of Spark raises is told
            told = why(error)
        sys.stdout.write(json.dumps({"way": name, "why_not": told}) + "\n")
        sys.stdout.flush()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
