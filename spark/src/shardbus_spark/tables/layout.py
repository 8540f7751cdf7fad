"""The files of a captured table: below entity, date and hour of enqueueing, in UTC."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, final
from urllib.parse import quote, unquote

PARTITIONS: Final = ("entity", "date", "hour")
CHECKPOINT: Final = "_checkpoint"
# Readers of directories skip names that begin with an underscore.
OWN: Final = "_shardbus"
SUFFIX: Final = ".parquet"
HOUR_MS: Final = 3_600_000


@final
@dataclass(frozen=True, slots=True, order=True)
class Hour:
    """One directory of a table; `number` counts hours since 1970."""

    entity: str
    number: int

    @property
    def date(self) -> str:
        return f"{self._start():%Y-%m-%d}"

    @property
    def hour(self) -> int:
        return self.number % 24

    @property
    def ends_at_ms(self) -> int:
        return (self.number + 1) * HOUR_MS

    @property
    def directory(self) -> str:
        return f"entity={quote(self.entity, safe='')}/date={self.date}/hour={self.hour:02}"

    def _start(self) -> datetime:
        return datetime.fromtimestamp(self.number * HOUR_MS // 1000, UTC)


def hour_from(entity: str, date: str, hour: str) -> Hour:
    """ValueError when there is no such hour."""
    start = datetime.strptime(date, "%Y-%m-%d").replace(hour=int(hour), tzinfo=UTC)
    return Hour(entity, int(start.timestamp()) * 1000 // HOUR_MS)


def hour_of(name: str) -> Hour | None:
    """The hour of a Parquet file by its name in the table; None for other files."""
    parts = [part.partition("=") for part in name.split("/")[:-1]]
    if tuple(part[0] for part in parts) != PARTITIONS or not name.endswith(SUFFIX):
        return None
    try:
        return hour_from(unquote(parts[0][2]), parts[1][2], parts[2][2])
    except ValueError:
        # A directory of another program; its contents are ignored.
        return None


def hours_in(root: Path) -> Iterator[tuple[Hour, Path]]:
    """The hours of a table, in order, by its directories."""
    for directory in sorted(root.glob("entity=*/date=*/hour=*")):
        values = [part.partition("=")[2] for part in directory.relative_to(root).parts]
        try:
            yield hour_from(unquote(values[0]), values[1], values[2]), directory
        except ValueError:
            # A directory of another program; its contents are ignored.
            continue


def files_in(directory: Path) -> list[Path]:
    """The Parquet files of one hour, in the order of their names."""
    return sorted(file for file in directory.iterdir() if file.name.endswith(SUFFIX))
