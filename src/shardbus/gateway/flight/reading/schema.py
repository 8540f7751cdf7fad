"""The columns of the bulk lane, in exactly the types that Spark uses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from shardbus.core.errors import INVALID_ARGUMENT, Refused

TEXT: Final = pa.string()
MOMENT: Final = pa.timestamp("us", "UTC")
TEXTS: Final = pa.map_(TEXT, TEXT)

COLUMNS: Final[dict[str, pa.DataType]] = {
    "sequence_number": pa.int64(),
    "fragment": pa.int32(),
    "enqueued_time": MOMENT,
    "expires_time": MOMENT,
    "scheduled_time": MOMENT,
    "state": TEXT,
    "delivery_count": pa.int32(),
    "message_id": TEXT,
    "session_id": TEXT,
    "partition_key": TEXT,
    "correlation_id": TEXT,
    "subject": TEXT,
    "content_type": TEXT,
    "to": TEXT,
    "reply_to": TEXT,
    "reply_to_session_id": TEXT,
    "time_to_live_ms": pa.int64(),
    "dead_letter_reason": TEXT,
    "dead_letter_description": TEXT,
    "dead_letter_source": TEXT,
    "properties": TEXTS,
    "annotations": TEXTS,
    "body": pa.binary(),
    "body_kind": TEXT,
}
EXTRA_COLUMNS: Final[dict[str, pa.DataType]] = {"properties_json": TEXT, "amqp": pa.binary()}
"""Columns that are sent only if a client names them."""


def columns_named(names: Sequence[str] | None) -> list[str]:
    """The requested columns; all but the extra ones by default."""
    if names is None:
        return list(COLUMNS)
    known = COLUMNS.keys() | EXTRA_COLUMNS.keys()
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
