"""The columns of the bulk lane, in exactly the types that Spark uses."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Final

import pyarrow as pa

from shardbus.core import message_fields
from shardbus.core.errors import INVALID_ARGUMENT, Refused
from shardbus.core.message_fields import FIELDS, PROPERTIES, SENT_TEXTS

TEXT: Final = pa.string()
MOMENT: Final = pa.timestamp("us", "UTC")
TEXTS: Final = pa.map_(TEXT, TEXT)

_TYPES: Final[dict[str, pa.DataType]] = {
    message_fields.SMALL_NUMBER: pa.int32(),
    message_fields.NUMBER: pa.int64(),
    message_fields.DURATION: pa.int64(),
    message_fields.MOMENT: MOMENT,
}
COLUMNS: Final[dict[str, pa.DataType]] = {
    **{each.column: _TYPES.get(each.form, TEXT) for each in FIELDS if each.column},
    "properties": TEXTS,
    "annotations": TEXTS,
    "body": pa.binary(),
    "body_kind": TEXT,
}
TEXT_PLACES: Final = {
    each.column: each.place for each in SENT_TEXTS if each.column and each.section == PROPERTIES
}
"""The columns that are fields of the properties section, and their places in it."""
SESSION_STATE: Final = "session_state"
EXTRA_COLUMNS: Final[dict[str, pa.DataType]] = {
    "properties_json": TEXT,
    "amqp": pa.binary(),
    SESSION_STATE: pa.binary(),
}
"""Columns that are sent only if a client names them."""


RECORD_COLUMNS: Final[dict[str, pa.DataType]] = {
    "fragment": pa.int32(),
    "block": pa.int64(),
    "row": pa.int32(),
    "event": TEXT,
    "event_time": MOMENT,
    "sequence_number": pa.int64(),
    "age_ms": pa.int64(),
    "held_ms": pa.int64(),
    "delivery_count": pa.int32(),
    "size_bytes": pa.int64(),
    "key": TEXT,
    "receiver": TEXT,
    "detail": TEXT,
}
"""The columns of lifecycle records. Fragment, block and row identify one."""


def record_columns_named(names: Sequence[str] | None) -> list[str]:
    """The requested columns of lifecycle records; all by default."""
    return list(RECORD_COLUMNS) if names is None else _named(names, RECORD_COLUMNS.keys())


def record_schema_of(columns: Sequence[str]) -> pa.Schema:
    return pa.schema([pa.field(name, RECORD_COLUMNS[name]) for name in columns])


def columns_named(names: Sequence[str] | None) -> list[str]:
    """The requested columns; all but the extra ones by default."""
    if names is None:
        return list(COLUMNS)
    return _named(names, COLUMNS.keys() | EXTRA_COLUMNS.keys())


def _named(names: Sequence[str], known: Set[str]) -> list[str]:
    for name in names:
        if name not in known:
            raise Refused(
                INVALID_ARGUMENT,
                f"There is no column '{name[:100]}'; the columns are {', '.join(sorted(known))}.",
            )
    if len(set(names)) != len(names) or not names:
        raise Refused(
            INVALID_ARGUMENT,
            "The list of columns must name at least one column, and each only once.",
        )
    return list(names)


def schema_of(columns: Sequence[str]) -> pa.Schema:
    types = COLUMNS | EXTRA_COLUMNS
    return pa.schema([pa.field(name, types[name]) for name in columns])
