"""How values are written as text."""

from decimal import Decimal

import pytest

from shardbus.rules.text import text_of
from shardbus.rules.values import Duration, Guid, Moment, Value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("x", "x"),
        (True, "True"),
        (False, "False"),
        (-12, "-12"),
        (1.0, "1"),
        (-0.0, "-0"),
        (0.1, "0.1"),
        (-1234.5, "-1234.5"),
        (0.0001, "0.0001"),
        (0.00001, "1E-05"),
        (0.0000125, "1.25E-05"),
        (100000000000000.0, "100000000000000"),
        (123456789012345.6, "123456789012345.6"),
        (1e15, "1E+15"),
        (1234567890123456.0, "1.234567890123456E+15"),
        (1.5e300, "1.5E+300"),
        (float("nan"), "NaN"),
        (float("inf"), "Infinity"),
        (float("-inf"), "-Infinity"),
        (Decimal("1.50"), "1.50"),
        (Decimal("1E+3"), "1000"),
        (Guid(bytes(16)), "00000000-0000-0000-0000-000000000000"),
        (None, None),
        (b"x", None),
        (Moment(0), None),
        (Duration(0), None),
    ],
)
def test_values_have_the_text_of_the_original_platform(value: Value, text: str | None) -> None:
    assert text_of(value) == text
