"""What cannot be done says so in the query, by name and with what to do, and nothing is lost.

Reads and writes in batches that are refused are in test_spark and test_sink.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from spark.tests.bus import Bus, Document, running_bus
from spark.tests.patience import patiently

from shardbus_spark.client import connect
from shardbus_spark.pipelines.events import error_text
from tests.support.disks import FailingDisk, SmallDisk, can_mount, small_disk

KEY: Final = "bm9ib2R5IG1heSBkbyBtb3JlIHdpdGggdGhpcyBrZXk="
RULES: Final = "".join(
    f'[[access-rule]]\nname = "{right}"\nrights = ["{right}"]\nprimary-key = "{KEY}"\n'
    for right in ("Send", "Listen")
)
QUEUES: Final = ("orders", "doomed", "deleted", "dropped", "disk")
ENTITIES: Final = RULES + "".join(
    f'[[queue]]\nname = "{name}"\npartitioning = true\n' for name in QUEUES
)
SENDER: Final = {"keyName": "Send", "key": KEY}
LISTENER: Final = {"keyName": "Listen", "key": KEY}
TEN: Final = [f"{number:02}" for number in range(10)]
WAIT_S: Final = 300


def _reading(spark: SparkSession, bus: Bus, entity: str, **options: str) -> StreamingQuery:
    """A stream that goes on until something is wrong."""
    stream = spark.readStream.format("shardbus").option("endpoint", bus.url).options(**options)
    return stream.load(entity).writeStream.format("noop").start()


def _reading_well(spark: SparkSession, bus: Bus, entity: str, reader: str) -> StreamingQuery:
    """One that consumes, and has come to the end of a batch."""
    queries: list[StreamingQuery] = []

    def begin() -> None:
        query = _reading(spark, bus, entity, mode="consume", readerName=reader)
        queries.append(query)
        deadline_s = time.monotonic() + WAIT_S
        while not query.recentProgress:
            query.awaitTermination(1)
            assert time.monotonic() < deadline_s, "nothing is read"

    patiently(begin)
    return queries[-1]


def _writing(
    spark: SparkSession, bus: Bus, place: Path, *columns: str, **options: str
) -> StreamingQuery:
    """A stream of rows, each file of them a batch, that goes on until something is wrong."""
    rows = spark.readStream.schema("body STRING").option("maxFilesPerTrigger", "1")
    given = {"endpoint": bus.url, "checkpointLocation": str(place / "checkpoint"), **options}
    frame = rows.parquet(str(place / "rows")).selectExpr(*columns or ("body",))
    return frame.writeStream.format("shardbus").options(**given).start()


def _add_file(place: Path, name: str, bodies: list[str]) -> None:
    directory = place / "rows"
    directory.mkdir(exist_ok=True)
    parquet.write_table(pa.table({"body": bodies}), place / name)
    (place / name).rename(directory / f"{name}.parquet")


def _told(query: StreamingQuery) -> str:
    """The line of the error with which a query ends; it is in what the user sees."""
    with pytest.raises(PySparkException) as caught:
        assert query.awaitTermination(WAIT_S), "the query goes on"
    told = error_text(caught.value)
    assert told in str(caught.value)
    return told


def _wait_for_batches(query: StreamingQuery, count: int) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while sum(1 for progress in query.recentProgress if progress["numInputRows"]) < count:
        assert query.isActive and time.monotonic() < deadline_s, query.exception()
        threading.Event().wait(0.05)


def _messages(bodies: list[str]) -> list[Document]:
    return [{"body": body} for body in bodies]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"path": "nowhere"}, "'nowhere' does not exist"),
        ({"path": "orders", **SENDER}, "Listen"),
        ({"path": "orders", "maxRows": "1"}, "maxrows is not an option; options are endpoint"),
    ],
    ids=["entity", "right", "option"],
)
def test_a_stream_that_cannot_be_read_says_why(
    spark: SparkSession, bus: Bus, options: dict[str, str], told: str
) -> None:
    """P1, P2."""
    given = {"mode": "consume", "readerName": "r", **options}
    entity = given.pop("path")

    def run() -> None:
        assert _reading(spark, bus, entity, **given).awaitTermination(WAIT_S)

    with pytest.raises(PySparkException) as caught:
        patiently(run)

    assert told in error_text(caught.value)


@pytest.mark.parametrize(
    ("columns", "options", "told"),
    [
        (["body"], {"entity": "nowhere"}, "'nowhere' does not exist"),
        (["body"], {"entity": "orders", **LISTENER}, "Send"),
        (["body"], {"entity": "orders", "color": "red"}, "color is not an option; options are"),
        (["body", "1 AS price"], {"entity": "orders"}, "there is no column price"),
        (["1 AS body"], {"entity": "orders"}, "column body is int; it must be binary or string"),
        (["body AS subject"], {"entity": "orders"}, "there is no column body"),
    ],
    ids=["entity", "right", "option", "column", "type", "body"],
)
def test_a_stream_that_cannot_be_written_says_why(
    spark: SparkSession,
    bus: Bus,
    tmp_path: Path,
    columns: list[str],
    options: dict[str, str],
    told: str,
) -> None:
    """P3: and nothing of it is on the bus."""
    _add_file(tmp_path, "first", TEN)
    with pytest.raises(PySparkException) as caught:
        _writing(spark, bus, tmp_path, *columns, **options).awaitTermination(WAIT_S)

    assert told in error_text(caught.value)
    assert connect(bus.url).read("orders").num_rows == 0


def test_an_unknown_option_of_a_write_is_named(spark: SparkSession, bus: Bus) -> None:
    """P3."""
    writer = spark.sql("SELECT 'x' AS body").write.format("shardbus").option("endpoint", bus.url)
    with pytest.raises(PySparkException) as caught:
        writer.option("color", "red").mode("append").save("orders")

    assert "color is not an option; options are" in error_text(caught.value)


def test_a_queue_that_is_deleted_while_it_is_read_ends_the_query(
    spark: SparkSession, bus: Bus
) -> None:
    """P2."""
    bus.send("doomed", _messages(TEN))
    query = _reading_well(spark, bus, "doomed", "r")

    bus.run("queue", "delete", "doomed", "--yes")

    assert "'doomed' does not exist" in _told(query)


def test_a_queue_that_is_deleted_while_it_is_written_ends_the_query(
    spark: SparkSession, bus: Bus, tmp_path: Path
) -> None:
    """P3: the rows that were not written are written when the queue is there again."""
    _add_file(tmp_path, "first", TEN)
    query = _writing(spark, bus, tmp_path, entity="deleted")
    _wait_for_batches(query, 1)
    bus.run("queue", "delete", "deleted", "--yes")
    _add_file(tmp_path, "second", ["late"])

    assert "'deleted' does not exist" in _told(query)

    bus.run("queue", "create", "deleted")
    again = _writing(spark, bus, tmp_path, entity="deleted")
    _wait_for_batches(again, 1)
    again.stop()
    assert connect(bus.url).read("deleted")["body"].to_pylist() == [b"late"]


def test_a_reader_that_is_dropped_ends_its_query_and_gives_everything_back(
    spark: SparkSession, bus: Bus
) -> None:
    """P2: what is sent after that, receivers get."""
    bus.send("dropped", _messages(["before"]))
    query = _reading_well(spark, bus, "dropped", "unlucky")
    connect(bus.url).act("drop", "dropped", {"reader": "unlucky"})
    bus.send("dropped", _messages(TEN))

    told = _told(query)

    assert "unlucky" in told and "checkpointLocation" in told
    left: set[str] = set()
    while found := bus.receive("dropped", 100):
        left |= {message["body"] for message in found}
    assert left - {"before"} == set(TEN)


@contextmanager
def _bus_on_a_disk(place: Path) -> Iterator[tuple[Bus, SmallDisk | FailingDisk, str]]:
    """A bus with one store; its disk, and what that says when it is full.

    Who may not mount a small one gets a limit of the kernel for the files of the bus.
    """
    if not can_mount():
        with running_bus(place, ENTITIES, "--brokers", "1") as bus:
            yield bus, FailingDisk(bus.server.pid), "the disk failed"
        return
    data = place / "data"
    data.mkdir()
    with small_disk(place / "disk") as disk:
        (data / "broker-0.db").symlink_to(disk.path / "broker-0.db")
        with running_bus(place, ENTITIES, "--brokers", "1", "--reserve-mb", "0") as bus:
            yield bus, disk, "the disk is full"


@pytest.mark.long
def test_a_full_disk_ends_a_write_and_the_next_one_goes_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    """P3: no row is lost, and none is there twice."""
    with _bus_on_a_disk(tmp_path) as (bus, disk, words):
        _add_file(tmp_path, "first", TEN)
        query = _writing(spark, bus, tmp_path, entity="disk", waitMs="5000")
        _wait_for_batches(query, 1)
        disk.fail()
        _add_file(tmp_path, "second", [f"second {body}" for body in TEN])

        assert words in _told(query)

        disk.heal()
        again = _writing(spark, bus, tmp_path, entity="disk", waitMs="5000")
        _wait_for_batches(again, 1)
        again.stop()
        found = connect(bus.url).read("disk")["body"].to_pylist()
        expected = [*TEN, *(f"second {body}" for body in TEN)]
        assert sorted(body.decode() for body in found if isinstance(body, bytes)) == expected
