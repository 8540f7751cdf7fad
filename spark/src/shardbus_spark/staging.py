"""What writers do on the bus: tasks stage their rows, and a commit publishes the chosen stages."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from shardbus_spark.client import Document
from shardbus_spark.errors import BatchDiffers, ShardbusError
from shardbus_spark.reading import client_for
from shardbus_spark.sink_options import SinkOptions


@dataclass
class Staged(WriterCommitMessage):
    """What one task attempt left on the bus; `stage` is empty when it had no rows."""

    producer: str
    stage: str
    rows: int
    digest: int


def stage(options: SinkOptions, producer: str, batches: Iterator[pa.RecordBatch]) -> Staged:
    """Put rows on the bus, under a name that no other attempt has."""
    name = uuid.uuid4().hex
    try:
        put = client_for(options.address).stage(options.entity, name, batches)
    except ShardbusError:
        # In a full entity what is left of an attempt would keep the next one out for an hour.
        with suppress(ShardbusError):
            _discard(options, [name])
        raise
    return Staged(producer, name if put.rows else "", put.rows, put.digest)


def publish(
    options: SinkOptions,
    producer: str,
    batch: int,
    staged: list[Staged],
    *,
    is_once: bool = False,
) -> None:
    """All rows of these stages become visible; nothing happens if the batch was published.

    BatchDiffers when it was published with other rows, unless the options say to skip that. A
    producer that publishes `is_once` leaves nothing of itself on the bus.
    """
    client = client_for(options.address)
    stages = [{"stage": one.stage, "count": one.rows} for one in staged if one.stage]
    body: Document = {"producer": producer, "batch": batch, "stages": stages}
    body["fingerprint"] = fingerprint(staged)
    if is_once:
        body["once"] = True
    try:
        client.act("publish", options.entity, body)
    except BatchDiffers:
        if not options.skips_repeated:
            raise
        discard(options, staged)
    if is_once:
        # What cannot be told now the bus forgets by itself.
        with suppress(ShardbusError):
            client.act("forget", options.entity, {"producer": producer}, retry_s=0.0)


def fingerprint(staged: list[Staged]) -> str:
    """What the rows of a batch are known by, whatever tasks staged them: how many, and a sum."""
    rows = sum(one.rows for one in staged)
    return f"{rows}:{sum(one.digest for one in staged) % (1 << 128):032x}"


def discard(options: SinkOptions, staged: list[Staged]) -> None:
    """Stages run out by themselves; a task that was killed has left some that nobody knows of."""
    _discard(options, [one.stage for one in staged if one.stage])


def staged_by(messages: Sequence[WriterCommitMessage | None]) -> list[Staged]:
    """What tasks said, those that ended."""
    return [message for message in messages if isinstance(message, Staged)]


def _discard(options: SinkOptions, names: list[str]) -> None:
    if names:
        client_for(options.address).act("discard", options.entity, {"stages": names})
