"""Trees of conditions as columns of Spark: nothing here is text that Spark would parse."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from shardbus_spark.conditions.tree import (
    Between,
    Binary,
    Call,
    Case,
    Cast,
    Expression,
    In,
    Is,
    Item,
    Literal,
    Match,
    Moment,
    Name,
    Unary,
)

_LONG_MAX: Final = 2**63 - 1

_UNARY: Final[dict[str, Callable[[Column], Column]]] = {
    "not": lambda value: ~value,
    "-": lambda value: -value,
    "+": F.positive,
    "~": F.bitwise_not,
}
_BINARY: Final[dict[str, Callable[[Column, Column], Column]]] = {
    "and": lambda left, right: left & right,
    "or": lambda left, right: left | right,
    "=": lambda left, right: left == right,
    "==": lambda left, right: left == right,
    "<=>": lambda left, right: left.eqNullSafe(right),
    "<>": lambda left, right: left != right,
    "!=": lambda left, right: left != right,
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
    "+": lambda left, right: left + right,
    "-": lambda left, right: left - right,
    "*": lambda left, right: left * right,
    "/": lambda left, right: left / right,
    "%": lambda left, right: left % right,
    "||": lambda left, right: F.concat(left, right),
    "&": lambda left, right: left.bitwiseAND(right),
    "|": lambda left, right: left.bitwiseOR(right),
    "^": lambda left, right: left.bitwiseXOR(right),
}
_MATCHES: Final = {"like": F.like, "ilike": F.ilike}


def column_of(expression: Expression) -> Column:
    """The column that Spark's SQL would make of the same condition."""
    match expression:
        case Literal(value):
            return _constant(value)
        case Moment(kind, text):
            return F.lit(text).cast(kind)
        case Name(name):
            return named(name)
        case Item(base, Literal(key)) if isinstance(key, str | int):
            return column_of(base)[key]
        case Item(base, key):
            return column_of(base)[column_of(key)]
        case Call(function, arguments):
            return F.call_function(function, *map(column_of, arguments))
        case Cast(value, kind, is_try):
            return column_of(value).try_cast(kind) if is_try else column_of(value).cast(kind)
        case Unary(operator, value):
            return _UNARY[operator](column_of(value))
        case Binary(operator, left, right):
            return _BINARY[operator](column_of(left), column_of(right))
        case _:
            return _test(expression)


def named(name: str) -> Column:
    """The column of this name, whatever characters it has."""
    return F.col("`" + name.replace("`", "``") + "`")


def _test(expression: Between | In | Match | Is | Case) -> Column:
    match expression:
        case Between(value, low, high):
            return column_of(value).between(column_of(low), column_of(high))
        case In(value, choices):
            return column_of(value).isin(*map(column_of, choices))
        case Match():
            return _match(expression)
        case Is(value, what):
            return column_of(value).isNull() if what is None else _is(column_of(value), what)
        case Case():
            return _case(expression)


def _is(value: Column, what: bool) -> Column:
    return value.eqNullSafe(F.lit(what))


def _match(expression: Match) -> Column:
    value, pattern = column_of(expression.value), column_of(expression.pattern)
    if expression.how == "rlike":
        return F.rlike(value, pattern)
    escape = F.lit(expression.escape) if expression.escape else None
    return _MATCHES[expression.how](value, pattern, escape)


def _case(expression: Case) -> Column:
    def holds(condition: Expression) -> Column:
        found = column_of(condition)
        return found if expression.subject is None else column_of(expression.subject) == found

    (first, result), *others = expression.branches
    found = F.when(holds(first), column_of(result))
    for condition, result in others:
        found = found.when(holds(condition), column_of(result))
    return (
        found if expression.otherwise is None else found.otherwise(column_of(expression.otherwise))
    )


def _constant(value: bool | int | float | Decimal | str | None) -> Column:
    if isinstance(value, int) and not isinstance(value, bool) and value > _LONG_MAX:
        value = Decimal(value)
    if isinstance(value, Decimal):
        # The digits that were written. Spark Connect would take a Decimal for a whole number,
        # because it ignores its scale.
        _, digits, exponent = value.as_tuple()
        scale = -exponent if isinstance(exponent, int) else 0
        return F.lit(str(value)).cast(f"decimal({max(len(digits), scale)},{scale})")
    return F.lit(value)
