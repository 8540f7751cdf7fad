"""The work that is measured, done once each time it is asked for."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final, final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from bench.peers.shardbus import Server
from bench.rounds import MeasurementError
from bench.spark.orders import FILE_ROWS
from bench.spark.plan import CONSUMED, FILL_ROWS, SINKS, Plan, Work

QUEUE: Final = "orders"
SINK: Final = "sink"
LATENCY: Final = "latency"
_QUEUE_OPTIONS: Final = ("--partitioning", "--size-gb", "5")
_STREAM_TIMEOUT_S: Final = 600


@final
class Works:
    """A queue full of orders, the same rows as Parquet files, and queues to write to."""

    def __init__(
        self, spark: SparkSession, server: Server, flight_url: str, place: Path, plan: Plan
    ) -> None:
        self._spark = spark
        self._server = server
        self._url = flight_url
        self._place = place
        self._plan = plan
        self._plain = place / "plain.parquet"
        self._snappy = place / "snappy.parquet"
        self._whole = place / "whole.parquet"
        self._orders = place / "orders"
        self._sunk = place / "sunk"

    def fill(self, say: Callable[[str], None]) -> None:
        """Orders into the queue, and what is read from it into files with the same columns."""
        for name in (QUEUE, SINK, LATENCY, CONSUMED[Work.CONSUME]):
            self._server.create_queue(name, *_QUEUE_OPTIONS)
        self._server.create_queue(CONSUMED[Work.CONSUME_ONE], *_QUEUE_OPTIONS[1:])
        orders = sorted(self._orders.iterdir())
        self._sunk.mkdir()
        for file in orders[: self._plan.sink_rows // FILE_ROWS]:
            (self._sunk / file.name).hardlink_to(file)
        step = FILL_ROWS // FILE_ROWS
        for first in range(0, len(orders), step):
            some = [str(file) for file in orders[first : first + step]]
            self._to_bus(self._spark.read.parquet(*some), QUEUE)
            say(f"{min(first + step, len(orders)) * 100 // len(orders)} % are on the bus")
        found = self.bus_rows().count()
        if found != self._plan.messages:
            raise MeasurementError(
                f"{self._plan.messages} orders were written and {found} are read"
            )
        self.bus_rows().write.option("compression", "none").parquet(str(self._plain))
        self.bus_rows().write.option("compression", "snappy").parquet(str(self._snappy))
        wholes = self.bus_rows(includes_amqp=True).limit(self._plan.sink_rows)
        wholes.select("message_id", "partition_key", "properties", "body", "amqp").write.option(
            "compression", "none"
        ).parquet(str(self._whole))
        say("the same rows are in Parquet files")

    def rows_of(self, work: Work) -> int:
        """How many rows one turn moves."""
        return self._plan.sink_rows if work in SINKS else self._plan.messages

    def prepare(self, work: Work) -> None:
        """What has to be there before a turn, and is not measured."""
        if work in CONSUMED:
            self._to_bus(self._some().drop("partition_key"), CONSUMED[work])

    def run(self, work: Work) -> None:
        match work:
            case Work.SCAN:
                _to_nowhere(self._spark.read.parquet(str(self._plain)))
            case Work.SCAN_SNAPPY:
                _to_nowhere(self._spark.read.parquet(str(self._snappy)))
            case Work.COUNT:
                self.bus_rows().count()
            case Work.NOOP | Work.NOOP_AMQP:
                _to_nowhere(self.bus_rows(includes_amqp=work is Work.NOOP_AMQP))
            case Work.COPY:
                self._to_parquet(self._spark.read.parquet(str(self._plain)))
            case Work.CAPTURE:
                self._to_parquet(self.bus_rows())
            case Work.WRITE:
                self._to_parquet(self._some())
            case Work.SINK:
                self._to_bus(self._some().drop("partition_key"), SINK)
            case Work.SINK_KEYED | Work.SINK_AMQP:
                is_whole = work is Work.SINK_AMQP
                self._to_bus(self._wholes() if is_whole else self._some(), SINK)
            case Work.SINK_STREAM:
                self._stream()
            case Work.CONSUME | Work.CONSUME_ONE:
                self._consume(CONSUMED[work])

    def clean(self) -> None:
        """Forget what the last turn wrote to files."""
        shutil.rmtree(self._place / "out", ignore_errors=True)
        shutil.rmtree(self._place / "checkpoint", ignore_errors=True)

    def bus_rows(self, *, includes_amqp: bool = False) -> DataFrame:
        """A new look at the queue, with all columns, or with those and the message itself."""
        return (
            self._spark.read.format("shardbus")
            .option("endpoint", self._url)
            .option("entity", QUEUE)
            .option("includeAmqp", str(includes_amqp).lower())
            .load()
        )

    def _some(self) -> DataFrame:
        return self._spark.read.parquet(str(self._sunk))

    def _wholes(self) -> DataFrame:
        return self._spark.read.parquet(str(self._whole))

    def _to_bus(self, rows: DataFrame, queue: str) -> None:
        (
            rows.write.format("shardbus")
            .option("endpoint", self._url)
            .option("entity", queue)
            .mode("append")
            .save()
        )

    def _to_parquet(self, rows: DataFrame) -> None:
        rows.write.parquet(str(self._place / "out"))

    def _stream(self) -> None:
        """All in one micro-batch, as one that fell behind would have it."""
        rows = self._spark.readStream.schema(self._some().schema).parquet(str(self._sunk))
        writer = rows.drop("partition_key").writeStream.format("shardbus")
        self._finish(writer.option("endpoint", self._url).option("entity", SINK))

    def _consume(self, queue: str) -> None:
        """The same, the other way round, to nowhere."""
        rows = (
            self._spark.readStream.format("shardbus")
            .option("endpoint", self._url)
            .option("mode", "consume")
            .option("readerName", "bench")
            .load(queue)
        )
        self._finish(rows.writeStream.format("noop"))

    def _finish(self, writer: DataStreamWriter) -> None:
        place = str(self._place / "checkpoint")
        query = writer.option("checkpointLocation", place).trigger(availableNow=True).start()
        query.awaitTermination(_STREAM_TIMEOUT_S)
        error = query.exception()
        if error is not None:
            raise error


def _to_nowhere(rows: DataFrame) -> None:
    rows.write.format("noop").mode("overwrite").save()
