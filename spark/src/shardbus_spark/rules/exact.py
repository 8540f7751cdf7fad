"""Whether a value is exactly a constant: how correlation filters compare.

Numbers are equal if they are the same number, whatever their types: 1, 1.0 and the decimal 1.00.
"""

from __future__ import annotations

from decimal import Decimal
from math import isfinite
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from shardbus_spark.rules.arithmetic import compare
from shardbus_spark.rules.decimals import sort_key
from shardbus_spark.rules.values import WHOLE, Alternatives, constant

_NUMBERS: Final = ("ubyte", "ushort", "uint", "ulong", "byte", "short", "int", "long")
_FLOATING: Final = ("float", "double")
_WHOLE_MAX: Final = 10**20


def same(value: Alternatives, kind: str, text: str) -> Column:
    """Whether the value is this constant; false for an unknown value."""
    if kind in _FLOATING and not isfinite(float(text)):
        found = [] if value.double is None else [value.double == F.lit(float(text))]
    elif kind in (*_NUMBERS, *_FLOATING, "decimal"):
        found = _same_number(value, Decimal(float(text)) if kind in _FLOATING else Decimal(text))
    else:
        found = [compare("=", value, constant(kind, text))]
    return F.coalesce(*found, F.lit(False))


def _same_number(value: Alternatives, number: Decimal) -> list[Column]:
    found: list[Column] = []
    is_whole = number == number.to_integral_value()
    if value.whole is not None and is_whole and abs(number) < _WHOLE_MAX:
        found.append(value.whole == F.lit(str(int(number))).cast(WHOLE))
    if value.double is not None and Decimal(float(number)) == number:
        found.append(value.double == F.lit(float(number)))
    if value.decimal is not None:
        found.append(value.decimal == F.lit(sort_key(number)))
    return found
