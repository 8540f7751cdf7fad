"""Every event of messages that are sent, abandoned and completed: each record once (P8).

The messages say which events there must be, and the bus which records it has.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from http.client import HTTPException
from pathlib import Path
from typing import Final, final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as dataset
from spark.tests.bus import Bus, Document, running_bus
from spark.tests.crowd import in_background
from spark.tests.job import Job
from spark.tests.storm.books import DIGITS, Books, Verdict, body_of
from spark.tests.storm.capture import AHEAD, ENTITIES, MORE, PROCESSES, QUEUE
from spark.tests.storm.field import Field
from spark.tests.storm.pipelines import PROGRAM, define
from spark.tests.storm.plan import Plan

from shardbus_spark.client import Client, connect
from shardbus_spark.options import LIFECYCLE
from shardbus_spark.pipelines.lifecycle import RECORDS
from shardbus_spark.tables.layout import CHECKPOINT

INTERVAL_MS: Final = 200
REQUEST: Final = 500
SLOW_PARTS: Final = 500
PAUSE_S: Final = 0.1
ABANDONED: Final = 0.05
# The row of a lock waits for a second at most for a commit that stores it.
LATE_S: Final = 3.0
QUIET_S: Final = 60.0
IDENTITY: Final = ("fragment", "block", "row")
# Null in a column of a join is equal to nothing.
WHOLE: Final = ("event", "event_time", "sequence_number", "key")
COLUMNS: Final = [*IDENTITY, *WHOLE]
# Each message has two numbers in the books: of its enqueue and of its completion.
EVENTS: Final = ("enqueue", "complete")


@final
class Load:
    """Sends messages whose key is their number, and settles them, whatever happens; a message
    ahead of `hurry` is sent slowly.
    """

    def __init__(self, bus: Bus, books: Books, messages: int, dice: random.Random) -> None:
        self._bus = bus
        self._books = books
        self._messages = messages
        self._dice = dice
        self._few = max(min(messages // SLOW_PARTS, REQUEST), 1)
        self._ended = threading.Event()
        self._sent = 0
        self._failed: list[BaseException] = []
        self.completing: set[int] = set()
        self.hurry = 0

    def sent(self) -> float:
        """How much of what is to be sent was; raises what has ended the load, if so."""
        if self._failed:
            raise self._failed[0]
        return self._sent / self._messages

    @contextmanager
    def running(self) -> Iterator[None]:
        works = [partial(self._go_on, work) for work in (self._send, self._settle)]
        with in_background(self._ended, *works):
            yield

    def _go_on(self, work: Callable[[], None]) -> None:
        while not self._ended.wait(PAUSE_S):
            try:
                work()
            except (OSError, HTTPException):
                # What nobody answered for may have been done.
                continue
            except BaseException as error:
                self._failed.append(error)
                raise

    def _send(self) -> None:
        if self._sent >= self._messages:
            return
        count = REQUEST if self._sent < self.hurry else self._few
        events = self._books.attempt(2 * min(count, self._messages - self._sent))
        assert events, "far more sends failed than a storm can explain"
        numbers = [event // 2 for event in events[::2]]
        messages: list[Document] = [
            {"body": f"{number}", "partition_key": _key(number)} for number in numbers
        ]
        answer = self._bus.post(f"{QUEUE}/messages", {"messages": messages})
        if answer["sent"] == len(numbers):
            self._sent += len(numbers)
            for number in numbers:
                self._books.accept(2 * number)

    def _settle(self) -> None:
        found = self._bus.receive(QUEUE, REQUEST)
        kept = [message for message in found if self._dice.random() >= ABANDONED]
        gone = [message["lock_token"] for message in found if message not in kept]
        numbers = [int(message["body"]) for message in kept]
        self.completing.update(numbers)
        tokens = [message["lock_token"] for message in kept]
        if tokens and self._bus.settle(QUEUE, "complete", tokens) == len(tokens):
            for number in numbers:
                self._books.accept(2 * number + 1)
        if gone:
            self._bus.settle(QUEUE, "abandon", gone)


def lifecycle_storm(plan: Plan, directory: Path) -> tuple[Verdict, Field]:
    """Every event that was confirmed is in the table once, and each record of the bus, too."""
    books = Books(2 * (plan.messages + plan.messages // 5 + MORE), plan.size_bytes)
    entities = ENTITIES + "lifecycle = true\n"
    with running_bus(directory, entities, *PROCESSES) as bus:
        job = Job(bus.url, QUEUE, str(directory))
        define(
            directory,
            is_plain=True,
            kind="lifecycle",
            entity=QUEUE,
            path=str(job.rows),
            interval_ms=INTERVAL_MS,
        )
        field = Field(bus, PROGRAM, job, plan, done=partial(_batches, job))
        load = Load(bus, books, plan.messages, plan.dice())
        client = connect(bus.url)
        with field.driving():
            with load.running():
                for strike in field.strikes():
                    load.hurry = int((strike.after + AHEAD) * plan.messages)
                    field.wait(partial(_has_sent, load, strike.after), "sending")
                    field.strike(strike)
                load.hurry = plan.messages
                field.wait(partial(_has_sent, load, 1.0), "sending")
            threading.Event().wait(LATE_S)
            before = records_of(client)
            field.wait(_kept(job, before.num_rows), "keeping")
            field.say(f"{before.num_rows} records are kept")
        verdict = judged(books, load.completing, _table(job), before, records_of(client))
        client.close()
    return verdict, field


def judged(
    books: Books, completing: set[int], kept: pa.Table, before: pa.Table, after: pa.Table
) -> Verdict:
    """`before` are records of the bus that the table must have, `after` all that it may have."""
    for row in kept.filter(pc.is_in(kept["event"], pa.array(EVENTS[:1]))).to_pylist():
        number = int(row["key"])
        books.find(body_of(2 * number, books.size_bytes))
    names = _numbers(kept)
    for row in kept.filter(pc.is_in(kept["event"], pa.array(EVENTS[1:]))).to_pylist():
        number = names.get(row["sequence_number"], -1)
        # The completion of a message that nobody tried to complete is nobody's.
        known = number in completing
        books.find(body_of(2 * number + 1, books.size_bytes) if known else b"")
    found = books.verdict()
    each = _counted(kept)
    return replace(
        found,
        missing=found.missing + _lacking(before, each),
        twice=found.twice + sum((times or 0) > 1 for times in each["times"].to_pylist()),
        strangers=found.strangers + _lacking(each, _counted(after)),
    )


def records_of(client: Client) -> pa.Table:
    """The records that the bus has."""
    return client.read(QUEUE, columns=COLUMNS, table=LIFECYCLE)


def _table(job: Job) -> pa.Table:
    """The records that the pipeline has kept, as any program reads them."""
    files = sorted(str(file) for file in (job.rows / RECORDS).glob("entity=*/**/*.parquet"))
    return dataset.dataset(files).to_table(columns=COLUMNS)


def _counted(records: pa.Table) -> pa.Table:
    """Each record with the number of times that it is there, without nulls."""
    for name in ("sequence_number", "key"):
        known = records[name].cast(pa.string()).to_pylist()
        column = pa.array([value or "" for value in known], pa.string())
        records = records.set_column(records.column_names.index(name), name, column)
    times = records.group_by(COLUMNS).aggregate([([], "count_all")])
    return times.rename_columns([*COLUMNS, "times"])


def _lacking(some: pa.Table, others: pa.Table) -> int:
    """How many records the others do not have, or not the same."""
    ours = some if "times" in some.column_names else _counted(some)
    # The unit of moments may differ between a file and the bulk lane.
    theirs = others.set_column(
        COLUMNS.index("event_time"),
        "event_time",
        others["event_time"].cast(ours["event_time"].type),
    )
    return ours.join(theirs, keys=COLUMNS, join_type="left anti").num_rows


def _numbers(kept: pa.Table) -> dict[int, int]:
    """The numbers of messages by their sequence numbers, of those whose key is known."""
    sent = kept.filter(pc.is_in(kept["event"], pa.array(EVENTS[:1])))
    return {row["sequence_number"]: int(row["key"]) for row in sent.to_pylist()}


def _batches(job: Job) -> int:
    """How many batches the query has planned."""
    log = job.rows / RECORDS / CHECKPOINT / "offsets"
    return max((int(entry.name) + 1 for entry in log.glob("[0-9]*")), default=0)


def _kept(job: Job, count: int) -> Callable[[], bool]:
    """Whether the table has so many rows, or nothing has been added for long."""
    seen, since_s = -1, time.monotonic()

    def is_kept() -> bool:
        nonlocal seen, since_s
        try:
            rows = _table(job).num_rows
        except FileNotFoundError:
            # An hour was exchanged for its compacted form.
            return False
        if rows != seen:
            seen, since_s = rows, time.monotonic()
        return rows >= count or time.monotonic() - since_s > QUIET_S

    return is_kept


def _key(number: int) -> str:
    return f"{number:0{DIGITS}}"


def _has_sent(load: Load, part: float) -> bool:
    return load.sent() >= part
