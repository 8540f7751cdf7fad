"""How values of rules are compared and computed, in columns: the semantics of the bus.

A comparison is null where it is unknown. Spark's comparisons are not used for NaN, and operators of
Spark that can fail a query are not used at all: a separate column is true where the bus would raise
an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from shardbus_spark.rules.decimals import sort_key_column
from shardbus_spark.rules.values import TICKS, WHOLE, Alternatives, either

_LEAST: Final = -(2**63)
_GREATEST: Final = 2**63 - 1
TEXT_CHARACTERS_MAX: Final = 65_536

_Comparing = Callable[[Column, Column], Column]
_COMPARISONS: Final[dict[str, _Comparing]] = {
    "=": lambda left, right: left == right,
    "<>": lambda left, right: left != right,
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
}
_OPERATIONS: Final[dict[str, Callable[[Column, Column], Column]]] = {
    "+": F.try_add,
    "-": F.try_subtract,
    "*": F.try_multiply,
    "/": F.try_divide,
    "%": F.try_mod,
}


def compare(operator: str, left: Alternatives, right: Alternatives) -> Column:
    """Null where the values cannot be compared."""
    found = [
        *_paired(_COMPARISONS[operator], _ordered_pairs(left, right)),
        *_paired(lambda a, b: _compared_doubles(operator, a, b), _double_pairs(left, right)),
    ]
    if operator in ("=", "<>"):
        found += _paired(_COMPARISONS[operator], _unordered_pairs(left, right))
    return _first(found, "boolean")


def _paired(make: _Comparing, pairs: Iterator[tuple[Column | None, Column | None]]) -> list[Column]:
    return [make(a, b) for a, b in pairs if a is not None and b is not None]


def _ordered_pairs(
    left: Alternatives, right: Alternatives
) -> Iterator[tuple[Column | None, Column | None]]:
    yield left.text, right.text
    yield left.whole, right.whole
    yield left.decimal, right.decimal
    yield left.moment, right.moment
    yield left.duration, right.duration
    if left.whole is not None and right.decimal is not None:
        yield sort_key_column(left.whole), right.decimal
    if left.decimal is not None and right.whole is not None:
        yield left.decimal, sort_key_column(right.whole)


def _unordered_pairs(
    left: Alternatives, right: Alternatives
) -> Iterator[tuple[Column | None, Column | None]]:
    yield left.boolean, right.boolean
    yield left.binary, right.binary
    yield left.guid, right.guid


def _double_pairs(
    left: Alternatives, right: Alternatives
) -> Iterator[tuple[Column | None, Column | None]]:
    """Whole numbers are doubles where they meet doubles."""
    yield left.double, right.double
    if left.whole is not None:
        yield left.whole.cast("double"), right.double
    if right.whole is not None:
        yield left.double, right.whole.cast("double")


def _compared_doubles(operator: str, left: Column, right: Column) -> Column:
    """In Spark, NaN equals itself and is greater than all others; in rules it is neither."""
    is_known = left.isNotNull() & right.isNotNull()
    is_odd = is_known & (F.isnan(left) | F.isnan(right))
    return F.when(is_odd, F.lit(operator == "<>")).otherwise(_COMPARISONS[operator](left, right))


def _first(found: list[Column], kind: str) -> Column:
    if not found:
        return F.lit(None).cast(kind)
    return found[0] if len(found) == 1 else F.coalesce(*found)


def compute(operator: str, left: Alternatives, right: Alternatives) -> Alternatives:
    """The result of `+ - * / %`, and where it is an error."""
    fails = either(left.fails, right.fails)
    joined = _joined(left, right) if operator == "+" else None
    whole = _whole(operator, left.whole, right.whole)
    doubles = [
        _double(operator, a, b)
        for a, b in _double_pairs(left, right)
        if a is not None and b is not None
    ]
    moment, duration = _times(operator, left, right)
    decimals = [
        (a, b)
        for a, b in (
            (left.decimal, right.decimal),
            (left.whole, right.decimal),
            (left.decimal, right.whole),
        )
        if a is not None and b is not None
    ]
    for part in (joined, whole, moment, duration, *doubles):
        fails = either(fails, None if part is None else part[1])
    for a, b in decimals:
        fails = either(fails, _refused(a.isNotNull() & b.isNotNull(), "computes with a decimal"))
    return Alternatives(
        text=None if joined is None else joined[0],
        whole=None if whole is None else whole[0],
        double=_first([each[0] for each in doubles], "double") if doubles else None,
        moment=None if moment is None else moment[0],
        duration=None if duration is None else duration[0],
        fails=fails,
    )


_Part = tuple[Column, Column]
"""A result, null where there is none, and whether it is an error."""


def _in_range(result: Column, operands: Column, kind: str) -> _Part:
    """A result of whole numbers, which have 64 bits; `operands` is whether there are both."""
    fits = F.coalesce(result.between(F.lit(_LEAST), F.lit(_GREATEST)), F.lit(False))
    return F.when(fits, result.try_cast(kind)), operands & ~fits


def _whole(operator: str, left: Column | None, right: Column | None) -> _Part | None:
    if left is None or right is None:
        return None
    operands = left.isNotNull() & right.isNotNull()
    if operator == "/":
        # The quotient without a fraction, toward zero; exact, because the division is.
        rest = F.try_mod(left, right)
        result = F.try_divide(F.try_subtract(left, rest), right).try_cast("decimal(38,0)")
    else:
        result = _OPERATIONS[operator](left, right)
    return _in_range(result, operands, WHOLE)


def _double(operator: str, left: Column, right: Column) -> _Part:
    operands = left.isNotNull() & right.isNotNull()
    result = _OPERATIONS[operator](left, right)
    fails = operands & (right == 0.0) if operator in ("/", "%") else F.lit(False)
    return result, fails


def _times(
    operator: str, left: Alternatives, right: Alternatives
) -> tuple[_Part | None, _Part | None]:
    """Moments and durations; only `+` and `-` know them."""
    if operator not in ("+", "-"):
        return None, None
    moments = [(left.moment, right.duration)]
    durations = [(left.duration, right.duration)]
    if operator == "+":
        moments.append((left.duration, right.moment))
    else:
        durations.append((left.moment, right.moment))
    return _ticks(operator, moments), _ticks(operator, durations)


def _ticks(operator: str, pairs: list[tuple[Column | None, Column | None]]) -> _Part | None:
    parts = [
        _in_range(_OPERATIONS[operator](a, b), a.isNotNull() & b.isNotNull(), TICKS)
        for a, b in pairs
        if a is not None and b is not None
    ]
    if not parts:
        return None
    fails: Column | None = None
    for _, wrong in parts:
        fails = either(fails, wrong)
    assert fails is not None
    return _first([result for result, _ in parts], TICKS), fails


def _joined(left: Alternatives, right: Alternatives) -> _Part | None:
    """Two values as one text, if one of them is a text."""
    if left.text is None and right.text is None:
        return None
    first, second = _shown(left), _shown(right)
    is_text = _is_there(left.text) | _is_there(right.text)
    joined = F.when(is_text, F.concat(first, second))
    fails = F.coalesce(F.length(joined) > TEXT_CHARACTERS_MAX, F.lit(False))
    for mine, other in ((left, right), (right, left)):
        for number, what in ((mine.double, "a double"), (mine.decimal, "a decimal")):
            if number is not None and other.text is not None:
                wrong = number.isNotNull() & other.text.isNotNull()
                fails = fails | _refused(wrong, f"joins a text and {what}")
    return F.when(~fails, joined), fails


def _is_there(value: Column | None) -> Column:
    return F.lit(False) if value is None else value.isNotNull()


def _shown(value: Alternatives) -> Column:
    """As text, as .NET writes it."""
    found: list[Column] = []
    if value.text is not None:
        found.append(value.text)
    if value.boolean is not None:
        found.append(F.when(value.boolean, F.lit("True")).when(~value.boolean, F.lit("False")))
    if value.whole is not None:
        found.append(value.whole.cast("string"))
    if value.guid is not None:
        found.append(_guid_text(value.guid))
    return _first(found, "string")


def _guid_text(digits: Column) -> Column:
    first, *others = [
        F.substring(digits, at, length)
        for at, length in ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12))
    ]
    return F.concat(first, *(F.concat(F.lit("-"), part) for part in others))


def _refused(where: Column, what: str) -> Column:
    """False; where the condition holds, the query ends with an error.

    No type of Spark computes these values as the bus does, and Spark must not decide differently.
    """
    why = F.lit(f"the rule {what}, which Spark cannot do as the bus does: remove that part")
    return F.when(where, F.raise_error(why).cast("boolean")).otherwise(F.lit(False))


def signed(operator: str, value: Alternatives) -> Alternatives:
    """A number or duration with a sign before it."""
    if operator == "+":
        return Alternatives(
            whole=value.whole,
            double=value.double,
            decimal=value.decimal,
            duration=value.duration,
            fails=value.fails,
        )
    whole = _negated(value.whole, WHOLE)
    duration = _negated(value.duration, TICKS)
    fails = value.fails
    for part in (whole, duration):
        fails = either(fails, None if part is None else part[1])
    if value.decimal is not None:
        fails = either(fails, _refused(value.decimal.isNotNull(), "computes with a decimal"))
    return Alternatives(
        whole=None if whole is None else whole[0],
        double=None if value.double is None else -value.double,
        duration=None if duration is None else duration[0],
        fails=fails,
    )


def _negated(value: Column | None, kind: str) -> _Part | None:
    if value is None:
        return None
    return _in_range(F.try_subtract(F.lit(0).cast(kind), value), value.isNotNull(), kind)
