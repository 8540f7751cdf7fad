"""Merges many small files into few large ones, for past hours.

Bare Parquet: the new files are written to a directory where no reader looks, which is then
exchanged with that of the hour in one step. A crash at any moment leaves either the old files or
the new ones, and a directory to be removed. Delta and Iceberg replace files in their logs.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, Protocol, final

import pyarrow as pa
import pyarrow.parquet as parquet

from shardbus_spark.errors import ShardbusError
from shardbus_spark.tables.bare import settle
from shardbus_spark.tables.delta import is_delta
from shardbus_spark.tables.delta_hours import DeltaHours
from shardbus_spark.tables.durable import sync, turn
from shardbus_spark.tables.exchange import can_exchange, exchange
from shardbus_spark.tables.files import Directory, files_at
from shardbus_spark.tables.form import DELTA, ICEBERG, PARQUET, SPARK, form_of, read_state
from shardbus_spark.tables.iceberg import need_iceberg
from shardbus_spark.tables.iceberg_hours import IcebergHours
from shardbus_spark.tables.iceberg_metadata import is_iceberg
from shardbus_spark.tables.layout import OWN, SUFFIX, Hour, files_in, hours_in
from shardbus_spark.tables.merging import READ_ROWS, ROW_GROUP_BYTES
from shardbus_spark.tables.planning import TARGET_BYTES, Compacted, HourFile, Merge, plan
from shardbus_spark.tables.writing import FileWriter, with_columns

COMPACTING: Final = f"{OWN}/compacting"
COMPACTING_LOCK: Final = f"{OWN}/compacting.lock"

IsTold = Callable[[], bool]


class CannotCompact(ShardbusError):
    """This table cannot be compacted, now or later."""


class Compactable(Protocol):
    """A table whose hours can be compacted."""

    def hours(self) -> Iterator[tuple[Hour, Sequence[HourFile]]]:
        """All hours and their files."""

    def merge(self, merge: Merge, is_told: IsTold) -> Compacted | None:
        """None, and nothing is changed, when told to end, or if another process changes the
        hour.
        """

    def clean(self) -> None:
        """Remove what interrupted passes and batches have left."""


def compactable(path: str) -> Compactable | None:
    """None when nothing was captured yet; CannotCompact, with the reason, when it is impossible."""
    files = files_at(path)
    form = None if files is None else form_of(files)
    if files is None or form == SPARK:
        raise CannotCompact("tables that Spark's own file sink writes are not compacted")
    if form == DELTA:
        return DeltaHours(files) if is_delta(files) else None
    if form == ICEBERG:
        need_iceberg()
        return IcebergHours(files) if is_iceberg(files) else None
    if form != PARQUET:
        return None
    if not isinstance(files, Directory):
        raise CannotCompact(
            "bare Parquet files in an object store are not compacted, because no step replaces "
            "several objects at once: choose the format delta or iceberg to have few files"
        )
    if not can_exchange(files.root / OWN):
        raise CannotCompact(f"the file system of {path} cannot exchange directories in one step")
    return BareHours(files)


def compact(table: Compactable, now_ms: int, is_told: IsTold) -> Compacted:
    """One pass: as much as `planning` allows, or until it is told to end."""
    done = Compacted()
    for merge in plan(table.hours(), now_ms):
        made = None if is_told() else table.merge(merge, is_told)
        done = done if made is None else done.plus(made)
    return done


@final
class BareHours:
    """The hours of bare Parquet."""

    def __init__(self, files: Directory) -> None:
        self._files, self._root = files, files.root

    def hours(self) -> Iterator[tuple[Hour, Sequence[HourFile]]]:
        for hour, directory in hours_in(self._root):
            yield hour, [_described(file) for file in files_in(directory)]

    def merge(self, merge: Merge, is_told: IsTold) -> Compacted | None:
        # One at a time: the holder of the turn knows that all other leftovers can be removed.
        with turn(self._root / COMPACTING_LOCK):
            self._remove_leftovers()
            try:
                return self._merge(merge, is_told)
            finally:
                self._remove_leftovers()

    def clean(self) -> None:
        with turn(self._root / COMPACTING_LOCK):
            self._remove_leftovers()

    def _remove_leftovers(self) -> None:
        """New files that were not exchanged, or old ones that were."""
        shutil.rmtree(self._root / COMPACTING, ignore_errors=True)

    def _merge(self, merge: Merge, is_told: IsTold) -> Compacted | None:
        directory = self._root / merge.hour.directory
        before = files_in(directory)
        new = self._root / COMPACTING / uuid.uuid4().hex
        new.mkdir(parents=True)
        merged = [directory / file.name for file in merge.files]
        made = _merged(merged, new, is_told)
        if made is None:
            return None
        for file in set(before) - set(merged):
            os.link(file, new / file.name)
        if _rows(files_in(new)) != _rows(before):
            raise ShardbusError(f"{directory} was not compacted: rows would be lost or duplicated")
        sync([*files_in(new), new, new.parent])
        if not self._exchange(directory, before, new):
            return None
        return Compacted(1, len(merged), made, merge.size_bytes)

    def _exchange(self, directory: Path, before: Sequence[Path], new: Path) -> bool:
        with self._files.turn():
            state = read_state(self._files)
            if state is not None:
                settle(self._files, state)
            if files_in(directory) != before:
                return False
            exchange(directory, new)
            sync([directory.parent, new.parent])
            return True


def _rows(files: Sequence[Path]) -> int:
    return sum(parquet.read_metadata(file).num_rows for file in files)


def _described(file: Path) -> HourFile:
    told = file.stat()
    return HourFile(file.name, told.st_size, told.st_mtime_ns // 1_000_000)


def _merged(files: Sequence[Path], directory: Path, is_told: IsTold) -> int | None:
    """How many files now have all rows; None when it was told to end."""
    made = 0
    written = directory
    writer: FileWriter | None = None
    schema = pa.unify_schemas([parquet.read_schema(file) for file in files])
    for file in files:
        with parquet.ParquetFile(file) as opened:
            for batch in opened.iter_batches(READ_ROWS, use_threads=False):
                if is_told():
                    return None
                if writer is None:
                    name = f"compact-{files[0].stem.removeprefix('compact-')[:48]}-{made:04}"
                    written = directory / f"{name}-{uuid.uuid4().hex[:8]}{SUFFIX}"
                    writer = FileWriter(written, schema, ROW_GROUP_BYTES)
                    made += 1
                writer.put(with_columns(pa.Table.from_batches([batch]), schema))
        if writer is not None and written.stat().st_size >= TARGET_BYTES:
            writer.close()
            writer = None
    if writer is not None:
        writer.close()
    return made
