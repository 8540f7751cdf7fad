"""The sink for a slice of a replay: staged by its tasks, published as one numbered batch.

The general sink makes each write its own producer; a replay has thousands of slices and is one
producer, whose batches the bus accepts once and in order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from shardbus_spark.schema import check_written
from shardbus_spark.sink_options import SinkOptions, read_sink_options
from shardbus_spark.staging import Staged, end_job, new_job, publish, stage, staged_by

FORMAT: Final = "shardbus_replay"
_PRODUCER: Final = "producerName"
_BATCH: Final = "batch"
PAST: Final = "sequence_number"
"""With this column, rows are messages that the topic of a subscription published before."""


@final
class SliceSink(DataSource):
    """A sink with the options of a write, and the number of the batch."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def writer(self, schema: StructType, overwrite: bool) -> SliceWriter:
        is_past = PAST in schema.names
        check_written(StructType([field for field in schema if field.name != PAST]))
        given = {name: value for name, value in self.options.items() if name != _BATCH}
        options = read_sink_options(given).for_tasks()
        return SliceWriter(options, int(self.options[_BATCH]), is_past=is_past)


@final
class SliceWriter(DataSourceArrowWriter):
    """One batch of a producer; repeating a published one does nothing."""

    def __init__(self, options: SinkOptions, batch: int, *, is_past: bool) -> None:
        self._options = options
        self._batch = batch
        self._is_past = is_past
        self._job = new_job()

    def write(  # type: ignore[override]  # Spark's own Arrow writers narrow it the same way
        self, iterator: Iterator[pa.RecordBatch]
    ) -> Staged:
        return stage(
            self._options, self._options.producer, self._job, iterator, is_past=self._is_past
        )

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        publish(self._options, self._options.producer, self._batch, staged_by(messages))
        end_job(self._options, self._job)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        end_job(self._options, self._job)


def write_slice(rows: DataFrame, options: dict[str, str], producer: str, batch: int) -> None:
    """Write all rows as one batch, or none; does nothing when the batch was published before."""
    given = {**options, _PRODUCER: producer, _BATCH: str(batch)}
    rows.write.format(FORMAT).options(**given).mode("append").save()
