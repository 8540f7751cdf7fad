"""Runs the streaming query of a pipeline until it has ended or is told to stop.

A query that is stopped may leave messages claimed. Another query, which claims nothing new, then
completes them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from shardbus_spark.options import BROWSE, CONSUME
from shardbus_spark.pipelines.definition import Definition
from shardbus_spark.pipelines.driver import Run, Stopping
from shardbus_spark.pipelines.events import Teller, say
from shardbus_spark.pipelines.selection import chosen

BATCH_END_S: Final = 15.0
LAST_WORD_S: Final = 5.0
_LOOK_S: Final = 1
_POLL_S: Final = 0.2

Start = Callable[[SparkSession, Mapping[str, str], bool], StreamingQuery]
"""Starts the query with these options of the source; the last argument says whether it ends by
itself.
"""


def run_stream(
    run: Run,
    start: Start,
    *,
    has_begun: bool,
    beside: AbstractContextManager[None] | None = None,
) -> bool:
    """Whether everything was done; false if it was stopped earlier.

    `has_begun`: whether an earlier run may have left a batch. `beside` is entered while the query
    runs.
    """
    definition, stopping = run.definition, run.stopping
    # Java takes long to start, and a query that has never begun has no claims.
    stopping.ends_at_once = not has_begun
    say({"event": "starting"})
    spark = run.session()
    stopping.ends_at_once = False
    teller = Teller()
    spark.streams.addListener(teller)
    options = source_options(definition, run.access)
    try:
        if not stopping.told.is_set():
            with beside or nullcontext():
                query = start(spark, options, definition.flag("once"))
                say({"event": "running"})
                follow(query, stopping)
        is_told = stopping.told.is_set()
        if is_told:
            say({"event": "stopping"})
            # A query that browses claims nothing.
            if not definition.flag("keep") and not stopping.is_cut:
                start(spark, finishing(options), True).awaitTermination()
        if not stopping.is_cut and (definition.flag("once") or not definition.flag("keep")):
            teller.wait_ended(LAST_WORD_S)
    finally:
        spark.stop()
    return not is_told


def source_options(definition: Definition, access: Mapping[str, str]) -> dict[str, str]:
    mode = BROWSE if definition.flag("keep") else CONSUME
    # Write messages as they were sent, not only the contents of the columns.
    options = {**access, "mode": mode, "includeAmqp": "true"}
    if not definition.flag("keep"):
        options["readerName"] = reader_of(definition)
    if definition.number("rows_max"):
        options["maxRowsPerTrigger"] = str(definition.number("rows_max"))
    return options


def finishing(options: Mapping[str, str]) -> dict[str, str]:
    """Options with which a query completes earlier claims, and claims nothing new."""
    return {**options, "finishOnly": "true"}


def reader_of(definition: Definition) -> str:
    """The reader under which messages are claimed."""
    return f"pipeline-{definition.name}"


def source(
    spark: SparkSession, definition: Definition, options: Mapping[str, str], entity: str = ""
) -> DataFrame:
    """The messages of the entity, or of another one, that meet the conditions of the definition."""
    stream = spark.readStream.format("shardbus").options(**options)
    rows = stream.load(entity or definition.entity)
    return chosen(rows, definition.text("where"), definition.text("filters"))


def started(writer: DataStreamWriter, definition: Definition, is_once: bool) -> StreamingQuery:
    named = writer.queryName(definition.name)
    if is_once:
        return named.trigger(availableNow=True).start()
    return named.trigger(processingTime=f"{definition.number('interval_ms')} milliseconds").start()


def follow(query: StreamingQuery, stopping: Stopping) -> None:
    """Wait until the query has ended, or stop it after its batch when told to."""
    while not query.awaitTermination(_LOOK_S):
        if stopping.told.is_set():
            deadline_s = time.monotonic() + BATCH_END_S
            while _has_batch(query, stopping) and time.monotonic() < deadline_s:
                time.sleep(_POLL_S)
            query.stop()
            return


def _has_batch(query: StreamingQuery, stopping: Stopping) -> bool:
    return not stopping.is_cut and bool(query.status["isTriggerActive"])
