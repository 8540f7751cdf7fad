"""Column expressions about entities."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, StructType

from shardbus_spark.errors import OptionError
from shardbus_spark.session_keys import session_key

__all__ = ["FRAGMENTS_MAX", "fragment_of", "from_json_body", "json_schema_of", "session_key"]

FRAGMENTS_MAX: Final = 1 << 16
_SPACE_BITS: Final = 32
SAMPLE_ROWS: Final = 1_000
# A name in a schema may hold anything between backquotes; the rest are words of types.
_WORDS: Final = re.compile(r"`(?:[^`]|``)*`|OBJECT<|VOID|DECIMAL\(\d+,\s*\d+\)")
_SPARK_WORDS: Final = {"OBJECT<": "STRUCT<", "VOID": "STRING"}


def fragment_of(key: Column | str, count: int) -> Column:
    """Which of `count` fragments the bus keeps messages with this partition key in.

    `key` is a column of text, or its name; null gives null, since the bus places a message without
    a key where it likes. It is the fragment's number as long as the entity has the even ranges that
    it was made with. The key of a message with a session is `session_key` of its session id.
    """
    if not 1 <= count <= FRAGMENTS_MAX:
        raise OptionError(f"count is {count}; an entity has 1 to {FRAGMENTS_MAX} fragments")
    column = (F.col(key) if isinstance(key, str) else key).cast("string")
    point = F.shiftrightunsigned(F.xxhash64(column), _SPACE_BITS)
    number = F.shiftright(point * F.lit(count).cast("bigint"), _SPACE_BITS).cast("int")
    return F.when(column.isNotNull(), number)


def from_json_body(
    schema: StructType | ArrayType | str,
    column: Column | str = "body",
    options: Mapping[str, str] | None = None,
) -> Column:
    """The body of a message as Spark's `from_json` reads it: JSON in UTF-8, by a schema.

    A field that is not in the JSON is null. A body that is no JSON, or not that of the schema,
    gives nulls, unless `options` say otherwise: `{"mode": "FAILFAST"}`.
    """
    text = (F.col(column) if isinstance(column, str) else column).cast("string")
    return F.from_json(text, schema, dict(options or {}))


def json_schema_of(
    frame: DataFrame, column: Column | str = "body", *, rows: int = SAMPLE_ROWS
) -> str:
    """The schema of JSON bodies, found in so many rows of a batch read, for `from_json_body`.

    Write it down in a job that lasts: another sample may have another schema. Numbers with a point
    are doubles, and what has several types in the sample is a variant. OptionError when no row of
    the sample has JSON.
    """
    text = (F.col(column) if isinstance(column, str) else column).cast("string")
    sample = frame.select(text.alias("text")).limit(rows)
    found = sample.select(F.schema_of_variant_agg(F.try_parse_json("text"))).head()
    shown = str(found[0]) if found is not None else "VOID"
    if shown == "VOID":
        raise OptionError(f"none of the first {rows} rows has a body in JSON: give a schema")
    return _WORDS.sub(_as_spark_says, shown)


def _as_spark_says(word: re.Match[str]) -> str:
    if word[0].startswith("DECIMAL"):
        # That of the sample has as many digits as the sample needs.
        return "DECIMAL(38,0)" if word[0].endswith(",0)") else "DOUBLE"
    return _SPARK_WORDS.get(word[0], word[0])
