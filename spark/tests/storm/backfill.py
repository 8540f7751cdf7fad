"""History that a backfill brings to a new subscription while publishers go on (P5).

Each message that matches is there once, marked by the action of its rule, and those of a key in the
order in which they were published.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, final

import pyarrow.parquet as parquet
from spark.tests.bus import Bus, Document, running_bus
from spark.tests.crowd import in_background
from spark.tests.job import Job
from spark.tests.storm.books import Books, Verdict, body_of
from spark.tests.storm.capture import MORE, PROCESSES
from spark.tests.storm.field import Field
from spark.tests.storm.pipelines import PROGRAM, Told, define
from spark.tests.storm.plan import Plan
from spark.tests.storm.replay import strike_while_sending

from shardbus_spark.client import Client, connect
from shardbus_spark.pipelines.plan import SLICE_S
from shardbus_spark.schema import AMQP_COLUMN, COLUMNS

TOPIC: Final = "news"
ARCHIVE: Final = f"{TOPIC}/Subscriptions/all"
LATE: Final = f"{TOPIC}/Subscriptions/late"
ENTITIES: Final = f"""
[[topic]]
name = "{TOPIC}"
partitioning = true
size-gb = 5

[[topic.subscription]]
name = "all"
"""
KEYS: Final = 100
REQUEST: Final = 500
# This part of the history is in the table; the rest only where the archive holds it.
CAPTURED: Final = 0.6
REMOVED_MAX: Final = 1_000
FEW: Final = 3
PAUSE_S: Final = 0.1


@final
class Publisher:
    """Publishes numbered messages, and among them others that the rule does not take."""

    def __init__(self, bus: Bus, books: Books) -> None:
        self._bus = bus
        self._books = books
        self._ended = threading.Event()

    def publish(self, count: int) -> None:
        """So many that match; what nobody answers for is not published again."""
        numbers = self._books.attempt(count)
        messages: list[Document] = [
            {
                "body": body_of(number, self._books.size_bytes).decode(),
                "partition_key": _key(number),
                "properties": {"kind": "wanted"},
            }
            for number in numbers
        ]
        # Found where it must not be, this is nobody's body.
        messages.append({"body": "unwanted", "partition_key": "k0"})
        try:
            answer = self._bus.post(f"{TOPIC}/messages", {"messages": messages})
        except OSError:
            return
        if answer["sent"] == len(messages):
            for number in numbers:
                self._books.accept(number)

    def publish_all(self, count: int) -> None:
        for first in range(0, count, REQUEST):
            self.publish(min(REQUEST, count - first))

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """A few more again and again, until the block ends."""
        with in_background(self._ended, self._go_on):
            yield

    def _go_on(self) -> None:
        while not self._ended.wait(PAUSE_S):
            self.publish(FEW)


def backfill_storm(plan: Plan, directory: Path) -> tuple[Verdict, Field]:
    """What was published, and what the subscription has when the backfill has finished."""
    books = Books(plan.messages + MORE, plan.size_bytes)
    with running_bus(directory, ENTITIES, *PROCESSES) as bus:
        publisher, client = Publisher(bus, books), connect(bus.url)
        job = Job(bus.url, LATE, str(directory))
        captured = int(plan.messages * CAPTURED)
        publisher.publish_all(captured)
        _capture(client, job.rows)
        # So neither the table nor the archive has everything.
        bus.receive(ARCHIVE, min(captured // 4, REMOVED_MAX), "receive_and_delete")
        publisher.publish_all(plan.messages - captured)
        define(
            directory,
            kind="backfill",
            entity=LATE,
            archive=ARCHIVE,
            path=str(job.rows),
            rate_max=max(plan.rows_max // SLICE_S, 1),
            topic_created=(datetime.now(UTC) - timedelta(days=1)).isoformat(),
        )
        told = Told(job.log)
        field = Field(bus, PROGRAM, job, plan, done=told.events)
        with publisher.going_on():
            bus.run(
                "subscription", "create", TOPIC, "late", "--status", "ReceiveDisabled",
                "--sql", "kind = 'wanted'", "--action", "SET seen = 1",
            )  # fmt: skip
            with field.driving():
                strike_while_sending(field, told)
        _find(client, books)
    return books.verdict(), field


def _key(number: int) -> str:
    return f"k{number % KEYS}"


def _capture(client: Client, place: Path) -> None:
    """What the archive holds, as a capture keeps it."""
    place.mkdir()
    columns = [*COLUMNS, AMQP_COLUMN]
    for index, batch in enumerate(client.reader(ARCHIVE, columns=columns)):
        with parquet.ParquetWriter(place / f"{index:06}.parquet", batch.schema) as writer:
            writer.write_batch(batch)


def _find(client: Client, books: Books) -> None:
    columns = ["body", "partition_key", "properties"]
    for batch in client.batches(LATE, columns=columns):
        for row in batch.to_pylist():
            body, seen = row["body"], dict(row["properties"]).get("seen")
            # One without what the action sets is as bad as a damaged one.
            whole = body if isinstance(body, bytes) and seen == "1" else b""
            books.find(whole, str(row["partition_key"]))
