"""The hours of a Delta table: compaction, and the end of what nothing refers to any more.

The files are merged here, and not by delta-rs: it lets two compactions of the same files succeed,
after which the table has their rows twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, final
from urllib.parse import unquote

import pyarrow as pa

from shardbus_spark.tables.delta import add_action, committing, open_delta
from shardbus_spark.tables.files import Conflict, Files
from shardbus_spark.tables.layout import PARTITIONS, Hour, hour_from
from shardbus_spark.tables.logged import ATTEMPTS_MAX
from shardbus_spark.tables.merging import merged_file
from shardbus_spark.tables.planning import Compacted, HourFile, Merge
from shardbus_spark.tables.writing import WrittenFile

if TYPE_CHECKING:
    from deltalake import DeltaTable

VACUUM_HOURS: Final = 7 * 24
COMPACTIONS: Final = "shardbus.compaction"
"""The name of the transactions that compact: of two at once, the log takes one."""


@final
class DeltaHours:
    """Compacted by one transaction for each hour, which does not conflict with batches."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def hours(self) -> Iterator[tuple[Hour, Sequence[HourFile]]]:
        actions = pa.table(open_delta(self._files).get_add_actions(flatten=True)).to_pylist()
        found: dict[Hour, list[HourFile]] = {}
        for action in actions:
            date, hour = str(action["partition.date"]), str(action["partition.hour"])
            name = unquote(action["path"])
            file = HourFile(name, action["size_bytes"], action["modification_time"])
            found.setdefault(hour_from(action["partition.entity"], date, hour), []).append(file)
        yield from sorted(found.items())

    def merge(self, merge: Merge, is_told: Callable[[], bool]) -> Compacted | None:
        new = merged_file(self._files, [file.name for file in merge.files], merge.hour, is_told)
        if new is None:
            return None
        for _attempt in range(ATTEMPTS_MAX):
            table = open_delta(self._files)
            there = {self._files.named(path) for path in table.file_uris()}
            if not there.issuperset(file.name for file in merge.files):
                # Also when the answer to a transaction that succeeded was lost.
                break
            try:
                self._replace(table, merge, new)
            except Conflict:
                continue
            return Compacted(1, len(merge.files), 1, merge.size_bytes)
        if new.path not in open_delta(self._files).file_uris():
            self._files.remove([self._files.named(new.path)])
            return None
        return Compacted(1, len(merge.files), 1, merge.size_bytes)

    def _replace(self, table: DeltaTable, merge: Merge, new: WrittenFile) -> None:
        from deltalake import CommitProperties, Transaction
        from deltalake.transaction import RemoveAction

        number = (table.transaction_version(COMPACTIONS) or 0) + 1
        now_ms = time.time_ns() // 1_000_000
        old = [RemoveAction(file.name, False, now_ms, file.size_bytes) for file in merge.files]
        with committing(self._files):
            table.create_write_transaction(
                [*old, add_action(self._files, new, is_new=False)],
                "append",
                table.schema(),
                list(PARTITIONS),
                commit_properties=CommitProperties(
                    # A batch that came meanwhile is a conflict, too: then it is looked again.
                    max_commit_retries=0,
                    app_transactions=[Transaction(COMPACTIONS, number)],
                ),
            )

    def clean(self) -> None:
        # Readers and replays may use their lists of files for this long.
        open_delta(self._files).vacuum(VACUUM_HOURS, dry_run=False, full=True)
