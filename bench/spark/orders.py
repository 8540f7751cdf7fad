"""The rows that are sent: orders of about 1.2 KB, as Parquet files that Spark reads."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

BODY_BYTES: Final = 1_024
FILE_ROWS: Final = 20_000
_CUSTOMERS: Final = 1_000
_SEED: Final = 7
_PROPERTIES: Final = pa.map_(pa.string(), pa.string())


def write_orders(directory: Path, rows: int, say: Callable[[str], None]) -> None:
    """Files of FILE_ROWS each, uncompressed: an id, a key, three properties and 1 KB of text."""
    directory.mkdir()
    dice = random.Random(_SEED)
    for first in range(0, rows, FILE_ROWS):
        table = orders(dice, first, min(FILE_ROWS, rows - first))
        pq.write_table(table, directory / f"{first:09}.parquet", compression="none")
    say(f"{rows:,} orders are in Parquet files")


def orders(dice: random.Random, first: int, count: int) -> pa.Table:
    """Rows with numbers from `first` on."""
    numbers = range(first, first + count)
    properties = [
        [("kind", "order"), ("region", "europe"), ("total", str(number))] for number in numbers
    ]
    return pa.table(
        {
            "message_id": [f"order-{number:012}" for number in numbers],
            "partition_key": [f"customer-{number % _CUSTOMERS}" for number in numbers],
            "properties": pa.array(properties, _PROPERTIES),
            "body": _bodies(dice, count),
        }
    )


def _bodies(dice: random.Random, count: int) -> pa.Array[pa.Scalar[pa.DataType]]:
    """Hexadecimal digits, which compress to half like other text."""
    digits = dice.randbytes(count * BODY_BYTES // 2).hex().encode()
    kind = pa.binary(BODY_BYTES)
    fixed = pa.Array.from_buffers(kind, count, [None, pa.py_buffer(digits)])
    return fixed.cast(pa.binary())
