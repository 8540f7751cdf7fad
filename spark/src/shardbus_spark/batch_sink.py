"""`df.write`: rows become messages, every row once, a batch or nothing (P3).

Tasks stage their rows on the bus, durably and invisibly, each attempt under its own id. When Spark
commits, the stages of the successful attempts are published together, once however often Spark
asks. Each fragment shows its part of a batch as a whole, or bite by bite if it is large, one
fragment shortly after the other. Streams are written in the same way (`stream_sink`).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from shardbus_spark.sink_options import SinkOptions
from shardbus_spark.staging import Staged, end_job, new_job, publish, stage, staged_by


class BatchWriter(DataSourceArrowWriter):
    """One write is one batch. With a transaction id it happens once, whoever repeats it; with an
    application's id once for each of its ascending versions.
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
