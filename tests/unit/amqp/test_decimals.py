"""Decimal numbers in the binary integer form of IEEE 754."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardbus.codec.decimals import read_decimal, write_decimal
from shardbus.codec.errors import EncodeError

# Worked out by hand from IEEE 754, 3.5.2: sign, exponent plus bias, coefficient.
KNOWN = [
    ("32800000", "0"),
    ("32800001", "1"),
    ("b2800001", "-1"),
    ("3200000f", "1.5"),
    ("6cb8967f", "9999999"),
    ("31c0000000000000", "0"),
    ("31c0000000000001", "1"),
    ("b1a000000000000f", "-1.5"),
    ("6c7386f26fc0ffff", "9999999999999999"),
    ("30400000000000000000000000000000", "0"),
    ("30400000000000000000000000000001", "1"),
    ("b03e000000000000000000000000000f", "-1.5"),
    ("3041ed09bead87c0378d8e63ffffffff", "9999999999999999999999999999999999"),
]


@pytest.mark.parametrize(("encoded", "text"), KNOWN)
def test_numbers_of_each_width_are_read(encoded: str, text: str) -> None:
    assert read_decimal(bytes.fromhex(encoded)) == Decimal(text)


@pytest.mark.parametrize(
    "encoded",
    [
        "78000000",
        "f8000000",
        "7c000000",
        "7e000000",
        "7800000000000000",
        "7c000000000000000000000000000000",
    ],
)
def test_infinities_and_what_is_no_number_are_none(encoded: str) -> None:
    assert read_decimal(bytes.fromhex(encoded)) is None


@pytest.mark.parametrize("encoded", ["6cffffff", "6c7fffffffffffff", "60" + "f" * 30])
def test_a_coefficient_of_too_many_digits_is_zero(encoded: str) -> None:
    """IEEE 754, 3.5.2: non-canonical forms mean zero."""
    found = read_decimal(bytes.fromhex(encoded))

    assert found is not None
    assert found.is_zero()


@given(
    st.builds(
        lambda sign, coefficient, exponent: Decimal(
            (sign, tuple(int(digit) for digit in str(coefficient)), exponent)
        ),
        st.integers(0, 1),
        st.integers(0, 10**34 - 1),
        st.integers(-6176, 6111),
    )
)
def test_what_is_written_is_read_again_with_all_its_digits(number: Decimal) -> None:
    assert read_decimal(write_decimal(number)) == number


def test_more_digits_than_fit_are_rounded() -> None:
    third = Decimal("0." + "3" * 50)

    assert read_decimal(write_decimal(third)) == Decimal("0." + "3" * 34)


@pytest.mark.parametrize("text", ["1E+6200", "Infinity", "NaN", "sNaN"])
def test_what_no_decimal_holds_cannot_be_written(text: str) -> None:
    with pytest.raises(EncodeError, match="128 bits"):
        write_decimal(Decimal(text))
