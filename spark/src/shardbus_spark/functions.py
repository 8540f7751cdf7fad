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
# A name in a schema may have any characters between backquotes; the rest are words of types.
_WORDS: Final = re.compile(r"`(?:[^`]|``)*`|OBJECT<|VOID|DECIMAL\(\d+,\s*\d+\)")
_SPARK_WORDS: Final = {"OBJECT<": "STRUCT<", "VOID": "STRING"}


def fragment_of(key: Column | str, count: int) -> Column:
    """Which of `count` fragments has the messages with this partition key.

    `key` is a column of text, or its name; null gives null, since the bus chooses freely for a
    message without a key. The result is the fragment's number as long as the entity has its
    original even ranges. The key of a message with a session is `session_key` of its session id.
    """
    if not 1 <= count <= FRAGMENTS_MAX:
        raise OptionError(
            f"count is {count}; it must be from 1 to {FRAGMENTS_MAX}, the number of fragments"
        )
    column = (F.col(key) if isinstance(key, str) else key).cast("string")
    point = F.shiftrightunsigned(F.xxhash64(column), _SPACE_BITS)
    number = F.shiftright(point * F.lit(count).cast("bigint"), _SPACE_BITS).cast("int")
    return F.when(column.isNotNull(), number)


def from_json_body(
    schema: StructType | ArrayType | str,
    column: Column | str = "body",
    options: Mapping[str, str] | None = None,
) -> Column:
    """The body of a message as read by Spark's `from_json`: JSON in UTF-8, by a schema.

    A field that is missing in the JSON is null. A body that is not JSON, or does not fit the
    schema, gives nulls, unless `options` say otherwise: `{"mode": "FAILFAST"}`.
    """
    text = (F.col(column) if isinstance(column, str) else column).cast("string")
    return F.from_json(text, schema, dict(options or {}))


def json_schema_of(
    frame: DataFrame, column: Column | str = "body", *, rows: int = SAMPLE_ROWS
) -> str:
    """The schema of JSON bodies, found in `rows` rows of a batch read, for `from_json_body`.

    Store it in a long-running job: another sample may have another schema. Numbers with a point are
    doubles, and a field with several types in the sample is a variant. OptionError when no row of
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
        # The type in the sample has only as many digits as the sample needs.
        return "DECIMAL(38,0)" if word[0].endswith(",0)") else "DOUBLE"
    return _SPARK_WORDS.get(word[0], word[0])
