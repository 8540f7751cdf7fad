"""An Iceberg table, whose metadata PyIceberg writes: readers need neither Spark nor this package.

The table needs no catalogue: as Iceberg's file system tables have it, the metadata of version N is
the object `metadata/vN.metadata.json`, and the writer that creates it has committed. Tasks write
files in their final places, invisible until a snapshot names them. A batch is one snapshot, with
the query and the number of the batch in its summary; properties of the table name the last batches.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, final

import pyarrow as pa

from shardbus_spark.errors import OptionError, Unavailable
from shardbus_spark.tables.files import Conflict, Files, NewFile
from shardbus_spark.tables.form import (
    FINGERPRINTS_MAX,
    ICEBERG,
    NO_BATCH,
    State,
    batch_fingerprint,
    check_owner,
    check_repeat,
    discard_unless,
    read_state,
    write_state,
)
from shardbus_spark.tables.iceberg_metadata import is_iceberg, open_iceberg, write_metadata
from shardbus_spark.tables.layout import SUFFIX, Hour
from shardbus_spark.tables.writing import WrittenFile

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table, Transaction

NAME_MAPPING: Final = "schema.name-mapping.default"
ATTEMPTS_MAX: Final = 5
BATCH: Final = "shardbus.batch"
QUERY: Final = "shardbus.query"
FINGERPRINT: Final = "shardbus.fingerprint"
BATCHES: Final = "shardbus.batches"
"""Of the table: the numbers and fingerprints of its last batches, as JSON."""
METADATA_KEPT: Final = 100
PROPERTIES: Final = {
    "write.format.default": "parquet",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": str(METADATA_KEPT),
    # One manifest for each batch would make reading slower and slower.
    "commit.manifest-merge.enabled": "true",
}


@final
class IcebergForm:
    """The form `iceberg`; `schema` is that of the files, and is needed to commit."""

    def __init__(self, files: Files, schema: pa.Schema, time: str) -> None:
        self.files = files
        self._schema = schema
        self._time = time

    def place(self, batch: int, hour: Hour) -> NewFile:
        return self.files.new(f"{hour.directory}/part-{batch:010}-{uuid.uuid4().hex}{SUFFIX}")

    def commit(self, query: str, batch: int, files: Sequence[WrittenFile]) -> bool:
        with self.files.turn():
            self._own(query)
            for _attempt in range(ATTEMPTS_MAX):
                table = open_iceberg(self.files)
                known = batches_of(table)
                if batch <= max(known, default=NO_BATCH):
                    return self._is_mine(table, batch, files, known)
                try:
                    self.append(table, query, batch, files)
                except Conflict:
                    continue
                return True
        raise Unavailable(
            f"other writers keep changing {self.files.location}: batch {batch} cannot be "
            "committed. Start the pipeline again later"
        )

    def discard(self, files: Sequence[WrittenFile]) -> None:
        discard_unless(self.files, files, lambda: iceberg_paths(self.files))

    def append(self, table: Table, query: str, batch: int, files: Sequence[WrittenFile]) -> None:
        """One snapshot, durable on return; Conflict when there is another since the table was
        opened.
        """
        from pyiceberg.io.pyarrow import parquet_file_to_data_file

        self.files.persist([self.files.named(file.path) for file in files])
        told = batch_fingerprint(files)
        kept = [*sorted(batches_of(table).items()), (batch, told)][-FINGERPRINTS_MAX:]
        change = table.transaction()
        self._widen(change)
        change.set_properties({BATCHES: json.dumps(kept)})
        summary = {BATCH: str(batch), QUERY: query, FINGERPRINT: told}
        with change.update_snapshot(snapshot_properties=summary).merge_append() as appended:
            for file in files:
                appended.append_data_file(
                    parquet_file_to_data_file(table.io, change.table_metadata, file.path)
                )
        change.commit_transaction()

    def _is_mine(
        self, table: Table, batch: int, files: Sequence[WrittenFile], known: dict[int, str]
    ) -> bool:
        """Whether the table has the batch with these very files: the answer to a commit that
        succeeded may have been lost. Files of another attempt are removed.
        """
        check_repeat(self.files.location, batch, batch_fingerprint(files), known)
        there = {file.file_path for file in data_files(table)}
        if any(file.path in there for file in files):
            return True
        self.files.remove([self.files.named(file.path) for file in files])
        return False

    def _own(self, query: str) -> None:
        state = read_state(self.files)
        check_owner(self.files, state, ICEBERG, query)
        if state is None:
            write_state(self.files, State(ICEBERG, query, NO_BATCH))
        if not is_iceberg(self.files):
            self._create()

    def _create(self) -> None:
        from pyiceberg.partitioning import PartitionField, PartitionSpec
        from pyiceberg.table.metadata import new_table_metadata
        from pyiceberg.table.name_mapping import create_mapping_from_schema
        from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
        from pyiceberg.transforms import HourTransform

        schema = iceberg_schema(self._schema)
        source = schema.find_field(self._time).field_id
        hour = PartitionField(source, 1000, HourTransform(), name=f"{self._time}_hour")
        mapping = create_mapping_from_schema(schema).model_dump_json()
        metadata = new_table_metadata(
            schema,
            PartitionSpec(hour),
            UNSORTED_SORT_ORDER,
            self.files.location,
            {**PROPERTIES, NAME_MAPPING: mapping},
        )
        try:
            write_metadata(self.files, 1, metadata)
        except Conflict:
            # Another attempt at the first batch has made it.
            return

    def _widen(self, change: Transaction) -> None:
        """Add later columns to a table that an earlier version began."""
        known = {field.name for field in change.table_metadata.schema().fields}
        if not set(self._schema.names) <= known:
            with change.update_schema() as update:
                update.union_by_name(iceberg_schema(self._schema))


def iceberg_schema(schema: pa.Schema) -> Schema:
    """Iceberg's types for those of the files, with new ids."""
    from pyiceberg.catalog import Catalog
    from pyiceberg.schema import assign_fresh_schema_ids

    return assign_fresh_schema_ids(Catalog._convert_schema_if_needed(schema))


def iceberg_rows(schema: pa.Schema) -> pa.Schema:
    """The schema of files of an Iceberg table, which has no integers of 16 bits."""
    return pa.schema(
        [field.with_type(pa.int32()) if field.type == pa.int16() else field for field in schema]
    )


def batches_of(table: Table) -> dict[int, str]:
    """The numbers and fingerprints of the last batches."""
    found: list[tuple[int, str]] = json.loads(table.properties.get(BATCHES, "[]"))
    return {int(batch): str(told) for batch, told in found}


def data_files(table: Table) -> Iterator[DataFile]:
    """The files that the table has now."""
    return (task.file for task in table.scan().plan_files())


def iceberg_paths(files: Files) -> list[str]:
    """The paths of the files that the table has now."""
    if not is_iceberg(files):
        return []
    return [file.file_path for file in data_files(open_iceberg(files))]


def need_iceberg() -> None:
    """OptionError when PyIceberg is not installed."""
    try:
        import pyiceberg  # noqa: F401 - whether it can be
    except ImportError as error:
        raise OptionError(
            f"format iceberg needs PyIceberg: `pip install 'shardbus-spark[iceberg]'` ({error})"
        ) from error
