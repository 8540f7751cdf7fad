"""How values are compared and computed: the semantics of the language, one function each.

Integers have 64 bits and are converted to doubles when they meet doubles; an overflow or a division
by zero is an EvaluationError. Where an operand is unknown, or two operands have incompatible types,
the result is unknown.
"""

from __future__ import annotations

import math
from decimal import ROUND_HALF_EVEN, Context, Decimal
from typing import Final

from mypy_extensions import i64

from shardbus.rules.errors import EvaluationError
from shardbus.rules.limits import INTEGER_MAX, INTEGER_MIN, TEXT_CHARACTERS_MAX
from shardbus.rules.text import text_of
from shardbus.rules.tree import DIVIDE, MINUS, PLUS, REMAINDER, TIMES
from shardbus.rules.values import Duration, Guid, Moment, Value

# Kleene's logic: AND is the least of its parts, OR the greatest, NOT is TRUE minus its operand.
FALSE: Final = 0
UNKNOWN: Final = 1
TRUE: Final = 2

LESS: Final = -1
SAME: Final = 0
GREATER: Final = 1
UNORDERED: Final = 2
"""Neither less nor equal nor greater: one of the doubles is not a number."""
INCOMPARABLE: Final = 3

# What System.Decimal holds: 96 bits.
_DECIMAL_MAX: Final = Decimal(2**96 - 1)
_DECIMALS: Final = Context(prec=28, rounding=ROUND_HALF_EVEN, traps=[])


def equals(left: Value, right: Value) -> i64:
    """Whether two values are equal: TRUE, FALSE, or UNKNOWN where they cannot be compared."""
    if isinstance(left, str):
        if isinstance(right, str):
            return TRUE if left == right else FALSE
        return UNKNOWN
    if isinstance(left, bool) or isinstance(right, bool):
        if isinstance(left, bool) and isinstance(right, bool):
            return TRUE if left == right else FALSE
        return UNKNOWN
    if isinstance(left, (Guid, bytes)):
        if (isinstance(left, Guid) and isinstance(right, Guid)) or (
            isinstance(left, bytes) and isinstance(right, bytes)
        ):
            return TRUE if left == right else FALSE
        return UNKNOWN
    found = order(left, right)
    if found == INCOMPARABLE:
        return UNKNOWN
    return TRUE if found == SAME else FALSE


def order(left: Value, right: Value) -> i64:
    """LESS, SAME, GREATER, UNORDERED, or INCOMPARABLE for types without an order.

    Texts are ordered by code points. Booleans, binaries and Guids have no order.
    """
    if left is None or right is None or isinstance(left, bool) or isinstance(right, bool):
        return INCOMPARABLE
    if isinstance(left, int) and isinstance(right, int):
        return LESS if left < right else (GREATER if left > right else SAME)
    if isinstance(left, str):
        if isinstance(right, str):
            return LESS if left < right else (GREATER if left > right else SAME)
        return INCOMPARABLE
    if isinstance(left, (int, float)) and isinstance(right, (int, float)):
        return _double_order(float(left), float(right))
    if isinstance(left, (int, Decimal)) and isinstance(right, (int, Decimal)):
        return _decimal_order(Decimal(left), Decimal(right))
    if isinstance(left, Moment) and isinstance(right, Moment):
        return order(left.ticks, right.ticks)
    if isinstance(left, Duration) and isinstance(right, Duration):
        return order(left.ticks, right.ticks)
    return INCOMPARABLE


def compute(operator: str, left: Value, right: Value) -> Value:
    """PLUS, MINUS, TIMES, DIVIDE or REMAINDER of two values; None where the result is unknown."""
    if left is None or right is None:
        return None
    if operator == PLUS and (isinstance(left, str) or isinstance(right, str)):
        return _joined(left, right)
    if isinstance(left, bool) or isinstance(right, bool):
        return None
    if isinstance(left, int) and isinstance(right, int):
        return _integer(operator, left, right)
    if isinstance(left, (int, float)) and isinstance(right, (int, float)):
        return _double(operator, float(left), float(right))
    if isinstance(left, (int, Decimal)) and isinstance(right, (int, Decimal)):
        return _decimal(operator, Decimal(left), Decimal(right))
    return _time(operator, left, right)


def negate(value: Value) -> Value:
    """The opposite number or duration; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return _in_range(-value)
    if isinstance(value, float):
        return -value
    if isinstance(value, Decimal):
        return value.copy_negate()
    return Duration(_in_range(-value.ticks)) if isinstance(value, Duration) else None


def affirm(value: Value) -> Value:
    """A plus sign: the number or duration itself; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal, Duration)):
        return None
    return value


def _double_order(left: float, right: float) -> i64:
    if left < right:
        return LESS
    if left > right:
        return GREATER
    return SAME if left == right else UNORDERED


def _decimal_order(left: Decimal, right: Decimal) -> i64:
    if left.is_nan() or right.is_nan():
        return UNORDERED
    return LESS if left < right else (GREATER if left > right else SAME)


def _joined(left: Value, right: Value) -> Value:
    first, second = text_of(left), text_of(right)
    if first is None or second is None:
        return None
    if len(first) + len(second) > TEXT_CHARACTERS_MAX:
        raise EvaluationError(f"The result of + has more than {TEXT_CHARACTERS_MAX} characters.")
    return first + second


def _integer(operator: str, left: int, right: int) -> int:
    if operator == PLUS:
        return _in_range(left + right)
    if operator == MINUS:
        return _in_range(left - right)
    if operator == TIMES:
        return _in_range(left * right)
    _check_divisor(right == 0)
    quotient = abs(left) // abs(right)
    if (left < 0) != (right < 0):
        quotient = -quotient
    if operator == DIVIDE:
        return _in_range(quotient)
    assert operator == REMAINDER
    return _in_range(left - quotient * right)


def _in_range(value: int) -> int:
    if value < INTEGER_MIN or value > INTEGER_MAX:
        raise EvaluationError("The result of a calculation has more than 64 bits.")
    return value


def _double(operator: str, left: float, right: float) -> float:
    if operator == PLUS:
        return left + right
    if operator == MINUS:
        return left - right
    if operator == TIMES:
        return left * right
    _check_divisor(right == 0.0)
    if operator == DIVIDE:
        return left / right
    assert operator == REMAINDER
    # In C the remainder of an infinity is not a number; Python's fmod raises instead.
    return math.nan if math.isinf(left) else math.fmod(left, right)


def _decimal(operator: str, left: Decimal, right: Decimal) -> Decimal:
    if operator == PLUS:
        result = _DECIMALS.add(left, right)
    elif operator == MINUS:
        result = _DECIMALS.subtract(left, right)
    elif operator == TIMES:
        result = _DECIMALS.multiply(left, right)
    else:
        _check_divisor(right.is_zero())
        is_division = operator == DIVIDE
        result = (_DECIMALS.divide if is_division else _DECIMALS.remainder)(left, right)
    if not result.is_finite() or abs(result) > _DECIMAL_MAX:
        raise EvaluationError(
            "The result of a calculation has more than 96 bits, the size of a decimal."
        )
    return result


def _check_divisor(is_zero: bool) -> None:
    if is_zero:
        raise EvaluationError("The expression has a division by zero.")


def _time(operator: str, left: Value, right: Value) -> Value:
    if operator != PLUS and operator != MINUS:
        return None
    if isinstance(left, Moment):
        if isinstance(right, Moment) and operator == MINUS:
            return Duration(_integer(MINUS, left.ticks, right.ticks))
        if isinstance(right, Duration):
            return Moment(_integer(operator, left.ticks, right.ticks))
    elif isinstance(left, Duration):
        if isinstance(right, Duration):
            return Duration(_integer(operator, left.ticks, right.ticks))
        if isinstance(right, Moment) and operator == PLUS:
            return Moment(_integer(PLUS, left.ticks, right.ticks))
    return None
