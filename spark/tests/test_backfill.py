"""A new subscription gets what it would have had, while publishers continue (P5)."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from spark.tests.bus import Bus

from shardbus_spark.client import Client
from shardbus_spark.pipelines.backfill import Backfilling
from shardbus_spark.pipelines.definition import Definition, read_definition

ENTITIES: Final = """
[[topic]]
name = "news"
partitioning = true

[[topic.subscription]]
name = "all"

[[topic]]
name = "cut"
partitioning = true

[[topic.subscription]]
name = "all"

[[topic]]
name = "spans"
partitioning = true

[[topic.subscription]]
name = "all"
"""
HISTORY: Final = 210
KEYS: Final = 7
PART: Final = 6 * KEYS
RULE: Final = "parity = 'odd'"
ACTION: Final = "SET seen = 1"
Event = Mapping[str, object]


class Crash(Exception):
    """Somebody pulled the plug."""


class Publisher:
    """Numbers its messages; each has one of a few keys."""

    def __init__(self, bus: Bus, topic: str) -> None:
        self._bus = bus
        self._topic = topic
        self.count = 0

    def publish(self, count: int) -> None:
        numbers = range(self.count, self.count + count)
        self._bus.send(
            self._topic,
            [
                {
                    "body": f"m{n}",
                    "message_id": str(n),
                    "partition_key": f"k{n % KEYS}",
                    "properties": {"parity": "odd" if n % 2 else "even"},
                }
                for n in numbers
            ],
        )
        self.count += count

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """In the meantime a few more, again and again."""
        ending = threading.Event()

        def run() -> None:
            while not ending.wait(0.05):
                self.publish(3)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            ending.set()
            thread.join()


def subscribe(bus: Bus, topic: str, name: str) -> None:
    endpoint = f"http://127.0.0.1:{bus.server.http_port}"
    command = [
        sys.executable, "-m", "shardbus", "subscription", "create", topic, name,
        "--status", "ReceiveDisabled", "--sql", RULE, "--action", ACTION, "--endpoint", endpoint,
    ]  # fmt: skip
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def capture(spark: SparkSession, bus: Bus, topic: str, place: Path) -> None:
    """Half of what the archive holds is in a table, and a part of that is not held any more."""
    archive = f"{topic}/Subscriptions/all"
    reader = spark.read.format("shardbus").options(endpoint=bus.url, includeAmqp="true")
    rows = reader.load(archive)
    rows.where(F.col("message_id").cast("int") < HISTORY // 2).write.parquet(str(place))
    gone = 0
    while gone < HISTORY // 4:
        received = bus.receive(archive, HISTORY // 4 - gone)
        first = [each for each in received if int(str(each["message_id"])) < HISTORY // 2]
        gone += bus.settle(archive, "complete", [each["lock_token"] for each in first])


def definition_of(topic: str, name: str, place: Path, **members: str) -> Definition:
    return read_definition(
        {
            "kind": "backfill",
            "name": f"{topic}-{name}",
            "entity": f"{topic}/Subscriptions/{name}",
            "archive": f"{topic}/Subscriptions/all",
            "path": str(place),
            "work": str(place.with_name(f"_{name}")),
            "topic_created": (datetime.now(UTC) - timedelta(days=1)).isoformat(),
            **members,
        }
    )


def fill(
    spark: SparkSession,
    bus: Bus,
    definition: Definition,
    tell: Callable[[Event], None] = lambda event: None,
) -> bool:
    """One life of a driver."""
    access = {"endpoint": bus.url}
    filling = Backfilling(spark, definition, access, threading.Event(), tell, slice_rows_max=40)
    plan = filling.prepare()
    return plan is None or filling.send(plan)


def check(client: Client, topic: str, name: str, count: int) -> None:
    """All odd messages, each once, in the order of each key, with what the action set."""
    columns = ["message_id", "partition_key", "fragment", "sequence_number", "properties"]
    read = client.read(f"{topic}/Subscriptions/{name}", columns=columns)
    rows = sorted(read.to_pylist(), key=lambda row: row["sequence_number"])
    ids = [int(str(row["message_id"])) for row in rows]
    assert sorted(ids) == list(range(1, count, 2))
    for key in range(KEYS):
        mine = [n for n in ids if n % KEYS == key]
        assert mine == sorted(mine), key
    assert all(dict(row["properties"]).get("seen") == "1" for row in rows)
    assert len({row["sequence_number"] for row in rows}) == len(rows)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_new_subscription_gets_what_it_would_have_had(
    spark: SparkSession, bus: Bus, client: Client, tmp_path: Path
) -> None:
    """P5: of a table, and of what the archive holds; publishers continue all the time."""
    publisher = Publisher(bus, "news")
    publisher.publish(HISTORY)
    capture(spark, bus, "news", tmp_path / "captured")
    definition = definition_of("news", "late", tmp_path / "captured")
    with publisher.going_on():
        subscribe(bus, "news", "late")
        assert fill(spark, bus, definition)

    check(client, "news", "late", publisher.count)
    # Again, under another name: nothing is missing, and nothing comes twice.
    again = definition_of("news", "late", tmp_path / "captured")
    (tmp_path / "_late").rename(tmp_path / "_before")
    again._members["incarnation"] = "2"  # type: ignore[index]  # as if it were created again
    assert fill(spark, bus, again)
    check(client, "news", "late", publisher.count)


def publish_parts(publisher: Publisher, client: Client, archive: str) -> list[datetime]:
    """Three parts of PART messages, each at later times than the one before; their first times."""
    begins: list[datetime] = []
    for part in range(3):
        publisher.publish(PART)
        read = client.read(archive, columns=["message_id", "enqueued_time"])
        times = [
            row["enqueued_time"]
            for row in read.to_pylist()
            if int(str(row["message_id"])) >= part * PART
        ]
        begins.append(min(times))
        while datetime.now(UTC) <= max(times) + timedelta(milliseconds=1):
            pass
    return begins


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_span_of_the_history_is_filled_in_and_no_earlier_one_after_it(
    spark: SparkSession, bus: Bus, client: Client, tmp_path: Path
) -> None:
    """P5: of what is captured, and of what only the archive holds."""
    archive, late, place = "spans/Subscriptions/all", "spans/Subscriptions/late", tmp_path / "rows"
    _, since, until = publish_parts(Publisher(bus, "spans"), client, archive)
    rows = spark.read.format("shardbus").options(endpoint=bus.url, includeAmqp="true").load(archive)
    rows.where(F.col("message_id").cast("int") < PART * 3 // 2).write.parquet(str(place))
    subscribe(bus, "spans", "late")
    planned: list[object] = []

    def fill_span(incarnation: str, **span: str) -> list[int]:
        work = str(tmp_path / f"_{incarnation}")
        more = {"work": work, "incarnation": incarnation, **span}
        definition = definition_of("spans", "late", place, **more)
        assert fill(spark, bus, definition, lambda event: planned.append(event.get("rows_planned")))
        read = client.read(late, columns=["message_id"])
        return sorted(int(str(name)) for name in read["message_id"].to_pylist())

    middle = fill_span("1", **{"from": since.isoformat(), "to": until.isoformat()})

    assert middle == [n for n in range(PART, 2 * PART) if n % 2]
    assert set(planned) == {PART}
    assert fill_span("2") == [n for n in range(PART, 3 * PART) if n % 2]


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_backfill_that_is_cut_off_again_and_again_fills_in_every_message_once(
    spark: SparkSession, bus: Bus, client: Client, tmp_path: Path
) -> None:
    """P5: after each slice, and while it is planned."""
    publisher = Publisher(bus, "cut")
    publisher.publish(HISTORY)
    capture(spark, bus, "cut", tmp_path / "captured")
    subscribe(bus, "cut", "late")
    definition = definition_of("cut", "late", tmp_path / "captured")
    lives = 0

    def cut(event: Event) -> None:
        if event.get("rows"):
            raise Crash

    with publisher.going_on():
        while True:
            lives += 1
            assert lives < 50
            try:
                assert fill(spark, bus, definition, cut if lives % 3 else lambda event: None)
                break
            except Crash:
                continue

    assert lives > 2
    check(client, "cut", "late", publisher.count)
