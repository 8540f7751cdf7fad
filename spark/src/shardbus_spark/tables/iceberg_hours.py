"""The hours of an Iceberg table: compaction, and the end of what nothing refers to any more."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, final

from shardbus_spark.errors import ShardbusError
from shardbus_spark.tables.files import Conflict, Files
from shardbus_spark.tables.iceberg import data_files
from shardbus_spark.tables.iceberg_metadata import open_iceberg
from shardbus_spark.tables.layout import Hour, hour_of
from shardbus_spark.tables.merging import merged_file
from shardbus_spark.tables.planning import Compacted, HourFile, Merge

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table

KEPT: Final = timedelta(days=7)


@final
class IcebergHours:
    """Compacted by one snapshot for each hour, which does not conflict with batches."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def hours(self) -> Iterator[tuple[Hour, Sequence[HourFile]]]:
        table = open_iceberg(self._files)
        changed = {file.name: file.changed_at_ms for file in self._files.names("")}
        found: dict[Hour, list[HourFile]] = {}
        for file in data_files(table):
            name = self._files.named(file.file_path)
            hour = hour_of(name)
            if hour is not None:
                size_bytes = file.file_size_in_bytes
                described = HourFile(name, size_bytes, changed.get(name, 0))
                found.setdefault(hour, []).append(described)
        yield from sorted(found.items())

    def merge(self, merge: Merge, is_told: Callable[[], bool]) -> Compacted | None:
        """None, and nothing is changed, when told to end, or when another process changes the
        table.
        """
        table = open_iceberg(self._files)
        names = {file.name for file in merge.files}
        old = [file for file in data_files(table) if self._files.named(file.file_path) in names]
        if len(old) != len(names):
            return None
        new = merged_file(self._files, sorted(names), merge.hour, is_told)
        if new is None:
            return None
        try:
            self._replace(table, old, new.path)
        except Conflict:
            # If the answer to a commit was lost, the table has the file.
            now = {file.file_path for file in data_files(open_iceberg(self._files))}
            if new.path not in now:
                self._files.remove([self._files.named(new.path)])
                return None
        return Compacted(1, len(old), 1, merge.size_bytes)

    def _replace(self, table: Table, old: Sequence[DataFile], path: str) -> None:
        from pyiceberg.io.pyarrow import parquet_file_to_data_file

        change = table.transaction()
        new = parquet_file_to_data_file(table.io, change.table_metadata, path)
        if new.record_count != sum(file.record_count for file in old):
            raise ShardbusError(f"{path} was not made: rows would be lost or duplicated")
        with change.update_snapshot().overwrite() as replaced:
            for file in old:
                replaced.delete_data_file(file)
            replaced.append_data_file(new)
        change.commit_transaction()

    def clean(self) -> None:
        """Forget snapshots that are older than a week, and remove files to which no snapshot
        refers and which are as old.
        """
        table = open_iceberg(self._files)
        before = datetime.now(UTC) - KEPT
        if any(one.timestamp_ms < before.timestamp() * 1000 for one in table.snapshots()):
            table.maintenance.expire_snapshots().older_than(before).commit()
        kept = self._referred(table)
        oldest_ms = (time.time_ns() // 1_000_000) - int(KEPT.total_seconds() * 1000)
        self._files.remove(
            [
                file.name
                for file in self._files.names("")
                if file.changed_at_ms < oldest_ms
                and file.name not in kept
                and (hour_of(file.name) is not None or file.name.endswith(".avro"))
            ]
        )

    def _referred(self, table: Table) -> set[str]:
        """The names of all files that snapshots refer to."""
        found: set[str] = set()
        for snapshot in table.snapshots():
            found.add(snapshot.manifest_list)
            for manifest in snapshot.manifests(table.io):
                found.add(manifest.manifest_path)
                entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
                found |= {entry.data_file.file_path for entry in entries}
        return {self._files.named(path) for path in found}
