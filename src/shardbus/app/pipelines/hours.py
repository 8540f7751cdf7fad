"""The figures of hours that a lifecycle pipeline keeps, read for plots (P8).

The driver writes a file for each hour (`shardbus_spark/tables/hourly.py`) and replaces it as a
whole, so a file is read as it was at one moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from shardbus.app.pipelines.definition import Definition
from shardbus.core.errors import NOT_ALLOWED, Refused, Unavailable
from shardbus.gateway.http.api.documents import HotKey, PipelineHours
from shardbus.gateway.http.moment import format_moment

if TYPE_CHECKING:
    import pyarrow as pa

HOURS_MAX: Final = 168
"""A week: the newest hours that have records, and those between them."""
HOUR_MS: Final = 3_600_000
_NAME: Final = "%Y-%m-%dT%H.parquet"
_OTHERS: Final = ("entity", "hour", "fragment")

Row = dict[str, object]


async def hours_of(definition: Definition, locate: Callable[[str], str]) -> PipelineHours:
    """Refused for a pipeline that keeps no such figures."""
    task = definition.task
    if not task.figures_path:
        raise Refused(
            NOT_ALLOWED,
            f"Pipeline {definition.name} is of the kind {task.kind}, which keeps no figures of "
            "hours: the kind lifecycle does.",
        )
    return await asyncio.to_thread(read_hours, Path(locate(task.figures_path)))


def read_hours(directory: Path) -> PipelineHours:
    """The figures of a table of lifecycle records; without any hour when there are none yet."""
    files = _files(directory / "hours")
    if not files:
        return PipelineHours(
            step_ms=HOUR_MS, first_at=format_moment(0), count=0, series={}, keys=[]
        )
    last_ms = max(files)
    first_ms = max(min(files), last_ms - (HOURS_MAX - 1) * HOUR_MS)
    rows = {at_ms: _total(files[at_ms]) for at_ms in files if at_ms >= first_ms}
    names = dict.fromkeys(name for row in rows.values() for name in row if name not in _OTHERS)
    moments = range(first_ms, last_ms + 1, HOUR_MS)
    series = {name: [_number(rows.get(at_ms, {}).get(name)) for at_ms in moments] for name in names}
    return PipelineHours(
        step_ms=HOUR_MS,
        first_at=format_moment(first_ms),
        count=len(moments),
        series=series,
        keys=_keys(directory / "keys" / files[last_ms].name),
    )


def _files(directory: Path) -> dict[int, Path]:
    """The files by the hours that they are about."""
    found: dict[int, Path] = {}
    for file in directory.glob("*.parquet"):
        try:
            hour = datetime.strptime(file.name, _NAME).replace(tzinfo=UTC)
        except ValueError:
            continue  # Of somebody else, or not finished.
        found[int(hour.timestamp()) * 1000] = file
    return found


def _total(file: Path) -> Row:
    """The row of all fragments."""
    rows: list[Row] = _table(file).to_pylist()
    return next((row for row in rows if row.get("fragment") is None), {})


def _keys(file: Path) -> list[HotKey]:
    if not file.exists():
        return []
    rows: list[Row] = _table(file).to_pylist()
    return [
        HotKey(
            key=str(row.get("key")),
            enqueued=int(_number(row.get("enqueued")) or 0),
            share=_number(row.get("share")) or 0.0,
        )
        for row in rows
    ]


def _table(file: Path) -> pa.Table:
    # Imported here, so that a bus without pipelines does not load it.
    import pyarrow as pa
    import pyarrow.parquet as parquet

    try:
        with parquet.ParquetFile(file) as opened:
            return opened.read(use_threads=False)
    except (OSError, pa.ArrowInvalid) as error:
        raise Unavailable(f"The figures in {file} cannot be read: {error}.") from error


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None
