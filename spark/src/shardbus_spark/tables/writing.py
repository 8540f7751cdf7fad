"""Writes rows to Parquet files, one for each hour."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import BinaryIO, Final, final

import pyarrow as pa
import pyarrow.compute as compute
import pyarrow.parquet as parquet
from pyspark.sql.types import StructType

from shardbus_spark.errors import OptionError, ShardbusError, TableNotWritten
from shardbus_spark.tables.files import NewFile
from shardbus_spark.tables.fingerprint import digest_of
from shardbus_spark.tables.layout import HOUR_MS, Hour

TIME: Final = "enqueued_time"
# A task holds as many row groups as it has hours open.
HOURS_OPEN_MAX: Final = 8
ROW_GROUP_BYTES: Final = 16 * 1024 * 1024
COMPRESSION: Final = "zstd"

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_HOUR_US: Final = HOUR_MS * 1000
_TYPES: Final[dict[str, pa.DataType]] = {
    "bigint": pa.int64(),
    "int": pa.int32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "string": pa.string(),
    "binary": pa.binary(),
    "map<string,string>": pa.map_(pa.string(), pa.string()),
    "double": pa.float64(),
    "float": pa.float32(),
    "smallint": pa.int16(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
}

Placed = Callable[[Hour], NewFile]
_Opened = dict[Hour, tuple["FileWriter", NewFile]]


@final
@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A file that is durable; `statistics` is JSON in Delta's form, and `digest` the fingerprint of
    its rows.
    """

    path: str
    hour: Hour
    rows: int
    size_bytes: int
    statistics: str
    digest: int


def arrow_schema(schema: StructType, time: str = TIME) -> pa.Schema:
    """The file schema for rows of this schema; OptionError for one that cannot be captured."""
    for column in schema.fields:
        if column.dataType.simpleString() not in _TYPES:
            raise OptionError(
                f"column {column.name} is {column.dataType.simpleString()}; the types of a "
                f"captured table are {', '.join(_TYPES)}"
            )
    if time not in schema.names or schema[time].dataType.simpleString() != "timestamp":
        raise OptionError(
            f"there is no column {time} of type timestamp, which selects the directory of a row: "
            "add it to the results"
        )
    return pa.schema(
        [pa.field(column.name, _TYPES[column.dataType.simpleString()]) for column in schema.fields]
    )


def with_columns(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows of an earlier version have null in later columns."""
    for field in schema:
        if field.name not in rows.schema.names:
            rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
    return rows.select(schema.names)


def write_hours(
    batches: Iterable[pa.RecordBatch],
    schema: pa.Schema,
    entity: str,
    placed: Placed,
    time: str = TIME,
) -> list[WrittenFile]:
    """Write rows to new files, in the places of `placed`, by the hours of the column `time`; all
    are durable on return.
    """
    written: list[WrittenFile] = []
    opened: _Opened = {}
    for batch in batches:
        for number, rows in _by_hour(pa.Table.from_batches([batch]).cast(schema), time):
            hour = Hour(entity, number)
            pair = opened.pop(hour, None)
            if pair is None:
                if len(opened) == HOURS_OPEN_MAX:
                    written.append(_closed(opened, next(iter(opened))))
                new = placed(hour)
                pair = FileWriter(new.sink, schema, ROW_GROUP_BYTES), new
            # At the end: the hour that was not written to for longest is closed first.
            opened[hour] = pair
            writer = pair[0]
            writer.put(rows)
            writer.digest += digest_of(rows)
    written.extend([_closed(opened, hour) for hour in list(opened)])
    return written


def _closed(opened: _Opened, hour: Hour) -> WrittenFile:
    writer, new = opened.pop(hour)
    metadata = writer.close()
    with _named(Path(new.path)):
        size_bytes = new.finish()
    told = json.dumps(statistics(metadata))
    return WrittenFile(new.path, hour, metadata.num_rows, size_bytes, told, writer.digest)


def _by_hour(rows: pa.Table, time: str) -> Iterator[tuple[int, pa.Table]]:
    if rows.num_rows == 0:
        return
    times = rows[time]
    if times.null_count:
        raise ShardbusError(
            f"rows without {time} cannot be stored, because it selects their directory: leave them "
            f"out ({time} IS NOT NULL), or give them a time"
        )
    hours = compute.divide(times.cast(pa.int64()), _HOUR_US)
    numbers = [number for number in compute.unique(hours).to_pylist() if number is not None]
    if len(numbers) == 1:
        yield numbers[0], rows
        return
    for number in sorted(numbers):
        yield number, rows.filter(compute.equal(hours, pa.scalar(number)))


@final
class FileWriter:
    """One Parquet file; rows are held until they are worth a row group."""

    def __init__(self, sink: Path | BinaryIO, schema: pa.Schema, row_group_bytes: int) -> None:
        self._sink = sink
        self._schema = schema
        self._row_group_bytes = row_group_bytes
        with _named(sink):
            self._writer = parquet.ParquetWriter(sink, schema, compression=COMPRESSION)
        self._held: list[pa.Table] = []
        self._held_bytes = 0
        # The digest of all rows.
        self.digest = 0

    def put(self, rows: pa.Table) -> None:
        self._held.append(rows)
        self._held_bytes += rows.nbytes
        if self._held_bytes >= self._row_group_bytes:
            with _named(self._sink):
                self._flush()

    def close(self) -> parquet.FileMetaData:
        """The metadata of the file, which is whole but perhaps not durable."""
        with _named(self._sink):
            self._flush()
            self._writer.close()
            return parquet.read_metadata(self._sink)

    def _flush(self) -> None:
        if self._held:
            rows = pa.concat_tables(self._held)
            self._writer.write_table(rows, row_group_size=max(rows.num_rows, 1))
        self._held = []
        self._held_bytes = 0


@contextmanager
def _named(sink: Path | BinaryIO) -> Iterator[None]:
    """The errors of a disk, with the name of the file."""
    try:
        yield
    except OSError as error:
        why = os.strerror(error.errno) if error.errno else str(error)
        name = str(sink) if isinstance(sink, Path) else "a temporary file"
        raise TableNotWritten(
            f"{name} cannot be written: {why}. Nothing of its batch is in the table; the batch is "
            "written when that is mended"
        ) from error


def statistics(metadata: parquet.FileMetaData) -> dict[str, object]:
    """Delta's statistics: the number of rows, and for numbers and times the minimum, the maximum,
    and the number of nulls.
    """
    bounds: dict[str, _Bounds] = {}
    missing: dict[str, int] = {}
    for group in range(metadata.num_row_groups):
        row_group = metadata.row_group(group)
        for index in range(row_group.num_columns):
            chunk = row_group.column(index)
            known, name = chunk.statistics, chunk.path_in_schema
            if known is None or "." in name:
                continue
            missing[name] = missing.get(name, 0) + (known.null_count or 0)
            low, high = known.min, known.max
            if isinstance(low, bool):
                continue
            if isinstance(low, int | datetime) and isinstance(high, int | datetime):
                bounds.setdefault(name, _Bounds()).widen(low, high)
    return {
        "numRecords": metadata.num_rows,
        "minValues": {name: both.least() for name, both in bounds.items()},
        "maxValues": {name: both.greatest() for name, both in bounds.items()},
        "nullCount": missing,
    }


@final
class _Bounds:
    def __init__(self) -> None:
        self._values: list[int] = []
        self._is_time = False

    def widen(self, low: int | datetime, high: int | datetime) -> None:
        self._is_time = isinstance(low, datetime)
        values = [*self._values, _number(low), _number(high)]
        self._values = [min(values), max(values)]

    def least(self) -> object:
        return _time(self._values[0] // 1000) if self._is_time else self._values[0]

    def greatest(self) -> object:
        # Delta has milliseconds: rounded up, so that no value is above.
        return _time(-(-self._values[1] // 1000)) if self._is_time else self._values[1]


def _number(value: int | datetime) -> int:
    if isinstance(value, int):
        return value
    return (value.replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1)


def _time(at_ms: int) -> str:
    return f"{_EPOCH + timedelta(milliseconds=at_ms):%Y-%m-%dT%H:%M:%S.%f}"[:-3] + "Z"
