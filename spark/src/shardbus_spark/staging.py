"""How writers use the bus: tasks stage their rows, and a commit publishes the chosen stages.

The names of all stages of a *job*, the attempts of its tasks, begin with the job's. So each running
task keeps those of the others alive, however long the job takes, and at the end one request
discards everything that was staged and not chosen: by attempts that failed, were denied or were
killed.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from shardbus_spark.client import ASK_S, ASK_TIMEOUT_S, Document
from shardbus_spark.errors import BatchDiffers, ShardbusError, Unavailable
from shardbus_spark.reading import client_for
from shardbus_spark.sink_options import SinkOptions

BEAT_S: Final = 300.0
"""How often a task renews the stages of its job; stages end an hour after the last renewal."""
TIDY_S: Final = 10.0


@dataclass
class Staged(WriterCommitMessage):
    """What one task attempt staged; `stage` is empty when it had no rows."""

    producer: str
    job: str
    stage: str
    rows: int
    digest: int


def new_job() -> str:
    return uuid.uuid4().hex[:16]


def stage(
    options: SinkOptions,
    producer: str,
    job: str,
    batches: Iterator[pa.RecordBatch],
    *,
    is_past: bool = False,
) -> Staged:
    """Put rows on the bus, under a name that no other attempt has."""
    client = client_for(options.address)
    name = f"{job}/{uuid.uuid4().hex[:16]}"

    def prolong() -> None:
        client.act("prolong", options.entity, {"stages": [f"{job}/"]}, retry_s=TIDY_S)

    try:
        with beating(prolong, BEAT_S):
            put = client.stage(
                options.entity, name, batches, wait_s=options.wait_s, is_past=is_past
            )
    except BaseException:
        # In every case: what is left of an attempt counts in its entity for an hour, and in a full
        # one it would prevent the next attempt.
        _forget(options, name)
        raise
    return Staged(producer, job, name if put.rows else "", put.rows, put.digest)


@contextmanager
def beating(beat: Callable[[], None], each_s: float) -> Iterator[None]:
    """Call `beat` again and again, in a thread, while this lasts; failures are ignored."""
    ending = threading.Event()

    def run() -> None:
        while not ending.wait(each_s):
            with suppress(ShardbusError):
                beat()

    thread = threading.Thread(target=run, name="shardbus-beat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ending.set()


def publish(
    options: SinkOptions,
    producer: str,
    batch: int,
    staged: list[Staged],
    *,
    is_once: bool = False,
) -> None:
    """Make all rows of these stages visible; does nothing if the batch was published.

    It is repeated until the result is known. BatchDiffers when it was published with other rows,
    unless the options say to skip that. A producer that publishes `is_once` leaves nothing of
    itself on the bus.
    """
    client = client_for(options.address)
    stages = [{"stage": one.stage, "count": one.rows} for one in staged if one.stage]
    body: Document = {"producer": producer, "batch": batch, "stages": stages}
    body["fingerprint"] = fingerprint(staged)
    if is_once:
        body["once"] = True
    try:
        answer = client.act("publish", options.entity, body, retry_s=ASK_S, timeout_s=ASK_TIMEOUT_S)
    except BatchDiffers:
        if not options.skips_repeated:
            raise
    except Unavailable as error:
        raise Unavailable(
            f"it is unknown whether batch {batch} of {producer} is published: the bus was "
            f"asked for {ASK_S:.0f} s. {error}"
        ) from error
    else:
        if not isinstance(answer.get("is_new"), bool):
            raise ShardbusError(f"the bus did not say whether it published batch {batch}: {answer}")
    if is_once:
        # If this fails the bus forgets the producer by itself.
        with suppress(ShardbusError):
            client.act("forget", options.entity, {"producer": producer}, retry_s=0.0)


def fingerprint(staged: list[Staged]) -> str:
    """The fingerprint of the rows of a batch, whatever tasks staged them: their number, and a
    sum.
    """
    rows = sum(one.rows for one in staged)
    return f"{rows}:{sum(one.digest for one in staged) % (1 << 128):032x}"


def end_job(options: SinkOptions, job: str) -> None:
    """Discard everything that the tasks of a job have staged and nobody has published. What cannot
    be discarded now, and what a running task stages after this, ends by itself.
    """
    _forget(options, f"{job}/")


def staged_by(messages: Sequence[WriterCommitMessage | None]) -> list[Staged]:
    """The results of the tasks that ended."""
    return [message for message in messages if isinstance(message, Staged)]


def _forget(options: SinkOptions, name: str) -> None:
    with suppress(ShardbusError):
        body: Document = {"stages": [name]}
        client_for(options.address).act("discard", options.entity, body, retry_s=TIDY_S)
