"""One file with the rows of several, for tables whose files a log names."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.parquet as parquet

from shardbus_spark.errors import ShardbusError
from shardbus_spark.tables.files import Files
from shardbus_spark.tables.layout import SUFFIX, Hour
from shardbus_spark.tables.writing import FileWriter, WrittenFile, statistics, with_columns

READ_ROWS: Final = 4_096
ROW_GROUP_BYTES: Final = 64 * 1024 * 1024


def merged_file(
    files: Files, names: Sequence[str], hour: Hour, is_told: Callable[[], bool]
) -> WrittenFile | None:
    """A new file of this hour, which is durable and which no reader sees; None when told to end."""
    schema = pa.unify_schemas([parquet.read_schema(files.open(name)) for name in names])
    new = files.new(f"{hour.directory}/compact-{uuid.uuid4().hex}{SUFFIX}")
    writer = FileWriter(new.sink, schema, ROW_GROUP_BYTES)
    rows = 0
    for name in names:
        with parquet.ParquetFile(files.open(name)) as opened:
            rows += opened.metadata.num_rows
            for batch in opened.iter_batches(READ_ROWS, use_threads=False):
                if is_told():
                    return None
                writer.put(with_columns(pa.Table.from_batches([batch]), schema))
    metadata = writer.close()
    if metadata.num_rows != rows:
        raise ShardbusError(f"{new.path} was not made: rows would be lost or duplicated")
    size_bytes = new.finish()
    files.persist([files.named(new.path)])
    told = json.dumps(statistics(metadata))
    return WrittenFile(new.path, hour, rows, size_bytes, told, writer.digest)
