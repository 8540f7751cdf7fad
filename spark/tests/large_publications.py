"""`python -m spark.tests.large_publications [--publications N] [--rows N] [--directory D]`

Spark publishes large batches to a queue to which others send, a stream follows the queue meanwhile,
and the bus captures it and keeps it. Both must read all that was sent, each fragment in order, and
nothing twice. Writes what it found to standard output, as JSON; ends with 1 if that is not so.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final, final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from spark.tests.bus import Bus, running_bus
from spark.tests.crowd import in_background
from spark.tests.sessions import local_spark

from shardbus.app.cli.access import ClientAccess
from shardbus.app.cli.api_client import ApiClient, Document
from shardbus.app.cli.sas import Credential

QUEUE: Final = "followed"
ENTITIES: Final = f"""
[[queue]]
name = "{QUEUE}"
partitioning = true
size-gb = 5
"""
PIPELINE: Final = "archive"
BROKERS: Final = ("--broker-processes", "--brokers", "2")
SEND_COUNT: Final = 50
PAUSE_S: Final = 0.2
READ_S_MAX: Final = 1_800.0
LOOK_S: Final = 0.5


@final
@dataclass
class Reading:
    """What somebody has read: how many rows, what their bodies add up to, and all that is odd."""

    rows: int = 0
    checksum: int = 0
    odd: list[str] = field(default_factory=list)
    ends: dict[int, int] = field(default_factory=dict)

    def add(self, frame: DataFrame) -> None:
        """The next rows: of each fragment all that follow on those before, once."""
        number = F.col("sequence_number")
        parts = frame.groupBy("fragment").agg(
            F.count("*").alias("rows"),
            F.count_distinct(number).alias("numbers"),
            F.min(number).alias("first"),
            F.max(number).alias("last"),
            F.sum(F.crc32("body")).alias("checksum"),
        )
        for part in parts.collect():
            fragment, rows, first, last = (int(part[at]) for at in (0, 1, 3, 4))
            is_whole = rows == int(part["numbers"]) == last - first + 1
            follows = first == self.ends.get(fragment, (fragment << 48)) + 1
            if not (is_whole and follows):
                self.odd.append(f"{part.asDict()} after {self.ends.get(fragment)}")
            self.ends[fragment] = last
            self.rows += rows
            self.checksum += int(part["checksum"])


@final
class Sender:
    """Sends small batches until it is told to end."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._ending = threading.Event()
        self.bodies: list[str] = []

    def running(self) -> AbstractContextManager[None]:
        return in_background(self._ending, self._send)

    def _send(self) -> None:
        while not self._ending.wait(PAUSE_S):
            first = len(self.bodies)
            bodies = [f"sent-{first + step}" for step in range(SEND_COUNT)]
            self._bus.send(QUEUE, [{"body": body, "partition_key": body} for body in bodies])
            self.bodies += bodies


@final
@dataclass
class Result:
    sent: int
    published: int
    publish_s: list[float]
    followed: Reading
    captured: Reading
    checksum: int

    @property
    def is_good(self) -> bool:
        wanted = (self.sent + self.published, self.checksum)
        readings = (self.followed, self.captured)
        return all((each.rows, each.checksum) == wanted and not each.odd for each in readings)


def published_and_read(
    spark: SparkSession, bus: Bus, directory: Path, *, publications: int, rows: int
) -> Result:
    """Of a bus that runs and has the queue."""
    api = ClientAccess(f"http://127.0.0.1:{bus.server.http_port}", Credential(), None).api()
    table = bus.server.data_dir / "captured" / PIPELINE
    definition: Document = {"entity": QUEUE, "keep": True, "interval_ms": 500, "path": PIPELINE}
    api.put(f"pipelines/{PIPELINE}", definition)
    api.post(f"pipelines/{PIPELINE}/start", {})
    followed = Reading()
    stream = spark.readStream.format("shardbus").option("endpoint", bus.url).load(QUEUE)
    query = (
        stream.writeStream.foreachBatch(lambda frame, _: followed.add(frame))
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(processingTime="500 milliseconds")
        .start()
    )
    sender = Sender(bus)
    checksum = 0
    publish_s: list[float] = []
    with sender.running():
        for number in range(publications):
            frame = _batch(spark, number, rows)
            checksum += int(frame.agg(F.sum(F.crc32("body"))).collect()[0][0])
            started_s = time.monotonic()
            frame.write.format("shardbus").option("endpoint", bus.url).mode("append").save(QUEUE)
            publish_s.append(round(time.monotonic() - started_s, 1))
    sent = spark.createDataFrame([(body,) for body in sender.bodies], "body string")
    checksum += int(sent.agg(F.sum(F.crc32("body"))).collect()[0][0])
    total = len(sender.bodies) + publications * rows
    deadline_s = time.monotonic() + READ_S_MAX
    while followed.rows < total or _captured(api) < total:
        assert query.isActive, query.exception()
        assert time.monotonic() < deadline_s, (followed.rows, _captured(api), total)
        time.sleep(LOOK_S)
    query.stop()
    captured = Reading()
    captured.add(spark.read.parquet(str(table)))
    done = publications * rows
    return Result(len(sender.bodies), done, publish_s, followed, captured, checksum)


def _batch(spark: SparkSession, number: int, rows: int) -> DataFrame:
    body = F.format_string(f"published-{number}-%d", "id")
    return spark.range(rows).select(body.alias("body"), body.alias("partition_key"))


def _captured(api: ApiClient) -> int:
    progress = api.get(f"pipelines/{PIPELINE}")["progress"]
    return int(progress["rows_total"]) if isinstance(progress, dict) else 0


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m spark.tests.large_publications")
    parser.add_argument("--publications", type=int, default=3)
    parser.add_argument("--rows", type=int, default=600_000)
    parser.add_argument("--directory", type=Path, help="where to work; a temporary one by default")
    wanted = parser.parse_args(arguments)
    directory = Path(tempfile.mkdtemp(prefix="publications-", dir=wanted.directory))
    with (
        running_bus(directory, ENTITIES, *BROKERS) as bus,
        local_spark("publications", directory / "warehouse") as spark,
    ):
        result = published_and_read(
            spark, bus, directory, publications=wanted.publications, rows=wanted.rows
        )
    sys.stdout.write(json.dumps({"is_good": result.is_good, **asdict(result)}, indent=2) + "\n")
    return 0 if result.is_good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
