"""Record batches that clients put, as messages: which columns there may be, and what they mean."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from shardbus.core.errors import INVALID_ARGUMENT, Refused
from shardbus.gateway.flight.drafts import Drafts
from shardbus.gateway.flight.schema import COLUMNS, EXTRA_COLUMNS, TEXT

_TEXTS: Final = (
    "message_id",
    "session_id",
    "correlation_id",
    "subject",
    "content_type",
    "to",
    "reply_to",
    "reply_to_session_id",
)
_WRITTEN: Final = (
    *_TEXTS,
    "partition_key",
    "time_to_live_ms",
    "scheduled_time",
    "properties",
    "body",
)
# What the bus says of messages: rows that were read may be written again as they are.
_PASSED_OVER: Final = (COLUMNS.keys() | EXTRA_COLUMNS.keys()) - set(_WRITTEN)


def check_written(schema: pa.Schema) -> None:
    """Refused when a column is not known, or of another type than it can have."""
    for field in schema:
        if field.name in _PASSED_OVER:
            continue
        wanted = _wrong_type(field)
        if wanted:
            raise Refused(
                INVALID_ARGUMENT,
                f"Column '{field.name[:100]}' is {field.type}; it must be {wanted}.",
            )


def _wrong_type(field: pa.Field[pa.DataType]) -> str:
    """What the type of a column should be; empty when it is right."""
    kind, name = field.type, field.name
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    if name in _TEXTS or name == "partition_key":
        return "" if is_text else "a string"
    if name == "body":
        is_bytes = pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
        return "" if is_text or is_bytes else "binary or a string"
    if name == "time_to_live_ms":
        return "" if pa.types.is_integer(kind) else "an integer"
    if name == "scheduled_time":
        return "" if pa.types.is_timestamp(kind) else "a timestamp"
    if name == "properties":
        return "" if _is_map_of_texts(kind) else "a map of strings"
    return f"one of {', '.join(_WRITTEN)}"


def _is_map_of_texts(kind: pa.DataType) -> bool:
    if not isinstance(kind, pa.MapType):
        return False
    return all(
        pa.types.is_string(part) or pa.types.is_large_string(part)
        for part in (kind.key_type, kind.item_type)
    )


def drafts_of(batch: pa.RecordBatch) -> Drafts:
    """The rows of a batch whose schema was checked."""
    drafts = Drafts(batch.num_rows)
    names = set(batch.schema.names)
    for name in _TEXTS:
        if name in names and batch.column(name).null_count < batch.num_rows:
            drafts.texts[name] = batch.column(name).to_pylist()
    if "partition_key" in names:
        drafts.partition_keys = batch.column("partition_key").to_pylist()
    if "time_to_live_ms" in names:
        drafts.ttls_ms = batch.column("time_to_live_ms").to_pylist()
    if "scheduled_time" in names:
        moments = batch.column("scheduled_time").cast(pa.timestamp("ms"), safe=False)
        drafts.scheduled_at_ms = moments.cast(pa.int64()).to_pylist()
    if "properties" in names:
        _add_properties(drafts, batch.column("properties"))
    if "body" in names:
        drafts.bodies = batch.column("body").cast(pa.binary()).to_pylist()
    return drafts


def _add_properties(drafts: Drafts, column: pa.Array[pa.Scalar[pa.DataType]]) -> None:
    if column.offset:
        # The children of a slice are those of the whole.
        column = column.take(pa.array(range(len(column))))
    assert isinstance(column, pa.MapArray)
    ends = [int(end or 0) for end in column.offsets.to_pylist()]
    is_there = column.is_valid().to_pylist()
    # What lies between the ends of a null map is nobody's.
    drafts.pair_starts = ends[:-1]
    drafts.pair_stops = [
        stop if valid else start
        for start, stop, valid in zip(ends[:-1], ends[1:], is_there, strict=True)
    ]
    drafts.pair_names = [str(name) for name in column.keys.cast(TEXT).to_pylist()]
    drafts.pair_values = column.items.cast(TEXT).to_pylist()
