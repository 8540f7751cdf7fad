"""The columns of messages in Spark, and those that a query selects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from shardbus_spark.errors import OptionError

_TEXTS: Final = MapType(StringType(), StringType(), True)
COLUMNS: Final[dict[str, DataType]] = {
    "sequence_number": LongType(),
    "fragment": IntegerType(),
    "enqueued_time": TimestampType(),
    "expires_time": TimestampType(),
    "scheduled_time": TimestampType(),
    "state": StringType(),
    "delivery_count": IntegerType(),
    "message_id": StringType(),
    "session_id": StringType(),
    "partition_key": StringType(),
    "correlation_id": StringType(),
    "subject": StringType(),
    "content_type": StringType(),
    "to": StringType(),
    "reply_to": StringType(),
    "reply_to_session_id": StringType(),
    "time_to_live_ms": LongType(),
    "dead_letter_reason": StringType(),
    "dead_letter_description": StringType(),
    "dead_letter_source": StringType(),
    "properties": _TEXTS,
    "annotations": _TEXTS,
    "body": BinaryType(),
    "body_kind": StringType(),
}
RECORD_COLUMNS: Final[dict[str, DataType]] = {
    "fragment": IntegerType(),
    "block": LongType(),
    "row": IntegerType(),
    "event": StringType(),
    "event_time": TimestampType(),
    "sequence_number": LongType(),
    "age_ms": LongType(),
    "held_ms": LongType(),
    "delivery_count": IntegerType(),
    "size_bytes": LongType(),
    "key": StringType(),
    "receiver": StringType(),
    "detail": StringType(),
}
"""The columns of lifecycle records. Fragment, block and row identify one."""
JSON_COLUMN: Final = "properties_json"
_ORIGIN: Final = "shardbus"
AMQP_COLUMN: Final = "amqp"
"""The message itself, without a body that is one data section, which column body has."""
STATE_COLUMN: Final = "session_state"
"""The state of the message's session, which no message contains."""
EXTRA_COLUMNS: Final[dict[str, DataType]] = {
    JSON_COLUMN: StringType(),
    AMQP_COLUMN: BinaryType(),
    STATE_COLUMN: BinaryType(),
}
"""Columns that exist only on request."""


def message_schema(
    *, includes_json: bool = False, includes_amqp: bool = False, includes_state: bool = False
) -> StructType:
    """All columns, and the requested additional ones."""
    fields = [StructField(name, kind, True) for name, kind in COLUMNS.items()]
    asked = (includes_json, includes_amqp, includes_state)
    for name, is_asked in zip(EXTRA_COLUMNS, asked, strict=True):
        if is_asked:
            fields.append(StructField(name, EXTRA_COLUMNS[name], True))
    return StructType(fields)


def record_schema() -> StructType:
    """All columns of lifecycle records."""
    return StructType([StructField(name, kind, True) for name, kind in RECORD_COLUMNS.items()])


def with_origin(schema: StructType, options: Mapping[str, str]) -> StructType:
    """The schema of a table with these options.

    Spark forgets the options of a table of a Python source, but keeps its schema: so the metadata
    of the first column has the options.
    """
    first, *rest = schema.fields
    origin = StructField(first.name, first.dataType, True, {_ORIGIN: dict(options)})
    return StructType([origin, *rest])


def origin_of(schema: StructType) -> dict[str, str]:
    """The options of the table with this schema; empty for any other schema."""
    for column in schema.fields:
        found: object = (column.metadata or {}).get(_ORIGIN)
        if isinstance(found, dict):
            return {str(name): str(value) for name, value in found.items()}
    return {}


def asked_columns(
    schema: StructType, *, is_of_records: bool = False, more: Mapping[str, DataType] | None = None
) -> list[str]:
    """The names in a given schema; OptionError for an unknown column. `more` are further columns
    that this query has.
    """
    known: dict[str, DataType] = RECORD_COLUMNS if is_of_records else {**COLUMNS, **EXTRA_COLUMNS}
    known = {**known, **(more or {})}
    for column in schema.fields:
        if column.name not in known:
            raise OptionError(
                f"the schema has a column {column.name}; the columns are {', '.join(known)}"
            )
        if column.dataType != known[column.name]:
            raise OptionError(
                f"the schema has {column.name} as {column.dataType.simpleString()}; it is "
                f"{known[column.name].simpleString()}"
            )
        if not column.nullable:
            raise OptionError(f"the schema has {column.name} as NOT NULL; leave out NOT NULL")
    return [column.name for column in schema.fields]


WRITTEN: Final[dict[str, tuple[str, ...]]] = {
    "body": ("binary", "string"),
    "message_id": ("string",),
    "session_id": ("string",),
    "partition_key": ("string",),
    "correlation_id": ("string",),
    "subject": ("string",),
    "content_type": ("string",),
    "to": ("string",),
    "reply_to": ("string",),
    "reply_to_session_id": ("string",),
    "time_to_live_ms": ("bigint", "int"),
    "scheduled_time": ("timestamp",),
    "properties": ("map<string,string>",),
    AMQP_COLUMN: ("binary",),
}
"""The columns of a row to be written, and their types."""


def check_written(schema: StructType) -> None:
    """OptionError when rows of a schema cannot be messages.

    Columns that only the bus sets (sequence number, enqueue time) are ignored, so that rows that
    were read can be written again.
    """
    for column in schema.fields:
        kinds = WRITTEN.get(column.name)
        if kinds is None and column.name not in COLUMNS and column.name not in EXTRA_COLUMNS:
            raise OptionError(
                f"there is no column {column.name} in a message; the columns are "
                f"{', '.join(WRITTEN)}. Select or rename before you write, or put it into "
                "properties"
            )
        shown = column.dataType.simpleString()
        if kinds is not None and shown not in kinds:
            raise OptionError(f"column {column.name} is {shown}; it must be {' or '.join(kinds)}")
    if "body" not in schema.names:
        raise OptionError("there is no column body: a message needs one, binary or string")
