"""Moments and durations in options, and rows of a time span."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from shardbus_spark.errors import OptionError

ENQUEUED: Final = "enqueued_time"
RECORDED: Final = "event_time"
_DURATION: Final = re.compile(r"(\d{1,9})\s*(ms|s|m|h|d)?")
_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_TIME: Final = pa.timestamp("us", tz="UTC")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECONDS_MAX: Final = 253_402_300_799_999


@dataclass(frozen=True, slots=True)
class Span:
    """From a moment on, and before another; None means unbounded. `column` has the times."""

    start: datetime | None = None
    stop: datetime | None = None
    column: str = ENQUEUED

    def __bool__(self) -> bool:
        return self.start is not None or self.stop is not None

    def rows_of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows whose time is in it."""
        times = batch.column(self.column)
        if self.start is not None:
            batch = batch.filter(pc.greater_equal(times, pa.scalar(self.start, _TIME)))
            times = batch.column(self.column)
        if self.stop is not None:
            batch = batch.filter(pc.less(times, pa.scalar(self.stop, _TIME)))
        return batch


def moment(name: str, text: str) -> datetime | None:
    """ISO 8601 with a zone, or milliseconds since 1970; None for an empty text."""
    if not text:
        return None
    try:
        if text.isascii() and text.isdigit() and int(text) <= _MILLISECONDS_MAX:
            return _EPOCH + timedelta(milliseconds=int(text))
        found = datetime.fromisoformat(text)
        if found.tzinfo is not None:
            return found.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise OptionError(
        f"{name} is {text!r}; it must be a time with its zone, like 2026-11-16T10:00:00Z, or "
        "milliseconds since 1970"
    )


def duration_s(name: str, text: str, default_s: float) -> float:
    """A number and ms, s, m, h or d; milliseconds without a unit."""
    if not text:
        return default_s
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None:
        raise OptionError(f"{name} is {text!r}; it must be like 30s, 15m or 1h")
    return int(found[1]) * _UNITS_MS[found[2] or "ms"] / 1000
