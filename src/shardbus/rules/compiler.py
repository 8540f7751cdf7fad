"""Compiles trees to plans: the bus's back end. Constant parts are computed in advance."""

from __future__ import annotations

from typing import Final, final

from shardbus.rules.arithmetic import FALSE, TRUE, UNKNOWN
from shardbus.rules.errors import EvaluationError
from shardbus.rules.lexer import mistake
from shardbus.rules.like import LikePattern
from shardbus.rules.plan import (
    AllCheck,
    AnyCheck,
    ArithmeticTerm,
    Check,
    EqualCheck,
    FixedCheck,
    FixedTerm,
    HoldsCheck,
    InCheck,
    InFixedCheck,
    LikeCheck,
    LikeFixedCheck,
    LookupTerm,
    NewIdTerm,
    NotCheck,
    OrderCheck,
    SignTerm,
    SystemNullCheck,
    SystemTerm,
    Term,
    UserExistsCheck,
    UserNullCheck,
    UserTerm,
    UserTextCheck,
)
from shardbus.rules.scope import SEED_BYTES, NewIds, Scope
from shardbus.rules.tree import (
    EQUAL,
    GREATER_OR_EQUAL,
    LESS,
    LESS_OR_EQUAL,
    MINUS,
    NOT_EQUAL,
    AllOf,
    AnyOf,
    Arithmetic,
    Comparison,
    Condition,
    Constant,
    Exists,
    Expression,
    Holds,
    IsIn,
    IsNull,
    Like,
    Lookup,
    NewId,
    Not,
    Parameter,
    Sign,
    SystemField,
    UserField,
)
from shardbus.rules.values import Property, Value, fold


@final
class _NoMessage:
    def system(self, number: int) -> Value:
        raise AssertionError("a constant was evaluated against a message")

    def properties(self) -> dict[str, Property]:
        raise AssertionError("a constant was evaluated against a message")


_NOWHERE: Final = Scope(_NoMessage(), NewIds(bytes(SEED_BYTES)))


def compile_condition(
    condition: Condition, expression: str, parameters: dict[str, Property]
) -> Check:
    """The plan of a condition. `expression` is its text, to show where an error is.

    Refuses a parameter without a value, and an invalid LIKE pattern.
    """
    return _Compiler(expression, parameters).check(condition)


def compile_expression(tree: Expression, expression: str, parameters: dict[str, Property]) -> Term:
    """The plan of a value expression; like `compile_condition`."""
    return _Compiler(expression, parameters).term(tree)


@final
class _Compiler:
    def __init__(self, expression: str, parameters: dict[str, Property]) -> None:
        self._expression = expression
        self._parameters = parameters

    def term(self, tree: Expression) -> Term:
        if isinstance(tree, Constant):
            return FixedTerm(tree.value)
        if isinstance(tree, UserField):
            return UserTerm(fold(tree.name))
        if isinstance(tree, SystemField):
            return SystemTerm(tree.property.number)
        if isinstance(tree, Parameter):
            return self._parameter(tree)
        if isinstance(tree, Lookup):
            name = self.term(tree.name)
            return LookupTerm(name) if not isinstance(name, FixedTerm) else _named(name.fixed)
        if isinstance(tree, Sign):
            operand = self.term(tree.operand)
            return _settled(SignTerm(tree.operator == MINUS, operand), [operand])
        if isinstance(tree, Arithmetic):
            left, right = self.term(tree.left), self.term(tree.right)
            return _settled(ArithmeticTerm(tree.operator, left, right), [left, right])
        assert isinstance(tree, NewId)
        return NewIdTerm()

    def check(self, tree: Condition) -> Check:
        if isinstance(tree, AllOf):
            return self._all_of(tree)
        if isinstance(tree, AnyOf):
            return self._any_of(tree)
        if isinstance(tree, Not):
            operand = self.check(tree.operand)
            is_fixed = isinstance(operand, FixedCheck)
            return _decided(NotCheck(operand)) if is_fixed else NotCheck(operand)
        if isinstance(tree, Comparison):
            return self._comparison(tree)
        if isinstance(tree, IsIn):
            return self._is_in(tree)
        if isinstance(tree, Like):
            return self._like(tree)
        if isinstance(tree, Holds):
            term = self.term(tree.expression)
            return _checked(HoldsCheck(term), [term])
        assert isinstance(tree, (IsNull, Exists))
        return _presence(tree)

    def _parameter(self, tree: Parameter) -> Term:
        found = self._parameters.get(fold(tree.name))
        if found is None:
            what = f"the parameter @{tree.name} has no value"
            raise mistake(self._expression, tree.offset, what)
        return FixedTerm(found.value)

    def _all_of(self, tree: AllOf) -> Check:
        parts: list[Check] = []
        for part in tree.parts:
            check = self.check(part)
            truth = check.fixed if isinstance(check, FixedCheck) else UNKNOWN
            if truth != TRUE:
                parts.append(check)
            if truth == FALSE:
                break
        return _joined(parts, AllCheck(parts), FixedCheck(TRUE))

    def _any_of(self, tree: AnyOf) -> Check:
        parts: list[Check] = []
        for part in tree.parts:
            check = self.check(part)
            truth = check.fixed if isinstance(check, FixedCheck) else UNKNOWN
            if truth != FALSE:
                parts.append(check)
            if truth == TRUE:
                break
        return _joined(parts, AnyCheck(parts), FixedCheck(FALSE))

    def _comparison(self, tree: Comparison) -> Check:
        left, right = self.term(tree.left), self.term(tree.right)
        operator = tree.operator
        if operator in (EQUAL, NOT_EQUAL):
            is_negated = operator == NOT_EQUAL
            if isinstance(left, UserTerm) and isinstance(right, FixedTerm):
                text = right.fixed
                if isinstance(text, str):
                    return UserTextCheck(left.name, text, is_negated)
            return _checked(EqualCheck(left, right, is_negated), [left, right])
        if_less = TRUE if operator in (LESS, LESS_OR_EQUAL) else FALSE
        has_equal = operator in (LESS_OR_EQUAL, GREATER_OR_EQUAL)
        check = OrderCheck(left, right, if_less, TRUE if has_equal else FALSE)
        return _checked(check, [left, right])

    def _is_in(self, tree: IsIn) -> Check:
        value = self.term(tree.value)
        choices = [self.term(choice) for choice in tree.choices]
        fixed = [choice.fixed for choice in choices if isinstance(choice, FixedTerm)]
        if len(fixed) < len(choices):
            return InCheck(value, choices)
        return _checked(InFixedCheck(value, fixed), [value])

    def _like(self, tree: Like) -> Check:
        value, pattern = self.term(tree.value), self.term(tree.pattern)
        escape = None if tree.escape is None else self.term(tree.escape)
        asked = LikeCheck(value, pattern, escape)
        if not isinstance(pattern, FixedTerm) or not isinstance(pattern.fixed, str):
            return asked
        if escape is None:
            known = self._pattern(tree, pattern.fixed, None)
        elif isinstance(escape, FixedTerm) and isinstance(escape.fixed, str):
            known = self._pattern(tree, pattern.fixed, escape.fixed)
        else:
            return asked
        return _checked(LikeFixedCheck(value, known), [value])

    def _pattern(self, tree: Like, pattern: str, escape: str | None) -> LikePattern:
        try:
            return LikePattern(pattern, escape)
        except EvaluationError as error:
            what = error.message.rstrip(".")
            raise mistake(self._expression, tree.offset, what) from error


def _named(name: Value) -> Term:
    return UserTerm(fold(name)) if isinstance(name, str) else FixedTerm(None)


def _presence(tree: IsNull | Exists) -> Check:
    field = tree.field
    if isinstance(field, UserField):
        name = fold(field.name)
        return UserNullCheck(name) if isinstance(tree, IsNull) else UserExistsCheck(name)
    check = SystemNullCheck(field.property.number)
    return check if isinstance(tree, IsNull) else NotCheck(check)


def _joined(parts: list[Check], several: Check, none: Check) -> Check:
    if len(parts) > 1:
        return several
    return parts[0] if parts else none


def _settled(term: Term, operands: list[Term]) -> Term:
    """The computed value if all operands are constant, unless computing it fails."""
    if not _are_fixed(operands):
        return term
    try:
        return FixedTerm(term.value(_NOWHERE))
    except EvaluationError:
        return term


def _checked(check: Check, operands: list[Term]) -> Check:
    return _decided(check) if _are_fixed(operands) else check


def _decided(check: Check) -> Check:
    """The computed result of a check without variable parts."""
    return FixedCheck(check.truth(_NOWHERE))


def _are_fixed(operands: list[Term]) -> bool:
    return all(isinstance(operand, FixedTerm) for operand in operands)
