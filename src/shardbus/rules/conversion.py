"""How a value is converted when it is stored as a property of a given kind."""

from __future__ import annotations

import math
import struct
from decimal import Decimal
from typing import Final, final

from shardbus.rules.text import text_of
from shardbus.rules.values import (
    BINARY,
    BOOLEAN,
    CHAR,
    DECIMAL,
    DOUBLE,
    DURATION,
    FLOAT,
    NULL,
    OFFSET_TIMESTAMP,
    RANGES,
    SYMBOL,
    TEXT,
    TIMESTAMP,
    UNZONED_TIMESTAMP,
    URI,
    UUID,
    Duration,
    Guid,
    Moment,
    Value,
    kind_of,
)

_FLOAT: Final = struct.Struct(">f")


@final
class Converted:
    """A value as its kind holds it."""

    def __init__(self, kind: int, value: Value) -> None:
        self.kind = kind
        self.value = value


def convert(value: Value, kind: int) -> Converted | None:
    """The value as one of this kind, or None when that would change its meaning.

    A null is a null of any kind, and a property that was null takes the kind of its new value.
    Integers keep the kind if they fit; a double becomes a float by rounding; numbers, booleans and
    Guids can become text; a text is never converted to another kind.
    """
    if value is None:
        return Converted(NULL, None)
    if kind == NULL:
        return Converted(kind_of(value), value)
    if kind in RANGES:
        found: Value = _integer(value, kind)
    elif kind in (FLOAT, DOUBLE, DECIMAL):
        found = _number(value, kind)
    elif kind in (TEXT, SYMBOL, URI, CHAR):
        found = _text(value, kind)
    else:
        found = value if _is_of(value, kind) else None
    return None if found is None else Converted(kind, found)


def _integer(value: Value, kind: int) -> int | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        return None
    if not math.isfinite(value):
        return None
    whole = math.trunc(value)
    low, high = RANGES[kind]
    return whole if whole == value and low <= whole <= high else None


def _number(value: Value, kind: int) -> float | Decimal | None:
    if isinstance(value, bool):
        return None
    if kind == DECIMAL:
        return Decimal(value) if isinstance(value, (int, Decimal)) else None
    if not isinstance(value, (int, float)):
        return None
    return _rounded(float(value)) if kind == FLOAT else float(value)


def _rounded(value: float) -> float | None:
    try:
        made: tuple[float] = _FLOAT.unpack(_FLOAT.pack(value))
    except OverflowError:
        return None
    return made[0]


def _text(value: Value, kind: int) -> str | None:
    text = text_of(value)
    if text is None or (kind == CHAR and len(text) != 1):
        return None
    return None if kind == SYMBOL and not text.isascii() else text


def _is_of(value: Value, kind: int) -> bool:
    if kind == BOOLEAN:
        return isinstance(value, bool)
    if kind in (TIMESTAMP, OFFSET_TIMESTAMP, UNZONED_TIMESTAMP):
        return isinstance(value, Moment)
    if kind == DURATION:
        return isinstance(value, Duration)
    if kind == UUID:
        return isinstance(value, Guid)
    assert kind == BINARY
    return isinstance(value, bytes)
