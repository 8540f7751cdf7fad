"""Decimal numbers as texts whose order is that of the numbers.

Decimals of AMQP have up to 34 digits anywhere between 10^-6176 and 10^6144, and those of Spark 38
around a fixed point, so that no type of Spark holds them. A rule only compares them: as texts that
are ordered like the numbers they are exact. Whole numbers get such texts too, by columns, where
they meet decimals.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

ZERO: Final = "1"
_POSITIVE: Final = "2"
_NEGATIVE: Final = "0"
_BIAS: Final = 10_000
_DIGITS: Final = "0123456789"
# Above every digit: of two negative numbers the one with more digits is less.
_LAST: Final = "~"


def sort_key(number: Decimal) -> str:
    """The text of a finite number."""
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    shown = "".join(map(str, digits)).lstrip("0")
    if not shown:
        return ZERO
    magnitude = f"{exponent + len(shown) + _BIAS:05d}{shown.rstrip('0')}"
    if not sign:
        return _POSITIVE + magnitude
    return _NEGATIVE + magnitude.translate(str.maketrans(_DIGITS, _DIGITS[::-1])) + _LAST


def sort_key_column(whole: Column) -> Column:
    """The texts of a column of whole numbers."""
    digits = F.abs(whole).cast("string")
    places = F.lpad((F.length(digits) + F.lit(_BIAS)).cast("string"), 5, "0")
    magnitude = F.concat(places, F.rtrim(digits, F.lit("0")))
    mirrored = F.translate(magnitude, _DIGITS, _DIGITS[::-1])
    return (
        F.when(whole == 0, F.lit(ZERO))
        .when(whole > 0, F.concat(F.lit(_POSITIVE), magnitude))
        .otherwise(F.concat(F.lit(_NEGATIVE), mirrored, F.lit(_LAST)))
    )
