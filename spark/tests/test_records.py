"""Lifecycle records of a real bus as a table: in Spark, in SQL, and for pandas (P8)."""

import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from spark.tests.bus import Bus
from spark.tests.patience import patiently

from shardbus_spark.client import Client
from shardbus_spark.errors import OptionError

ENTITIES: Final = """
[[queue]]
name = "orders"
partitioning = true
lifecycle = true

[[queue]]
name = "followed"
lifecycle = true

[[queue]]
name = "silent"

[[topic]]
name = "news"
lifecycle = true

[[topic.subscription]]
name = "all"
"""
SOON_S: Final = 20.0


def work(bus: Bus, queue: str, count: int, tag: str) -> None:
    """Messages are sent, some of them are settled in several ways."""
    bus.send(
        queue, [{"body": f"{tag}-{at}", "partition_key": f"key-{at % 7}"} for at in range(count)]
    )
    for action in ("complete", "abandon", "dead_letter"):
        held = bus.receive(queue, 4)
        bus.settle(queue, action, [message["lock_token"] for message in held])


def records(spark: SparkSession, bus: Bus, entity: str) -> DataFrameReader:
    return spark.read.format("shardbus").options(endpoint=bus.url, entity=entity, table="lifecycle")


def events(names: Iterable[object]) -> Counter[str]:
    """Without those of fragments, which are stored when they have waited a second."""
    return Counter(str(name) for name in names if name not in ("load", "gap"))


def in_spark(frame: DataFrame) -> Counter[str]:
    return events(row.event for row in frame.select("event").collect())


@pytest.fixture(scope="module")
def worked(bus: Bus, client: Client) -> Counter[str]:
    """What happened to the messages of a queue."""
    work(bus, "orders", 60, "a")
    deadline_s = time.monotonic() + SOON_S
    while True:
        found = events(client.read("orders", table="lifecycle").column("event").to_pylist())
        if found["lock"] == 12:
            return found
        # A lock is stored with the next commit of its fragment, or after a second.
        assert time.monotonic() < deadline_s, found
        time.sleep(0.1)


def test_the_records_of_an_entity_are_a_table(
    spark: SparkSession, bus: Bus, worked: Counter[str]
) -> None:
    """P8"""
    frame = records(spark, bus, "orders").load()

    assert in_spark(frame) == worked
    assert worked["enqueue"] == 60
    assert worked["complete"] == worked["abandon"] == worked["dead_letter"] == 4
    assert frame.select("fragment", "block", "row").distinct().count() == frame.count()
    row = frame.where("event = 'complete'").first()
    assert row is not None and row.held_ms >= 0 and row.age_ms >= row.held_ms
    assert row.receiver == "http" and row.size_bytes > 0
    assert frame.where("event = 'enqueue' AND key LIKE 'key-%'").count() == 60


def test_sql_reads_the_records_too(spark: SparkSession, bus: Bus, worked: Counter[str]) -> None:
    """P8"""
    options = f"endpoint '{bus.url}', entity 'orders', table 'lifecycle'"
    spark.sql(f"CREATE TABLE moves USING shardbus OPTIONS ({options})")
    try:
        assert in_spark(spark.sql("SELECT event FROM moves")) == worked
        with pytest.raises(PySparkException, match="body"):
            spark.sql("INSERT INTO moves (event) VALUES ('lock')")
    finally:
        spark.sql("DROP TABLE moves")


def test_pandas_gets_the_records_in_three_lines(client: Client, worked: Counter[str]) -> None:
    """P8"""
    frame = client.read("orders", table="lifecycle").to_pandas()
    batches = client.reader("orders", table="lifecycle", columns=["event", "held_ms"])

    assert events(frame.event) == worked
    assert frame[frame.event == "complete"].held_ms.quantile(0.99) >= 0
    assert batches.read_all().num_rows >= len(frame)


def test_a_stream_follows_the_records_each_once(
    spark: SparkSession, bus: Bus, client: Client, tmp_path: Path
) -> None:
    """P8: over a restart of the query, and only what is new."""
    source = spark.readStream.format("shardbus").options(
        endpoint=bus.url, entity="followed", table="lifecycle"
    )

    def follow() -> None:
        writer = source.load().writeStream.format("parquet").trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.start(str(tmp_path / "table")).awaitTermination()

    for tag in ("one", "two", "three"):
        work(bus, "followed", 30, tag)
        patiently(follow)

    found = spark.read.parquet(str(tmp_path / "table"))
    stored = client.read("followed", table="lifecycle", columns=["block"])
    first_part = found.count()
    assert found.select("fragment", "block", "row").distinct().count() == first_part
    assert found.where("event = 'enqueue'").count() == 90
    assert first_part <= stored.num_rows


def test_a_topic_has_records_and_a_silent_entity_none(
    spark: SparkSession, bus: Bus, client: Client
) -> None:
    bus.send("news", [{"body": "x"}])

    assert in_spark(records(spark, bus, "news").load())["publish"] == 1
    assert records(spark, bus, "silent").load().count() == 0
    with pytest.raises(OptionError, match="'orders'"):
        client.read("orders/$DeadLetterQueue", table="lifecycle")
