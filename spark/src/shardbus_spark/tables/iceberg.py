"""An Iceberg table, whose metadata PyIceberg writes: readers need neither Spark nor this package.

The table needs no catalogue: as Iceberg's file system tables have it, the metadata of version N is
the object `metadata/vN.metadata.json`, and the writer that creates it has committed. A batch is one
snapshot, with the query and the number of the batch in its summary; properties of the table name
the last batches.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, final

import pyarrow as pa

from shardbus_spark.errors import OptionError
from shardbus_spark.tables.files import Conflict, Files
from shardbus_spark.tables.form import FINGERPRINTS_MAX, ICEBERG, NO_BATCH, batch_fingerprint
from shardbus_spark.tables.iceberg_metadata import is_iceberg, open_iceberg, write_metadata
from shardbus_spark.tables.logged import LoggedTable
from shardbus_spark.tables.writing import WrittenFile

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table, Transaction

NAME_MAPPING: Final = "schema.name-mapping.default"
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
class IcebergForm(LoggedTable["Table"]):
    """The form `iceberg`; `time` is the column whose hour partitions it."""

    def __init__(self, files: Files, schema: pa.Schema, time: str) -> None:
        self.form, self.files, self.schema = ICEBERG, files, schema
        self._time = time

    def is_there(self) -> bool:
        return is_iceberg(self.files)

    def opened(self) -> Table:
        return open_iceberg(self.files)

    def last_batch(self, table: Table, query: str) -> int:
        return max(batches_of(table), default=NO_BATCH)

    def fingerprints(self, table: Table) -> dict[int, str]:
        return batches_of(table)

    def paths(self, table: Table) -> list[str]:
        return [file.file_path for file in data_files(table)]

    def append(self, table: Table, query: str, batch: int, files: Sequence[WrittenFile]) -> None:
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

    def create(self) -> None:
        from pyiceberg.partitioning import PartitionField, PartitionSpec
        from pyiceberg.table.metadata import new_table_metadata
        from pyiceberg.table.name_mapping import create_mapping_from_schema
        from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
        from pyiceberg.transforms import HourTransform

        schema = iceberg_schema(self.schema)
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
        if not set(self.schema.names) <= known:
            with change.update_schema() as update:
                update.union_by_name(iceberg_schema(self.schema))


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
