"""Rows that a stream writes to a queue: each of them once, and batches visible as a whole (P3)."""

from __future__ import annotations

import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as parquet
from spark.tests.bus import running_bus
from spark.tests.job import Job
from spark.tests.storm.books import Books, Verdict, body_of
from spark.tests.storm.capture import ENTITIES, PROCESSES, QUEUE
from spark.tests.storm.field import Field
from spark.tests.storm.plan import Plan, Victim

from shardbus_spark.client import Client, connect
from shardbus_spark.errors import Unavailable

KEYS: Final = 1_000
# A gateway that dies while it publishes leaves the rest to another, which waits for a minute.
WHOLE_S: Final = 180.0
LOOK_S: Final = 1.0


def sink_storm(plan: Plan, directory: Path) -> tuple[Verdict, Field]:
    """What was to be written and what is there in the end, when all of it is."""
    batches = plan.messages // plan.rows_max
    rows = batches * plan.rows_max
    books = Books(rows, plan.size_bytes)
    with running_bus(directory, ENTITIES, *PROCESSES) as bus:
        job = Job(bus.url, QUEUE, str(directory))
        write_rows(job.rows, books, batches, plan.rows_max)
        field = Field(bus, "sink_driver.py", job, plan, done=job.files_planned, most=batches)
        client = connect(bus.url)
        with field.driving():
            for strike in field.strikes():
                field.wait(partial(_has_planned, job, int(strike.after * batches)), "writing")
                field.strike(strike)
                if strike.victim is Victim.DRIVER:
                    _wait_until_whole(client, plan.rows_max)
            field.wait(lambda: job.files_committed() >= batches, "writing")
            field.say("all batches are written")
        find_rows(client, QUEUE, books, has_order=False)
    return books.verdict(), field


def _has_planned(job: Job, batches: int) -> bool:
    return job.files_planned() >= batches


def write_rows(directory: Path, books: Books, files: int, file_rows: int) -> None:
    """What a stream reads, a file as a batch, or a replay, in the order of the times."""
    directory.mkdir()
    for file in range(files):
        numbers = books.attempt(file_rows)
        for number in numbers:
            books.accept(number)
        bodies = [body_of(number, books.size_bytes).decode() for number in numbers]
        keys = [f"k{number % KEYS}" if number % 2 else None for number in numbers]
        table = pa.table(
            {
                "body": bodies,
                "message_id": [str(number) for number in numbers],
                "partition_key": pa.array(keys, pa.string()),
                "enqueued_time": pa.array(numbers, pa.timestamp("us", "UTC")),
            }
        )
        parquet.write_table(table, directory / f"{file:06}.parquet")


def _wait_until_whole(client: Client, batch_rows: int) -> None:
    """While no driver runs, every batch is soon there as a whole, or not at all."""
    deadline_s = time.monotonic() + WHOLE_S
    while True:
        try:
            seen = _seen(client, batch_rows)
        except Unavailable:
            seen = Counter({-1: 1})
        torn = {batch: count for batch, count in seen.items() if count != batch_rows}
        if not torn:
            return
        assert time.monotonic() < deadline_s, f"batches are there in part: {torn}"
        time.sleep(LOOK_S)


def _seen(client: Client, batch_rows: int) -> Counter[int]:
    """How many rows of each batch are on the queue."""
    seen: Counter[int] = Counter()
    for batch in client.batches(QUEUE, columns=["message_id"]):
        names: list[object] = list(batch.column("message_id").to_pylist())
        seen.update(int(str(name)) // batch_rows for name in names)
    return seen


def find_rows(client: Client, entity: str, books: Books, *, has_order: bool) -> None:
    """Note what is in an entity, and whether that of each key is in its order."""
    for batch in client.batches(entity, columns=["body", "partition_key"]):
        keys = batch.column("partition_key").to_pylist()
        for body, key in zip(batch.column("body").to_pylist(), keys, strict=True):
            assert isinstance(body, bytes)
            books.find(body, None if key is None or not has_order else str(key))
