"""A Delta table, whose log delta-rs writes: readers need neither Spark nor this package.

Tasks write files in their final places, invisible until Delta's log has them. A batch is one
transaction of the log with the query's id and the number of the batch, so that the table itself
tells whether it has a batch; files in no transaction are removed by a vacuum.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, final

import pyarrow as pa

from shardbus_spark.errors import OptionError, Unavailable
from shardbus_spark.tables.files import Files, NewFile, store_options
from shardbus_spark.tables.form import (
    DELTA,
    DELTA_LOG,
    NO_BATCH,
    State,
    batch_fingerprint,
    check_owner,
    check_repeat,
    discard_unless,
    read_state,
    write_state,
)
from shardbus_spark.tables.layout import PARTITIONS, SUFFIX, Hour
from shardbus_spark.tables.writing import WrittenFile

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from deltalake.transaction import AddAction

ATTEMPTS_MAX: Final = 5
# In an entry of the log: the number of the batch that it added, and the fingerprint of its rows.
_BATCH: Final = "shardbus.batch"
_FINGERPRINT: Final = "shardbus.fingerprint"
_PARTITION_FIELDS: Final = (
    pa.field("entity", pa.string()),
    pa.field("date", pa.date32()),
    pa.field("hour", pa.int32()),
)


@final
class DeltaForm:
    """The form `delta`; `schema` is that of the files, and is needed to commit."""

    def __init__(self, files: Files, schema: pa.Schema) -> None:
        self.files = files
        self._schema = schema

    def place(self, batch: int, hour: Hour) -> NewFile:
        return self.files.new(f"{hour.directory}/part-{batch:010}-{uuid.uuid4().hex}{SUFFIX}")

    def commit(self, query: str, batch: int, files: Sequence[WrittenFile]) -> bool:
        from deltalake.exceptions import CommitFailedError

        with self.files.turn():
            self._own(query)
            # Others may write the log, too: compaction, and other users of the table.
            for _attempt in range(ATTEMPTS_MAX):
                table = open_delta(self.files)
                known = table.transaction_version(query)
                if batch <= (NO_BATCH if known is None else known):
                    return self._is_mine(table, batch, files)
                try:
                    self.append(self._widened(table), query, batch, files)
                except CommitFailedError:
                    continue
                return True
        raise Unavailable(
            f"other writers keep changing {self.files.location}: batch {batch} cannot be "
            "committed. Start the pipeline again later"
        )

    def discard(self, files: Sequence[WrittenFile]) -> None:
        discard_unless(self.files, files, self._paths)

    def _paths(self) -> list[str]:
        return open_delta(self.files).file_uris() if is_delta(self.files) else []

    def _is_mine(self, table: DeltaTable, batch: int, files: Sequence[WrittenFile]) -> bool:
        """Whether the table has the batch with these very files: the answer to an append that
        succeeded may have been lost. Files of another attempt are removed.
        """
        known = self._fingerprints(table)
        check_repeat(self.files.location, batch, batch_fingerprint(files), known)
        there = set(table.file_uris())
        if any(file.path in there for file in files):
            return True
        self.files.remove([self.files.named(file.path) for file in files])
        return False

    def append(
        self, table: DeltaTable, query: str, batch: int, files: Sequence[WrittenFile]
    ) -> None:
        """One transaction, durable on return; deltalake's CommitFailedError when the log got the
        batch since the table was opened.
        """
        from deltalake import CommitProperties, Transaction

        self.files.persist([self.files.named(file.path) for file in files])
        table.create_write_transaction(
            [self._action(file) for file in files],
            "append",
            table.schema(),
            list(PARTITIONS),
            commit_properties=CommitProperties(
                custom_metadata={_BATCH: str(batch), _FINGERPRINT: batch_fingerprint(files)},
                app_transactions=[Transaction(query, batch)],
            ),
        )
        self._sync_log()

    def _fingerprints(self, table: DeltaTable) -> dict[int, str]:
        """The fingerprints of batches, as far back as the log goes."""
        return {
            int(entry[_BATCH]): str(entry[_FINGERPRINT])
            for entry in table.history()
            if _BATCH in entry and _FINGERPRINT in entry
        }

    def _own(self, query: str) -> None:
        from deltalake import DeltaTable, Schema

        state = read_state(self.files)
        check_owner(self.files, state, DELTA, query)
        if state is None:
            write_state(self.files, State(DELTA, query, NO_BATCH))
        if not is_delta(self.files):
            schema = pa.schema([*self._schema, *_PARTITION_FIELDS])
            DeltaTable.create(
                self.files.location,
                Schema.from_arrow(schema),
                mode="ignore",
                partition_by=list(PARTITIONS),
                storage_options=store_options(),
            )

    def _widened(self, table: DeltaTable) -> DeltaTable:
        """Add later columns to a table that an earlier version began."""
        from deltalake import Schema

        known = {field.name for field in table.schema().fields}
        ours = Schema.from_arrow(self._schema).fields
        missing = [field for field in ours if field.name not in known]
        if not missing:
            return table
        table.alter.add_columns(missing)
        self._sync_log()
        return open_delta(self.files)

    def _sync_log(self) -> None:
        entries = [file.name for file in self.files.names(DELTA_LOG)]
        self.files.persist_content(max(name for name in entries if name.endswith(".json")))

    def _action(self, file: WrittenFile) -> AddAction:
        from deltalake.transaction import AddAction

        hour = file.hour
        return AddAction(
            path=self.files.named(file.path),
            size=file.size_bytes,
            partition_values={
                "entity": hour.entity,
                "date": hour.date,
                "hour": str(hour.hour),
            },
            modification_time=time.time_ns() // 1_000_000,
            data_change=True,
            stats=file.statistics,
        )


def need_delta() -> None:
    """OptionError when delta-rs is not installed."""
    try:
        import deltalake  # noqa: F401 - whether it can be
    except ImportError as error:
        raise OptionError(
            f"format delta needs delta-rs: `pip install 'shardbus-spark[delta]'` ({error})"
        ) from error


def is_delta(files: Files) -> bool:
    """Whether there is a table: a crash can leave a log without its first entry."""
    from deltalake import DeltaTable

    return DeltaTable.is_deltatable(files.location, store_options())


def open_delta(files: Files) -> DeltaTable:
    """The table as it is now; OptionError when delta-rs is not installed."""
    need_delta()
    from deltalake import DeltaTable

    return DeltaTable(files.location, storage_options=store_options())
