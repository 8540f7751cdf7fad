"""Values stored as properties of a kind."""

from decimal import Decimal

import pytest

from shardbus.rules import values
from shardbus.rules.conversion import convert
from shardbus.rules.values import Duration, Guid, Moment, Value

IMPOSSIBLE = "impossible"


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (200, values.UBYTE, 200),
        (256, values.UBYTE, IMPOSSIBLE),
        (-1, values.UINT, IMPOSSIBLE),
        (-128, values.BYTE, -128),
        (2**31, values.INT, IMPOSSIBLE),
        (2**64 - 1, values.ULONG, 2**64 - 1),
        (2**64 - 1, values.LONG, IMPOSSIBLE),
        (3.0, values.INT, 3),
        (3.5, values.INT, IMPOSSIBLE),
        (float("inf"), values.INT, IMPOSSIBLE),
        (float("nan"), values.LONG, IMPOSSIBLE),
        (Decimal("4.0"), values.SHORT, 4),
        (Decimal("4.1"), values.SHORT, IMPOSSIBLE),
        (True, values.INT, IMPOSSIBLE),
        ("3", values.INT, IMPOSSIBLE),
        (3, values.DOUBLE, 3.0),
        (0.1, values.FLOAT, 0.10000000149011612),
        (1e300, values.FLOAT, IMPOSSIBLE),
        (True, values.DOUBLE, IMPOSSIBLE),
        (3, values.DECIMAL, Decimal(3)),
        (0.5, values.DECIMAL, IMPOSSIBLE),
        (Decimal(1), values.DOUBLE, IMPOSSIBLE),
        (5, values.TEXT, "5"),
        (True, values.URI, "True"),
        (Moment(1), values.TEXT, IMPOSSIBLE),
        ("é", values.SYMBOL, IMPOSSIBLE),
        ("e", values.SYMBOL, "e"),
        ("x", values.CHAR, "x"),
        ("xy", values.CHAR, IMPOSSIBLE),
        (True, values.BOOLEAN, True),
        (1, values.BOOLEAN, IMPOSSIBLE),
        (Moment(5), values.TIMESTAMP, Moment(5)),
        (Moment(5), values.OFFSET_TIMESTAMP, Moment(5)),
        (Duration(5), values.TIMESTAMP, IMPOSSIBLE),
        (Duration(5), values.DURATION, Duration(5)),
        (Guid(bytes(16)), values.UUID, Guid(bytes(16))),
        ("0", values.UUID, IMPOSSIBLE),
        (b"x", values.BINARY, b"x"),
        ("x", values.BINARY, IMPOSSIBLE),
    ],
)
def test_a_value_keeps_the_kind_if_nothing_it_says_is_lost(
    value: Value, kind: int, expected: Value
) -> None:
    converted = convert(value, kind)

    if expected == IMPOSSIBLE:
        assert converted is None
    else:
        assert converted is not None
        assert (converted.kind, type(converted.value)) == (kind, type(expected))
        assert converted.value == expected


def test_a_null_is_a_null_of_any_kind_and_gives_way_to_any_value() -> None:
    null, value = convert(None, values.INT), convert("x", values.NULL)

    assert null is not None
    assert (null.kind, null.value) == (values.NULL, None)
    assert value is not None
    assert (value.kind, value.value) == (values.TEXT, "x")
