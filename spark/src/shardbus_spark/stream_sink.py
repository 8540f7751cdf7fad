"""`df.writeStream`: a micro-batch is published once, as a whole, however often Spark runs it
(P3).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from shardbus_spark.errors import ShardbusError
from shardbus_spark.sink_options import SinkOptions
from shardbus_spark.staging import Staged, end_job, publish, stage, staged_by


class StreamWriter(DataSourceStreamArrowWriter):
    """A micro-batch is published once for its query, however often it is run."""

    def __init__(self, options: SinkOptions, use: str) -> None:
        """`use` is the same for all writers of one start of a query, and unique to it.

        Spark makes a writer for the tasks and one to commit or abort each batch.
        """
        self._options = options
        self._use = use

    def write(  # type: ignore[override]  # Spark's own Arrow writers narrow it the same way
        self, iterator: Iterator[pa.RecordBatch]
    ) -> Staged:
        context = TaskContext.get()
        query = None if context is None else context.getLocalProperty("sql.streaming.queryId")
        if not query:
            raise ShardbusError(
                "Spark does not report which query this is, so its rows could not be told "
                "from those of another: write with foreachBatch and a transactionId instead"
            )
        name = self._options.producer or "stream"
        assert context is not None, "who told the query is there"
        job = self._job_of(context.getLocalProperty("streaming.sql.batchId"))
        return stage(self._options, f"{name}:{query}", job, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        staged = staged_by(messages)
        if staged:
            # The bus counts batches from 1.
            publish(self._options, staged[0].producer, batchId + 1, staged)
            end_job(self._options, staged[0].job)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        # Tasks that have all failed report nothing, but may have staged rows.
        end_job(self._options, self._job_of(batchId))

    def _job_of(self, batch: object) -> str:
        """The job of a batch's tasks, which runs once: a query ends with a failed batch."""
        return hashlib.blake2b(f"{self._use}/{batch}".encode(), digest_size=8).hexdigest()
