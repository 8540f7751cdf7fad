"""The column `json`: JSON bodies with the types of a schema that the query gives."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
)

from shardbus_spark.conditions.json_schema import parse_schema
from shardbus_spark.errors import OptionError

JSON: Final = "json"
BODY: Final = "body"
_BITS: Final[dict[type[DataType], int]] = {ShortType: 15, IntegerType: 31, LongType: 63}


class Unfit(Exception):
    """The body does not fit the schema."""


@cache
def body_schema(text: str) -> StructType:
    """The type of the column; OptionError for a schema that cannot be used."""
    try:
        schema = parse_schema(text)
    except OptionError as error:
        raise OptionError("bodySchema" + str(error).removeprefix("json_schema")) from error
    _check(schema)
    return schema


def _check(kind: DataType) -> None:
    match kind:
        case StructType():
            for field in kind.fields:
                _check(field.dataType)
        case ArrayType():
            _check(kind.elementType)
        case MapType():
            _check(kind.valueType)
        case StringType() | BooleanType() | DoubleType() | FloatType():
            return
        case _ if type(kind) not in _BITS:
            raise OptionError(
                f"bodySchema has {kind.simpleString()}, which JSON does not have: read it as "
                "string and cast it, or use shardbus_spark.functions.from_json_body"
            )


def columns_read(columns: Sequence[str]) -> list[str]:
    """The columns to ask the bus for."""
    if JSON not in columns:
        return list(columns)
    read = [name for name in columns if name != JSON]
    return read if BODY in read else [*read, BODY]


def with_json(
    batches: Iterator[pa.RecordBatch], columns: Sequence[str], schema: str
) -> Iterator[pa.RecordBatch]:
    """Batches of `columns_read`, as batches of the columns."""
    if JSON not in columns:
        return batches
    return (_with_json(batch, columns, body_schema(schema)) for batch in batches)


def _with_json(batch: pa.RecordBatch, columns: Sequence[str], kind: StructType) -> pa.RecordBatch:
    bodies: list[object] = list(batch.column(BODY).to_pylist())
    values = [value_of(body, kind) for body in bodies]
    placed = batch.append_column(JSON, pa.array(values, to_arrow_type(kind)))
    return placed.select(list(columns))


def value_of(body: object, kind: StructType) -> object:
    """The body with the types of the schema; None for one that is not such JSON."""
    if not isinstance(body, bytes):
        return None
    try:
        found: object = json.loads(body.decode("utf-8"), parse_constant=_refused)
        return _fitting(found, kind) if isinstance(found, dict) else None
    except (ValueError, RecursionError, Unfit):
        return None


def _refused(word: str) -> object:
    # JSON has no NaN and no Infinity.
    raise Unfit(word)


def _fitting(value: object, kind: DataType) -> object:
    if value is None:
        return None
    match kind, value:
        case StructType(), dict():
            return {
                field.name: _fitting(value.get(field.name), field.dataType) for field in kind.fields
            }
        case ArrayType(), list():
            return [_fitting(item, kind.elementType) for item in value]
        case MapType(), dict():
            return [(_text(key), _fitting(item, kind.valueType)) for key, item in value.items()]
        case StringType(), _:
            return _text(value if isinstance(value, str) else _spelled(value))
        case BooleanType(), bool():
            return value
        case ((DoubleType() | FloatType()), (int() | float())) if not isinstance(value, bool):
            return _double(value)
        case _, int() if type(kind) in _BITS and not isinstance(value, bool):
            return _integer(value, _BITS[type(kind)])
    raise Unfit(kind.simpleString())


def _spelled(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _text(text: str) -> str:
    if not text.isascii():
        # Half of a surrogate pair, which JSON can escape, has no place in UTF-8: ValueError.
        text.encode("utf-8")
    return text


def _double(value: float) -> float:
    try:
        return float(value)
    except OverflowError as error:
        raise Unfit("double") from error


def _integer(value: int, bits: int) -> int:
    if not -(1 << bits) <= value < 1 << bits:
        raise Unfit("integer")
    return value
