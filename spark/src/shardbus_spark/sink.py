"""`df.write` and `df.writeStream`: rows become messages, every row once, a batch or nothing (P3).

Tasks stage their rows on the bus, durably and invisibly, each attempt under an id of its own. When
Spark commits, the stages of the attempts that count are published together, once for each batch of
a query however often Spark asks. Each fragment shows its part of a batch as a whole, or bite by
bite if it is large, one fragment shortly after the other.
"""

from __future__ import annotations

import hashlib
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
from shardbus_spark.staging import Staged, end_job, new_job, publish, stage, staged_by


class BatchWriter(DataSourceArrowWriter):
    """One write is one batch; with a transaction id it happens once, whoever repeats it, and with
    an application's id once for each of its versions, which rise.
    """

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._job = new_job()
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
        return stage(self._options, self._producer, self._job, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        staged = staged_by(messages)
        publish(self._options, self._producer, self._batch, staged, is_once=self._is_once)
        end_job(self._options, self._job)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        end_job(self._options, self._job)


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
        return stage(self._options, f"{name}:{query}", _job_of(context), iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        staged = staged_by(messages)
        if staged:
            # The bus counts batches from 1.
            publish(self._options, staged[0].producer, batchId + 1, staged)
            end_job(self._options, staged[0].job)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        for job in {one.job for one in staged_by(messages)}:
            end_job(self._options, job)


def _job_of(context: TaskContext | None) -> str:
    """What all tasks of one run of a batch have in common; Spark makes a writer for each part of
    the work, so it cannot be a number that one of them chose.
    """
    assert context is not None, "a task has one"
    names = ("sql.streaming.queryId", "spark.jobGroup.id", "streaming.sql.batchId")
    told = "/".join(str(context.getLocalProperty(name)) for name in names)
    return hashlib.blake2b(told.encode(), digest_size=8).hexdigest()
