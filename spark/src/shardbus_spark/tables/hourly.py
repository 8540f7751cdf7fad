"""Figures for each hour of a table of lifecycle records (P8).

They are computed from the records alone. The file of an hour says of how many records it was made:
a pass computes an hour again only if its number of records has changed. So the figures are right
whatever was interrupted, and compaction, which changes no records, changes nothing here.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, final

import pyarrow as pa
import pyarrow.compute as compute
import pyarrow.parquet as parquet

from shardbus_spark.tables.files import Files
from shardbus_spark.tables.form import form_of
from shardbus_spark.tables.layout import HOUR_MS, Hour, hour_of
from shardbus_spark.tables.reading import captured_files

HOURS: Final = "hours"
KEYS: Final = "keys"
KEYS_SHOWN: Final = 20
# If an hour has more keys, the rarest are forgotten, and counts of keys may be too low.
KEYS_MAX: Final = 100_000
SETTLEMENTS: Final = ("complete", "abandon", "defer", "dead_letter", "release")
"""The events whose `held_ms` is a time to settle."""
PERCENTS: Final = (50, 95, 99)
_PERCENTILES: Final = tuple(f"p{percent}" for percent in PERCENTS)
COUNTS: Final[dict[str, tuple[str, ...]]] = {
    "enqueued": ("enqueue", "publish"),
    "scheduled": ("schedule",),
    "duplicates": ("duplicate",),
    "delivered": ("lock", "receive"),
    "settled": ("complete", "receive", "consume", "forward"),
    "abandoned": ("abandon",),
    "deferred": ("defer",),
    "lost_locks": ("lock_lost",),
    "dead_lettered": ("dead_letter", "transfer_dead_letter"),
    "expired": ("expire",),
}
"""The counts of an hour, and the events that they count."""
_READ: Final = ["fragment", "event", "age_ms", "held_ms", "delivery_count", "size_bytes", "key"]
_ROWS: Final = b"shardbus.records"
# Durations up to this are exact; above, the first eight bits count: less than 1 % is cut off.
_EXACT_BITS: Final = 8

_INTEGER: Final = pa.int64()
_MOMENT: Final = pa.timestamp("us", "UTC")
_TYPES: Final[dict[str, pa.DataType]] = {
    "entity": pa.string(),
    "hour": _MOMENT,
    "fragment": pa.int32(),
    "records": _INTEGER,
    **dict.fromkeys(COUNTS, _INTEGER),
    "redelivered": _INTEGER,
    "enqueued_bytes": _INTEGER,
    **{f"queue_ms_{name}": _INTEGER for name in (*_PERCENTILES, "max")},
    **{f"settle_ms_{name}": _INTEGER for name in (*_PERCENTILES, "max")},
}
_KEY_TYPES: Final[dict[str, pa.DataType]] = {
    "entity": pa.string(),
    "hour": _MOMENT,
    "key": pa.string(),
    "enqueued": _INTEGER,
    "share": pa.float64(),
}
_SCHEMA: Final = pa.schema(_TYPES)
_KEY_SCHEMA: Final = pa.schema(_KEY_TYPES)


@final
class Hourly:
    """The figures of one table of records, in `hours` and `keys` beside it."""

    def __init__(self, records: Files, beside: Files) -> None:
        self._records = records
        self._beside = beside
        # The number of rows of each file that was read; a file never changes.
        self._rows: dict[str, int] = {}

    def update(self) -> int:
        """Compute the hours that have changed; returns their number.

        If compaction removes a file meanwhile, the pass fails, and a later pass computes the hour.
        """
        updated = 0
        for hour, files in self._hours():
            rows = sum(self._rows_of(file) for file in files)
            if rows and rows != self._computed(hour):
                self._compute(hour, files, rows)
                updated += 1
        return updated

    def _hours(self) -> Iterator[tuple[Hour, list[str]]]:
        form = form_of(self._records)
        if form is None:
            return
        found: dict[Hour, list[str]] = {}
        for path in captured_files(self._records, form):
            name = self._records.named(path)
            hour = hour_of(name)
            if hour is not None:
                found.setdefault(hour, []).append(name)
        known = {file for files in found.values() for file in files}
        self._rows = {file: rows for file, rows in self._rows.items() if file in known}
        yield from sorted(found.items())

    def _rows_of(self, file: str) -> int:
        if file not in self._rows:
            self._rows[file] = parquet.read_metadata(self._records.open(file)).num_rows
        return self._rows[file]

    def _place(self, table: str, hour: Hour) -> str:
        return f"{table}/{hour.date}T{hour.hour:02}.parquet"

    def _computed(self, hour: Hour) -> int:
        """The number of records from which the figures of an hour were made; 0 without figures."""
        try:
            there = self._beside.read(self._place(HOURS, hour))
            if there is None:
                return 0
            metadata = parquet.read_schema(io.BytesIO(there.content)).metadata or {}
        except (OSError, pa.ArrowInvalid):
            return 0
        told = metadata.get(_ROWS, b"0")
        return int(told) if told.isdigit() else 0

    def _compute(self, hour: Hour, files: Sequence[str], rows: int) -> None:
        figures = Figures()
        for file in files:
            with parquet.ParquetFile(self._records.open(file)) as opened:
                for batch in opened.iter_batches(columns=_READ, use_threads=False):
                    figures.add(pa.Table.from_batches([batch]))
        whose = {"entity": hour.entity, "hour": datetime.fromtimestamp(_start_s(hour), UTC)}
        keys = [{**whose, **row} for row in figures.hot_keys()]
        hours = [{**whose, **row} for row in figures.rows()]
        self._replace(self._place(KEYS, hour), pa.Table.from_pylist(keys, _KEY_SCHEMA))
        # Last: it says that the hour is complete.
        table = pa.Table.from_pylist(hours, _SCHEMA.with_metadata({_ROWS: str(rows).encode()}))
        self._replace(self._place(HOURS, hour), table)

    def _replace(self, name: str, table: pa.Table) -> None:
        """Replace a file as a whole; readers of the directory skip the name that it has before."""
        content = io.BytesIO()
        parquet.write_table(table, content)
        there = self._beside.read(name)
        self._beside.replace(name, content.getvalue(), "" if there is None else there.version)


@final
class Figures:
    """The figures of any number of records, in bounded memory."""

    def __init__(self) -> None:
        # By fragment; None is all fragments together.
        self._counts: dict[int | None, Counter[str]] = {}
        self._waits: dict[int | None, Counter[int]] = {}
        self._holds: dict[int | None, Counter[int]] = {}
        self._keys: Counter[str] = Counter()

    def add(self, records: pa.Table) -> None:
        """Count rows with the columns of lifecycle records."""
        self._add_counts(records)
        for place, which, duration in (
            (self._waits, _IS_FIRST, "age_ms"),
            (self._holds, _IS_SETTLED, "held_ms"),
        ):
            chosen = records.filter(which & compute.field(duration).is_valid())
            for row in _grouped(chosen, "fragment", duration):
                rounded = _rounded(row.number(duration))
                for fragment in (None, row.number("fragment")):
                    place.setdefault(fragment, Counter())[rounded] += row.count
        entered = records.filter(_IS_ENTERED & compute.field("key").is_valid())
        for row in _grouped(entered, "key"):
            self._keys[row.text("key")] += row.count
        if len(self._keys) > 2 * KEYS_MAX:
            self._keys = Counter(dict(self._keys.most_common(KEYS_MAX)))

    def _add_counts(self, records: pa.Table) -> None:
        for row in _grouped(records, "fragment", "event", "delivery_count"):
            event, count = row.text("event"), row.count
            for fragment in (None, row.number("fragment")):
                counts = self._counts.setdefault(fragment, Counter())
                counts["records"] += count
                for name in _COUNTED.get(event, ()):
                    counts[name] += count
                if event in COUNTS["delivered"] and row.number("delivery_count"):
                    counts["redelivered"] += count
                if event in COUNTS["enqueued"]:
                    counts["enqueued_bytes"] += row.number("size_bytes_sum")

    def rows(self) -> Iterator[dict[str, object]]:
        """One row for all fragments, then one for each."""
        for fragment in sorted(self._counts, key=lambda number: -1 if number is None else number):
            yield {
                "fragment": fragment,
                **{name: self._counts[fragment][name] for name in _NAMES},
                **_times("queue_ms", self._waits.get(fragment, Counter())),
                **_times("settle_ms", self._holds.get(fragment, Counter())),
            }

    def hot_keys(self) -> Iterator[dict[str, object]]:
        """The keys with the most new messages."""
        total = self._counts.get(None, Counter())["enqueued"]
        ordered = sorted(self._keys.items(), key=lambda item: (-item[1], item[0]))
        for key, count in ordered[:KEYS_SHOWN]:
            yield {"key": key, "enqueued": count, "share": count / max(total, 1)}


_NAMES: Final = ("records", *COUNTS, "redelivered", "enqueued_bytes")

_COUNTED: Final = {
    event: [name for name, of in COUNTS.items() if event in of]
    for events in COUNTS.values()
    for event in events
}
_EVENT: Final = compute.field("event")
_IS_ENTERED: Final = _EVENT.isin(list(COUNTS["enqueued"]))
_IS_SETTLED: Final = _EVENT.isin(list(SETTLEMENTS))
# As `core/lifecycle/latency` of the bus has it.
_IS_FIRST: Final = (_EVENT == "receive") | (
    (_EVENT == "lock") & (compute.field("delivery_count") == 0)
)


@final
class _Group:
    """Values of columns, and how many rows have them."""

    def __init__(self, values: Mapping[str, object]) -> None:
        self._values = values
        self.count = self.number("count_all")

    def number(self, name: str) -> int:
        """0 for null."""
        value = self._values[name]
        return value if isinstance(value, int) else 0

    def text(self, name: str) -> str:
        return str(self._values[name])


def _grouped(records: pa.Table, *columns: str) -> Iterator[_Group]:
    """The different values of columns, how many rows have each, and the sum of their sizes."""
    groups = records.group_by(list(columns), use_threads=False)
    found = groups.aggregate([([], "count_all"), ("size_bytes", "sum")])
    return (_Group(row) for row in found.to_pylist())


def _rounded(duration: int) -> int:
    cut = max(duration.bit_length() - _EXACT_BITS, 0)
    return duration >> cut << cut


def _times(name: str, durations: Mapping[int, int]) -> dict[str, object]:
    """Percentiles by nearest rank; null of no durations."""
    total = sum(durations.values())
    ordered = sorted(durations.items())
    found: dict[str, object] = {}
    for percent in PERCENTS:
        rank = max(-(-total * percent // 100), 1)
        seen = 0
        value: int | None = None
        for duration, count in ordered:
            seen += count
            if seen >= rank:
                value = duration
                break
        found[f"{name}_p{percent}"] = value
    found[f"{name}_max"] = ordered[-1][0] if ordered else None
    return found


def _start_s(hour: Hour) -> int:
    return hour.number * HOUR_MS // 1000
