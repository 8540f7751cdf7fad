"""The columns of messages as Spark sees them, and those that a query asked for."""

from __future__ import annotations

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
JSON_COLUMN: Final = "properties_json"


def message_schema(*, includes_json: bool) -> StructType:
    """All columns, and one more when it was asked for."""
    fields = [StructField(name, kind, True) for name, kind in COLUMNS.items()]
    if includes_json:
        fields.append(StructField(JSON_COLUMN, StringType(), True))
    return StructType(fields)


def asked_columns(schema: StructType) -> list[str]:
    """The names in a schema that a query gave; OptionError when a column is not ours."""
    known: dict[str, DataType] = {**COLUMNS, JSON_COLUMN: StringType()}
    for column in schema.fields:
        if column.name not in known:
            raise OptionError(
                f"the schema has a column {column.name}; there are {', '.join(known)}"
            )
        if column.dataType != known[column.name]:
            raise OptionError(
                f"the schema has {column.name} as {column.dataType.simpleString()}; it is "
                f"{known[column.name].simpleString()}"
            )
        if not column.nullable:
            raise OptionError(f"the schema has {column.name} as NOT NULL; leave that out")
    return [column.name for column in schema.fields]
