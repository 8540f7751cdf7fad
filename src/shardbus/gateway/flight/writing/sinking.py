"""Record batches that clients put, as messages: the allowed columns and their meaning."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from shardbus.core.errors import INVALID_ARGUMENT, Refused
from shardbus.core.message_fields import SENT_COLUMNS, SENT_TEXTS
from shardbus.gateway.flight.reading.schema import (
    COLUMNS,
    EXTRA_COLUMNS,
)
from shardbus.gateway.flight.writing.columnar import (
    encoded_at_once,
    in_sections_at_once,
    is_encoded_here,
)
from shardbus.gateway.flight.writing.drafts import KEY_COLUMNS, Column, Drafts, Sections
from shardbus.gateway.flight.writing.originals import AMQP, originals_of

# A body is bytes: text that is not UTF-8, as Spark's strings may be, is sent as it is.
_BYTES_OF: Final = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary()}
_TEXTS: Final = tuple(each.column for each in SENT_TEXTS if each.column)
_WRITTEN: Final = (*SENT_COLUMNS, "properties", "body", AMQP)
# Columns that only the bus sets are ignored, so that rows that were read can be written again.
_PASSED_OVER: Final = (COLUMNS.keys() | EXTRA_COLUMNS.keys()) - set(_WRITTEN)


def check_written(schema: pa.Schema) -> None:
    """Refused when a column is unknown, or has a wrong type."""
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
    """The type that a column should have; empty when its type is right."""
    kind, name = field.type, field.name
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    if name in _TEXTS:
        return "" if is_text else "a string"
    is_bytes = pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
    if name == "body":
        return "" if is_text or is_bytes else "binary or a string"
    if name == AMQP:
        return "" if is_bytes else "binary"
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


def drafts_of(batch: pa.RecordBatch, first_row: int = 0) -> Drafts:
    """The rows of a batch whose schema was checked. Refused for invalid values, and EncodeError for
    an invalid message in a row. Errors number rows from `first_row`.
    """
    drafts = Drafts(batch.num_rows, first_row)
    if not batch.num_rows:
        return drafts
    for name in batch.schema.names:
        _check_valid(name, batch.column(name))
    names = set(batch.schema.names)
    if is_encoded_here(names) and _is_encoded_at_once(drafts, batch):
        return drafts
    for name in _TEXTS:
        if _has_values(batch, name):
            drafts.texts[name] = _column(batch.column(name))
    if "time_to_live_ms" in names:
        drafts.ttls_ms = batch.column("time_to_live_ms").to_pylist()
    if "scheduled_time" in names:
        moments = batch.column("scheduled_time").cast(pa.timestamp("ms"), safe=False)
        drafts.scheduled_at_ms = moments.cast(pa.int64()).to_pylist()
    if "properties" in names:
        _add_properties(drafts, batch.column("properties"))
    if "body" in names:
        drafts.bodies = _column(batch.column("body"))
    if AMQP in names:
        drafts.originals = originals_of(batch, first_row)
    return drafts


def _is_encoded_at_once(drafts: Drafts, batch: pa.RecordBatch) -> bool:
    """Encode all rows if they are alike; returns whether they are."""
    keys = [name for name in KEY_COLUMNS if _has_values(batch, name)]
    encoded = encoded_at_once(batch) if keys else in_sections_at_once(batch)
    if encoded is None:
        return False
    if not keys:
        drafts.sections = _sections(encoded)
        return True
    drafts.messages = _column(encoded)
    for name in keys:
        drafts.texts[name] = _column(batch.column(name))
    return True


def _has_values(batch: pa.RecordBatch, name: str) -> bool:
    return name in batch.schema.names and batch.column(name).null_count < batch.num_rows


def _check_valid(name: str, column: pa.Array[pa.Scalar[pa.DataType]]) -> None:
    """Check the values, which may be invalid UTF-8 or lie outside of the buffer."""
    values = (
        column.view(_BYTES_OF[column.type])
        if name == "body" and column.type in _BYTES_OF
        else column
    )
    try:
        values.validate(full=True)
    except pa.ArrowInvalid as error:
        row = next((row for row in range(len(column)) if not _is_valid(column.slice(row, 1))), -1)
        raise Refused(
            INVALID_ARGUMENT,
            f"The rows have an invalid value: column {name} in row {row} of its batch: {error}.",
        ) from error


def _is_valid(column: pa.Array[pa.Scalar[pa.DataType]]) -> bool:
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _column(column: pa.Array[pa.Scalar[pa.DataType]]) -> Column:
    """Texts or bytes of an Arrow array."""
    kind = column.type
    is_large = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
    validity, starts_buffer, data = column.buffers()
    if not len(column) or starts_buffer is None:
        return Column(b"", [0])
    starts = memoryview(starts_buffer).cast("B").cast("q" if is_large else "i")
    ends = starts[column.offset : column.offset + len(column) + 1].tolist()
    first, last = ends[0], ends[-1]
    # Bytes outside of the slice are not copied.
    content = b"" if data is None else data.slice(first, last - first).to_pybytes()
    places = [end - first for end in ends] if first else ends
    if validity is None or not column.null_count:
        return Column(content, places)
    return Column(content, places, validity.to_pybytes(), column.offset)


def _sections(encoded: pa.BinaryArray) -> Sections:
    """What Arrow has just made, which begins where its buffers do."""
    _, limits, content = encoded.buffers()
    assert not encoded.offset
    assert limits is not None
    assert content is not None
    starts = memoryview(limits).cast("B").cast("i")[: len(encoded) + 1].tolist()
    return Sections(memoryview(content), starts)


def _add_properties(drafts: Drafts, column: pa.Array[pa.Scalar[pa.DataType]]) -> None:
    if column.offset:
        # The children of a slice are those of the whole array.
        column = column.take(pa.array(range(len(column))))
    assert isinstance(column, pa.MapArray)
    ends = [int(end or 0) for end in column.offsets.to_pylist()]
    drafts.pair_starts = ends[:-1]
    drafts.pair_stops = ends[1:]
    if column.null_count:
        # The pairs between the ends of a null map are ignored.
        is_there = column.is_valid().to_pylist()
        for row, valid in enumerate(is_there):
            if not valid:
                drafts.pair_stops[row] = drafts.pair_starts[row]
    drafts.pair_names = _column(column.keys)
    drafts.pair_values = _column(column.items)
