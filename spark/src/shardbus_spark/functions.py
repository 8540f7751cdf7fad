"""Column expressions about entities."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from shardbus_spark.errors import OptionError
from shardbus_spark.session_keys import session_key

__all__ = ["FRAGMENTS_MAX", "fragment_of", "session_key"]

FRAGMENTS_MAX: Final = 1 << 16
_SPACE_BITS: Final = 32


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
