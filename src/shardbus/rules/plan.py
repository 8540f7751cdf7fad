"""What an expression is compiled to: objects that are evaluated for a scope, without a tree.

A `Term` gives a value, a `Check` gives TRUE, FALSE or UNKNOWN. Compiled by mypyc, each step is a C
call with an unboxed result; that is why these are classes and not closures or generated source.
"""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from shardbus.rules.arithmetic import (
    FALSE,
    GREATER,
    LESS,
    SAME,
    TRUE,
    UNKNOWN,
    UNORDERED,
    affirm,
    compute,
    equals,
    negate,
    order,
)
from shardbus.rules.like import LikePattern
from shardbus.rules.scope import Scope
from shardbus.rules.values import Value, fold


class Term:
    """Computes a value from a scope."""

    def value(self, scope: Scope) -> Value:
        raise NotImplementedError


class Check:
    """Tests a condition on a scope."""

    def truth(self, scope: Scope) -> i64:
        raise NotImplementedError


@final
class FixedTerm(Term):
    def __init__(self, value: Value) -> None:
        self.fixed = value

    def value(self, scope: Scope) -> Value:
        return self.fixed


@final
class UserTerm(Term):
    def __init__(self, name: str) -> None:
        self.name = name

    def value(self, scope: Scope) -> Value:
        return scope.value(self.name)


@final
class SystemTerm(Term):
    def __init__(self, number: int) -> None:
        self._number = number

    def value(self, scope: Scope) -> Value:
        return scope.system(self._number)


@final
class NewIdTerm(Term):
    def value(self, scope: Scope) -> Value:
        return scope.new_ids.next()


@final
class LookupTerm(Term):
    def __init__(self, name: Term) -> None:
        self._name = name

    def value(self, scope: Scope) -> Value:
        name = self._name.value(scope)
        return scope.value(fold(name)) if isinstance(name, str) else None


@final
class SignTerm(Term):
    def __init__(self, is_negative: bool, operand: Term) -> None:
        self._is_negative = is_negative
        self._operand = operand

    def value(self, scope: Scope) -> Value:
        value = self._operand.value(scope)
        return negate(value) if self._is_negative else affirm(value)


@final
class ArithmeticTerm(Term):
    def __init__(self, operator: str, left: Term, right: Term) -> None:
        self._operator = operator
        self._left = left
        self._right = right

    def value(self, scope: Scope) -> Value:
        left = self._left.value(scope)
        return compute(self._operator, left, self._right.value(scope))


@final
class FixedCheck(Check):
    def __init__(self, truth: i64) -> None:
        self.fixed: i64 = truth

    def truth(self, scope: Scope) -> i64:
        return self.fixed


@final
class AllCheck(Check):
    """Stops at the first part that is false."""

    def __init__(self, parts: list[Check]) -> None:
        self._parts = parts

    def truth(self, scope: Scope) -> i64:
        least: i64 = TRUE
        for part in self._parts:
            found = part.truth(scope)
            if found == FALSE:
                return FALSE
            if found < least:
                least = found
        return least


@final
class AnyCheck(Check):
    """Stops at the first part that is true."""

    def __init__(self, parts: list[Check]) -> None:
        self._parts = parts

    def truth(self, scope: Scope) -> i64:
        greatest: i64 = FALSE
        for part in self._parts:
            found = part.truth(scope)
            if found == TRUE:
                return TRUE
            if found > greatest:
                greatest = found
        return greatest


@final
class NotCheck(Check):
    def __init__(self, operand: Check) -> None:
        self._operand = operand

    def truth(self, scope: Scope) -> i64:
        return TRUE - self._operand.truth(scope)


@final
class EqualCheck(Check):
    def __init__(self, left: Term, right: Term, is_negated: bool) -> None:
        self._left = left
        self._right = right
        self._is_negated = is_negated

    def truth(self, scope: Scope) -> i64:
        left = self._left.value(scope)
        found = equals(left, self._right.value(scope))
        return TRUE - found if self._is_negated else found


@final
class UserTextCheck(Check):
    """Whether an application property equals a given text: the most frequent filter."""

    def __init__(self, name: str, text: str, is_negated: bool) -> None:
        self._name = name
        self._text = text
        self._if_same: i64 = FALSE if is_negated else TRUE

    def truth(self, scope: Scope) -> i64:
        value = scope.value(self._name)
        if not isinstance(value, str):
            return UNKNOWN
        return self._if_same if value == self._text else TRUE - self._if_same


@final
class OrderCheck(Check):
    def __init__(self, left: Term, right: Term, if_less: i64, if_same: i64) -> None:
        self._left = left
        self._right = right
        self._if_less: i64 = if_less
        self._if_same: i64 = if_same

    def truth(self, scope: Scope) -> i64:
        left = self._left.value(scope)
        found = order(left, self._right.value(scope))
        if found == LESS:
            return self._if_less
        if found == GREATER:
            return TRUE - self._if_less
        if found == SAME:
            return self._if_same
        return FALSE if found == UNORDERED else UNKNOWN


@final
class UserNullCheck(Check):
    def __init__(self, name: str) -> None:
        self._name = name

    def truth(self, scope: Scope) -> i64:
        return TRUE if scope.value(self._name) is None else FALSE


@final
class UserExistsCheck(Check):
    def __init__(self, name: str) -> None:
        self._name = name

    def truth(self, scope: Scope) -> i64:
        return TRUE if self._name in scope.properties() else FALSE


@final
class SystemNullCheck(Check):
    def __init__(self, number: int) -> None:
        self._number = number

    def truth(self, scope: Scope) -> i64:
        return TRUE if scope.system(self._number) is None else FALSE


@final
class InCheck(Check):
    """The choices are computed one after another until one is equal."""

    def __init__(self, value: Term, choices: list[Term]) -> None:
        self._value = value
        self._choices = choices

    def truth(self, scope: Scope) -> i64:
        value = self._value.value(scope)
        if value is None:
            return UNKNOWN
        for choice in self._choices:
            if equals(value, choice.value(scope)) == TRUE:
                return TRUE
        return FALSE


@final
class InFixedCheck(Check):
    """The choices are constants: texts are looked up, the few others compared."""

    def __init__(self, value: Term, choices: list[Value]) -> None:
        self._value = value
        self._texts = frozenset(choice for choice in choices if isinstance(choice, str))
        self._others = [choice for choice in choices if not isinstance(choice, str)]

    def truth(self, scope: Scope) -> i64:
        value = self._value.value(scope)
        if value is None:
            return UNKNOWN
        if isinstance(value, str):
            return TRUE if value in self._texts else FALSE
        for choice in self._others:
            if equals(value, choice) == TRUE:
                return TRUE
        return FALSE


@final
class LikeCheck(Check):
    """Compiles its pattern again only when the pattern has changed."""

    def __init__(self, value: Term, pattern: Term, escape: Term | None) -> None:
        self._value = value
        self._pattern = pattern
        self._escape = escape
        self._compiled: LikePattern | None = None

    def truth(self, scope: Scope) -> i64:
        value = self._value.value(scope)
        pattern = self._pattern.value(scope)
        escape = None if self._escape is None else self._escape.value(scope)
        if not isinstance(value, str) or not isinstance(pattern, str):
            return UNKNOWN
        if self._escape is None:
            return TRUE if self._ready(pattern, None).matches(value) else FALSE
        if not isinstance(escape, str):
            return UNKNOWN
        return TRUE if self._ready(pattern, escape).matches(value) else FALSE

    def _ready(self, pattern: str, escape: str | None) -> LikePattern:
        known = self._compiled
        if known is None or known.pattern != pattern or known.escape != escape:
            known = LikePattern(pattern, escape)
            self._compiled = known
        return known


@final
class LikeFixedCheck(Check):
    def __init__(self, value: Term, pattern: LikePattern) -> None:
        self._value = value
        self._pattern = pattern

    def truth(self, scope: Scope) -> i64:
        value = self._value.value(scope)
        if not isinstance(value, str):
            return UNKNOWN
        return TRUE if self._pattern.matches(value) else FALSE


@final
class HoldsCheck(Check):
    def __init__(self, term: Term) -> None:
        self._term = term

    def truth(self, scope: Scope) -> i64:
        value = self._term.value(scope)
        if not isinstance(value, bool):
            return UNKNOWN
        return TRUE if value else FALSE
