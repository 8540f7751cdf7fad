"""Rows, tables and readers for tests of captured tables, none of which needs Spark."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as parquet

from shardbus_spark.schema import message_schema
from shardbus_spark.tables.files import Directory, Files
from shardbus_spark.tables.form import DELTA, PARQUET, Form
from shardbus_spark.tables.reading import captured_files
from shardbus_spark.tables.sink import table_of
from shardbus_spark.tables.writing import WrittenFile, arrow_schema, write_hours

ENTITY: Final = "t/Subscriptions/a$b"
SCHEMA: Final = arrow_schema(message_schema(includes_amqp=True))
OLD_SCHEMA: Final = arrow_schema(message_schema())
"""Of tables that were begun before there was a column amqp."""
START_MS: Final = 1_769_842_800_000
# Long after all of their hours.
LATER_MS: Final = 4_000_000_000_000


def rows_of(
    numbers: Iterable[int], apart_ms: int = 1, schema: pa.Schema = SCHEMA
) -> pa.RecordBatch:
    """Messages with these numbers, each some time after the one with the number before."""
    some = list(numbers)
    columns: dict[str, pa.Array[pa.Scalar[pa.DataType]]] = {
        field.name: pa.nulls(len(some), field.type) for field in schema
    }
    columns["sequence_number"] = pa.array(some, pa.int64())
    times = [(START_MS + number * apart_ms) * 1000 + 7 for number in some]
    columns["enqueued_time"] = pa.array(times, pa.timestamp("us", "Etc/UTC"))
    columns["properties"] = pa.array(
        [[("n", str(number)), ("none", None)] for number in some],
        SCHEMA.field("properties").type,
    )
    if "amqp" in columns:
        columns["amqp"] = pa.array([b"%d" % number for number in some])
    return pa.RecordBatch.from_pydict(columns)


def made(root: Path | Files, form: str, schema: pa.Schema = SCHEMA) -> Form:
    return table_of(Directory(root) if isinstance(root, Path) else root, form, schema)


def written(
    table: Form,
    batch: int,
    tasks: Sequence[Sequence[int]],
    apart_ms: int = 1,
    schema: pa.Schema = SCHEMA,
    entity: str = ENTITY,
) -> list[WrittenFile]:
    """The files of a batch, whose rows tasks have shared in this manner."""
    return [
        file
        for numbers in tasks
        for file in write_hours(
            [rows_of(numbers, apart_ms, schema)],
            schema,
            entity,
            lambda hour: table.place(batch, hour),
        )
    ]


def seen(root: Path, form: str) -> Counter[int]:
    """The numbers that a reader without Spark sees, and how often."""
    if form == DELTA:
        return Counter(_in(_active(root)))
    if form != PARQUET:
        return Counter(_in([Path(path) for path in captured_files(Directory(root), form)]))
    return Counter(_in([file for file in root.glob("[!_]*/**/*.parquet") if file.is_file()]))


def _active(root: Path) -> list[Path]:
    """By the log itself: delta-rs must not be used before a fork."""
    active: dict[str, Path] = {}
    for entry in sorted((root / "_delta_log").glob("*.json")):
        for line in entry.read_text("utf-8").splitlines():
            action = json.loads(line)
            for path in [action[kind]["path"] for kind in ("add", "remove") if kind in action]:
                place = root / path.replace("%25", "%")
                if "add" in action:
                    active[path] = place
                else:
                    active.pop(path)
    return list(active.values())


def _in(files: Iterable[Path]) -> list[int]:
    found: list[int] = []
    for file in files:
        numbers = parquet.ParquetFile(file).read(["sequence_number"])["sequence_number"]
        found += [number for number in numbers.to_pylist() if number is not None]
    return found
