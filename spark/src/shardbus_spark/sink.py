"""`df.write` and `df.writeStream`: rows become messages, every row once, a batch as a whole (P3).

Tasks stage their rows on the bus, durably and invisibly, each attempt under an id of its own. When
Spark commits, the stages of the attempts that count are published together, once for each batch of
a query however often Spark asks.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from shardbus_spark.errors import ShardbusError
from shardbus_spark.sink_options import SinkOptions
from shardbus_spark.staging import Staged, discard, publish, stage, staged_by


class BatchWriter(DataSourceArrowWriter):
    """One write is one batch; with a transaction id it happens once, whoever repeats it, and with
    an application's id once for each of its versions, which rise.
    """

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._batch = 1
        self._is_once = not options.app_id and not options.transaction_id
        if options.app_id:
            # The bus counts batches from 1.
            self._producer, self._batch = f"txn:{options.app_id}", options.app_version + 1
        else:
            self._producer = f"write:{options.transaction_id or uuid.uuid4().hex}"

    def write(  # type: ignore[override]  # Spark's own Arrow writers narrow it the same way
        self, iterator: Iterator[pa.RecordBatch]
    ) -> Staged:
        return stage(self._options, self._producer, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        staged = staged_by(messages)
        publish(self._options, self._producer, self._batch, staged, is_once=self._is_once)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        discard(self._options, staged_by(messages))


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
        return stage(self._options, f"{name}:{query}", iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        staged = staged_by(messages)
        if staged:
            # The bus counts batches from 1.
            publish(self._options, staged[0].producer, batchId + 1, staged)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        discard(self._options, staged_by(messages))
