"""The size of a micro-batch, as given by Spark or by the options."""

from __future__ import annotations

from typing import Final

from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
)

from shardbus_spark.options import SourceOptions

NO_LIMIT: Final = 1 << 62


def default_limit(options: SourceOptions, rows_default: int = NO_LIMIT) -> ReadLimit:
    """Spark knows one limit at a time: of two it gets the rows.

    It never gets the limit to read everything, so that it uses that only for Trigger.Once
    (`is_once`).
    """
    if options.rows_max:
        return ReadMaxRows(options.rows_max)
    return ReadMaxBytes(options.bytes_max) if options.bytes_max else ReadMaxRows(rows_default)


def is_once(limit: ReadLimit) -> bool:
    """Whether the batch is to have everything, as with Trigger.Once."""
    return isinstance(limit, ReadAllAvailable)


def bounds(options: SourceOptions, limit: ReadLimit) -> tuple[int, int]:
    """The maximum rows and bytes of a batch; 0 means no bound."""
    if isinstance(limit, ReadAllAvailable):
        return 0, 0
    rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else options.rows_max
    bytes_max = limit.max_bytes if isinstance(limit, ReadMaxBytes) else options.bytes_max
    return rows_max, bytes_max


def shared(amounts: dict[int, int], most: int) -> dict[int, int]:
    """That many of the amounts, from each in proportion and at least one; all if they fit."""
    total = sum(amounts.values())
    return {
        number: amount if not most or total <= most else max(most * amount // total, 1)
        for number, amount in amounts.items()
        if amount
    }
