"""Decimal numbers as IEEE 754 bytes in the binary integer form, which AMQP uses, big end first."""

from decimal import Context, Decimal
from typing import Final

from shardbus.codec.errors import EncodeError

# By the number of bytes: the bits of the exponent, its bias, and the digits.
_LAYOUTS: Final[dict[int, tuple[int, int, int]]] = {
    4: (8, 101, 7),
    8: (10, 398, 16),
    16: (14, 6176, 34),
}
_WIDEST: Final = 16
_ROUNDING: Final = Context(prec=34, Emin=-6143, Emax=6144, clamp=1, traps=[])


def read_decimal(content: bytes) -> Decimal | None:
    """The number in 4, 8 or 16 bytes; None for an infinity and for what is not a number."""
    width = len(content) * 8
    exponent_bits, bias, digits_max = _LAYOUTS[len(content)]
    bits = int.from_bytes(content, "big")
    trailing = width - 1 - exponent_bits
    if bits >> (width - 3) & 0b11 != 0b11:
        coefficient = bits & _ones(trailing)
    elif bits >> (width - 5) & 0b1111 == 0b1111:
        return None
    else:
        # The first three bits of so large a coefficient are 100 and are left out.
        trailing -= 2
        coefficient = 0b100 << trailing | bits & _ones(trailing)
    exponent = (bits >> trailing & _ones(exponent_bits)) - bias
    # "Non-canonical: a coefficient of more digits is 0" (IEEE 754, 3.5.2).
    if coefficient >= 10**digits_max:
        coefficient = 0
    digits = tuple([int(digit) for digit in str(coefficient)])
    return Decimal((bits >> (width - 1), digits, exponent))


def write_decimal(number: Decimal) -> bytes:
    """16 bytes, rounded to 34 digits; EncodeError for what does not fit them."""
    rounded = _ROUNDING.create_decimal(number)
    sign, digits, exponent = rounded.as_tuple()
    if not isinstance(exponent, int):
        raise EncodeError(f"{number} does not fit in 128 bits")
    exponent_bits, bias, _ = _LAYOUTS[_WIDEST]
    coefficient = int("".join([str(digit) for digit in digits]))
    trailing = _WIDEST * 8 - 1 - exponent_bits
    bits = sign << (_WIDEST * 8 - 1) | (exponent + bias) << trailing | coefficient
    return bits.to_bytes(_WIDEST, "big")


def _ones(count: int) -> int:
    return (1 << count) - 1
