"""Which hours of a table are worth compacting, and which of their files; only plans."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, final

from shardbus_spark.tables.layout import Hour

TARGET_BYTES: Final = 128 * 1024 * 1024
SMALL_BYTES: Final = TARGET_BYTES // 2
FILES_MIN: Final = 2
HOURS_PER_PASS: Final = 8
BYTES_PER_PASS: Final = 512 * 1024 * 1024
# Messages of an hour may come long after it: they wait on the bus, or are late in a batch.
QUIET_MS: Final = 10 * 60 * 1000


@final
@dataclass(frozen=True, slots=True, order=True)
class HourFile:
    """`name` identifies the file in the table."""

    name: str
    size_bytes: int
    changed_at_ms: int


@final
@dataclass(frozen=True, slots=True)
class Merge:
    """Files of an hour that are to be merged."""

    hour: Hour
    files: tuple[HourFile, ...]

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)


@final
@dataclass(frozen=True, slots=True)
class Compacted:
    """The result of a compaction."""

    hours: int = 0
    files_before: int = 0
    files_after: int = 0
    size_bytes: int = 0

    def plus(self, other: Compacted) -> Compacted:
        return Compacted(
            self.hours + other.hours,
            self.files_before + other.files_before,
            self.files_after + other.files_after,
            self.size_bytes + other.size_bytes,
        )


def is_closed(hour: Hour, files: Iterable[HourFile], now_ms: int) -> bool:
    """Whether an hour is over, and nothing was added to it for a while."""
    changed_at_ms = max((file.changed_at_ms for file in files), default=0)
    return max(hour.ends_at_ms, changed_at_ms) + QUIET_MS <= now_ms


def plan(hours: Iterable[tuple[Hour, Sequence[HourFile]]], now_ms: int) -> list[Merge]:
    """What one pass does, bounded in hours and bytes; the hours with most small files come first.

    Passes come to an end: the files they write are large, except for one per hour.
    """
    merges = [
        Merge(hour, small)
        for hour, files in hours
        if is_closed(hour, files, now_ms) and len(small := _small(files)) >= FILES_MIN
    ]
    merges.sort(key=lambda merge: (-len(merge.files), merge.hour))
    chosen: list[Merge] = []
    left_bytes = BYTES_PER_PASS
    for merge in merges[:HOURS_PER_PASS]:
        if merge.size_bytes <= left_bytes:
            chosen.append(merge)
            left_bytes -= merge.size_bytes
    return chosen


def _small(files: Sequence[HourFile]) -> tuple[HourFile, ...]:
    """As many as a pass may take, in the order of their names, which is that of batches."""
    chosen: list[HourFile] = []
    left_bytes = BYTES_PER_PASS
    for file in sorted(files):
        if file.size_bytes < SMALL_BYTES and file.size_bytes <= left_bytes:
            chosen.append(file)
            left_bytes -= file.size_bytes
    return tuple(chosen)
