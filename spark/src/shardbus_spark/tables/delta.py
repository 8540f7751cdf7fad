"""A Delta table, whose log delta-rs writes: readers need neither Spark nor this package.

A batch is one transaction of the log with the query's id and the number of the batch; files in no
transaction are removed by a vacuum.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, final

import pyarrow as pa

from shardbus_spark.errors import OptionError
from shardbus_spark.tables.files import Files, conflict, store_options
from shardbus_spark.tables.form import DELTA, DELTA_LOG, NO_BATCH, batch_fingerprint
from shardbus_spark.tables.layout import PARTITIONS
from shardbus_spark.tables.logged import LoggedTable
from shardbus_spark.tables.writing import WrittenFile

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from deltalake.transaction import AddAction

# In an entry of the log: the number of the batch that it added, and the fingerprint of its rows.
_BATCH: Final = "shardbus.batch"
_FINGERPRINT: Final = "shardbus.fingerprint"
_PARTITION_FIELDS: Final = (
    pa.field("entity", pa.string()),
    pa.field("date", pa.date32()),
    pa.field("hour", pa.int32()),
)


@final
class DeltaForm(LoggedTable["DeltaTable"]):
    """The form `delta`."""

    def __init__(self, files: Files, schema: pa.Schema) -> None:
        self.form, self.files, self.schema = DELTA, files, schema

    def is_there(self) -> bool:
        return is_delta(self.files)

    def create(self) -> None:
        from deltalake import DeltaTable, Schema

        schema = pa.schema([*self.schema, *_PARTITION_FIELDS])
        DeltaTable.create(
            self.files.location,
            Schema.from_arrow(schema),
            mode="ignore",
            partition_by=list(PARTITIONS),
            storage_options=store_options(),
        )

    def opened(self) -> DeltaTable:
        return open_delta(self.files)

    def last_batch(self, table: DeltaTable, query: str) -> int:
        known = table.transaction_version(query)
        return NO_BATCH if known is None else known

    def fingerprints(self, table: DeltaTable) -> dict[int, str]:
        return {
            int(entry[_BATCH]): str(entry[_FINGERPRINT])
            for entry in table.history()
            if _BATCH in entry and _FINGERPRINT in entry
        }

    def paths(self, table: DeltaTable) -> list[str]:
        return table.file_uris()

    def append(
        self, table: DeltaTable, query: str, batch: int, files: Sequence[WrittenFile]
    ) -> None:
        from deltalake import CommitProperties, Transaction

        self.files.persist([self.files.named(file.path) for file in files])
        with committing(self.files):
            table = self._widened(table)
            table.create_write_transaction(
                [add_action(self.files, file) for file in files],
                "append",
                table.schema(),
                list(PARTITIONS),
                commit_properties=CommitProperties(
                    custom_metadata={_BATCH: str(batch), _FINGERPRINT: batch_fingerprint(files)},
                    app_transactions=[Transaction(query, batch)],
                ),
            )

    def _widened(self, table: DeltaTable) -> DeltaTable:
        """Add later columns to a table that an earlier version began."""
        from deltalake import Schema

        known = {field.name for field in table.schema().fields}
        ours = Schema.from_arrow(self.schema).fields
        missing = [field for field in ours if field.name not in known]
        if not missing:
            return table
        with committing(self.files):
            table.alter.add_columns(missing)
        return open_delta(self.files)


def add_action(files: Files, file: WrittenFile, *, is_new: bool = True) -> AddAction:
    """The entry of the log for a file; `is_new` unless its rows were in the table before."""
    from deltalake.transaction import AddAction

    hour = file.hour
    return AddAction(
        path=files.named(file.path),
        size=file.size_bytes,
        partition_values={
            "entity": hour.entity,
            "date": hour.date,
            "hour": str(hour.hour),
        },
        modification_time=time.time_ns() // 1_000_000,
        data_change=is_new,
        stats=file.statistics,
    )


@contextmanager
def committing(files: Files) -> Iterator[None]:
    """What is committed in it is durable on return; Conflict when others have changed the log."""
    from deltalake.exceptions import CommitFailedError

    try:
        with files.explained():
            yield
    except CommitFailedError as error:
        raise conflict(files.location, DELTA_LOG) from error
    entries = [file.name for file in files.names(DELTA_LOG)]
    files.persist_content(max(name for name in entries if name.endswith(".json")))


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

    with files.explained():
        return DeltaTable.is_deltatable(files.location, store_options())


def open_delta(files: Files) -> DeltaTable:
    """The table as it is now; OptionError when delta-rs is not installed."""
    need_delta()
    from deltalake import DeltaTable

    with files.explained():
        return DeltaTable(files.location, storage_options=store_options())
