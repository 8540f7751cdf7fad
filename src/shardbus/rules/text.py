"""Values as text, as .NET writes them with the invariant culture."""

from __future__ import annotations

from decimal import Decimal
from typing import Final

from shardbus.rules.values import Guid, Value

# .NET writes a double of this many digits before the point, or more, with an exponent.
_PLAIN_DIGITS_MAX: Final = 15
_PLAIN_ZEROS_MAX: Final = 4


def text_of(value: Value) -> str | None:
    """The text of a value for `+` and for text properties; None when it has none."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "True" if value else "False"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _double_text(value)
    if isinstance(value, Decimal):
        return f"{value:f}"
    return str(value) if isinstance(value, Guid) else None


def _double_text(value: float) -> str:
    """The shortest digits that read back as the same number: 1, 0.1, 1E+15, 1.5E-05."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    mantissa, _, exponent_text = repr(value).partition("e")
    sign = "-" if mantissa.startswith("-") else ""
    whole, _, rest = mantissa.lstrip("-").partition(".")
    digits = (whole + rest).lstrip("0")
    if not digits:
        return sign + "0"
    leading_zeros = len(whole + rest) - len(digits)
    exponent = int(exponent_text or "0") + len(whole) - leading_zeros - 1
    return sign + _placed(digits.rstrip("0"), exponent)


def _placed(digits: str, exponent: int) -> str:
    """d.ddd times ten to the exponent."""
    if exponent >= _PLAIN_DIGITS_MAX or exponent < -_PLAIN_ZEROS_MAX:
        rest = f".{digits[1:]}" if len(digits) > 1 else ""
        return f"{digits[0]}{rest}E{'-' if exponent < 0 else '+'}{abs(exponent):02d}"
    if exponent < 0:
        return f"0.{'0' * (-exponent - 1)}{digits}"
    whole = digits[: exponent + 1].ljust(exponent + 1, "0")
    rest = digits[exponent + 1 :]
    return f"{whole}.{rest}" if rest else whole
