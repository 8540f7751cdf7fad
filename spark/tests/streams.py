"""Streams as Spark drives them, without Spark."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows
from spark.tests.fake_lane import FakeLane

from shardbus_spark.browsing import BrowseStream
from shardbus_spark.consuming import ConsumeStream
from shardbus_spark.offsets import Offset
from shardbus_spark.options import read_options

COLUMNS: Final = ["body"]
EVERYTHING: Final = ReadAllAvailable()
Stream = BrowseStream | ConsumeStream


def consuming(lane: FakeLane, **options: str) -> ConsumeStream:
    given = {"endpoint": lane.url, "mode": "consume", "readerName": "r", "entity": "orders"}
    return ConsumeStream(read_options({**given, **options}), COLUMNS)


def browsing(lane: FakeLane, **options: str) -> BrowseStream:
    given = {"endpoint": lane.url, "entity": "orders"}
    return BrowseStream(read_options({**given, **options}), COLUMNS)


def plan(stream: Stream, start: Offset, limit: ReadLimit | None = None) -> Offset:
    """The end of the next batch, through the text that Spark makes of it."""
    return as_stored(stream.latestOffset(start, limit or stream.getDefaultReadLimit()))


def as_stored(offset: Offset) -> Offset:
    stored: Offset = json.loads(json.dumps(offset))
    return stored


def run(stream: DataSourceStreamReader, start: Offset, end: Offset) -> list[str]:
    """The bodies of a batch, sorted."""
    return bodies(stream, stream.partitions(start, end))


def bodies(
    stream: DataSourceStreamReader | DataSourceReader, partitions: Sequence[InputPartition]
) -> list[str]:
    return sorted(
        body
        for partition in partitions
        for batch in stream.read(partition)
        for body in texts(batch)
    )


def texts(batch: object) -> list[str]:
    """The bodies of a record batch."""
    assert isinstance(batch, pa.RecordBatch)
    values: list[object] = list(batch.column("body").to_pylist())
    return [value.decode() for value in values if isinstance(value, bytes)]


def rows(most: int) -> ReadMaxRows:
    return ReadMaxRows(most)
