"""`df.write` and `df.writeStream`: rows become messages, every row once, a batch as a whole (P3).

Tasks stage their rows on the bus, durably and invisibly, each attempt under an id of its own. When
Spark commits, the stages of the attempts that count are published together, once for each batch of
a query however often Spark asks.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from shardbus_spark.errors import ShardbusError
from shardbus_spark.reading import client_for
from shardbus_spark.sink_options import SinkOptions


@dataclass
class Staged(WriterCommitMessage):
    """What one task attempt left on the bus; `stage` is empty when it had no rows."""

    producer: str
    stage: str
    rows: int


class BatchWriter(DataSourceArrowWriter):
    """One write is one batch; with a transaction id it happens once, whoever repeats it."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._producer = f"write:{options.transaction_id or uuid.uuid4().hex}"

    def write(  # type: ignore[override]  # Spark's own Arrow writers narrow it the same way
        self, iterator: Iterator[pa.RecordBatch]
    ) -> Staged:
        return _stage(self._options, self._producer, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        _publish(self._options, self._producer, 1, _staged(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        _discard(self._options, _staged(messages))


class StreamWriter(DataSourceStreamArrowWriter):
    """A micro-batch is published once for its query, however often it is run."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(  # type: ignore[override]  # Spark's own Arrow writers narrow it the same way
        self, iterator: Iterator[pa.RecordBatch]
    ) -> Staged:
        context = TaskContext.get()
        query = None if context is None else context.getLocalProperty("sql.streaming.queryId")
        if not query:
            raise ShardbusError(
                "Spark does not say which query this is, so its rows could not be told from those "
                "of another: write with foreachBatch and a transactionId instead"
            )
        name = self._options.producer or "stream"
        return _stage(self._options, f"{name}:{query}", iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        staged = _staged(messages)
        if staged:
            # The bus counts batches from 1.
            _publish(self._options, staged[0].producer, batchId + 1, staged)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        _discard(self._options, _staged(messages))


def _stage(options: SinkOptions, producer: str, batches: Iterator[pa.RecordBatch]) -> Staged:
    stage = uuid.uuid4().hex
    rows = client_for(options.address).stage(options.entity, stage, batches)
    return Staged(producer, stage if rows else "", rows)


def _publish(options: SinkOptions, producer: str, batch: int, staged: list[Staged]) -> None:
    body = {
        "producer": producer,
        "batch": batch,
        "stages": [{"stage": one.stage, "count": one.rows} for one in staged if one.stage],
    }
    client_for(options.address).act("publish", options.entity, body)


def _discard(options: SinkOptions, staged: list[Staged]) -> None:
    """Stages run out by themselves; a task that failed has left some that nobody knows of."""
    stages = [one.stage for one in staged if one.stage]
    if stages:
        client_for(options.address).act("discard", options.entity, {"stages": stages})


def _staged(messages: Sequence[WriterCommitMessage | None]) -> list[Staged]:
    return [message for message in messages if isinstance(message, Staged)]
