"""Filters as documents, for a back end in another program: the connector makes Spark columns of
them.

A document consists of lists that begin with a word, so that it can be JSON. It names everything
that a reader must know: the kind of each constant, and for each system property where a row has
it. Parameters are replaced by their values, and properties that no rule sees by NULL.
"""

from __future__ import annotations

from typing import Final, TypeAlias, final

from shardbus.core.errors import INVALID_ARGUMENT, Refused
from shardbus.core.message_fields import FIELDS, MessageField
from shardbus.rules.document import typed_value
from shardbus.rules.filter import CorrelationFilter, FalseFilter, Filter, SqlFilter
from shardbus.rules.parameters import parameters_by_name
from shardbus.rules.tree import (
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
from shardbus.rules.values import Property, Value, fold, kind_of

Document: TypeAlias = str | int | list["Document"] | None

_BY_NUMBER: Final[dict[int, MessageField]] = {
    each.number: each for each in FIELDS if each.number >= 0
}


def portable_filter(filter: Filter) -> list[Document]:
    """The document of a filter. Refuses `newid()` and a computed ESCAPE, whose results another
    program cannot repeat.
    """
    if isinstance(filter, SqlFilter):
        return portable_condition(filter.condition, parameters_by_name(filter.parameters))
    if isinstance(filter, CorrelationFilter):
        return ["all", *_correlation(filter)]
    return ["constant", "boolean", "false" if isinstance(filter, FalseFilter) else "true"]


def portable_condition(condition: Condition, parameters: dict[str, Property]) -> list[Document]:
    """The document of a condition that was compiled with these parameters."""
    return _Maker(parameters).condition(condition)


def _correlation(filter: CorrelationFilter) -> list[Document]:
    found: list[Document] = [
        ["same", _system(number), ["constant", "string", filter.fields[number]]]
        for number in sorted(filter.fields)
    ]
    for each in filter.properties:
        found.append(["same", ["user", fold(each.name)], _constant(each)])
    return found


@final
class _Maker:
    def __init__(self, parameters: dict[str, Property]) -> None:
        self.parameters = parameters

    def condition(self, tree: Condition) -> list[Document]:
        if isinstance(tree, AllOf):
            return ["all", *(self.condition(part) for part in tree.parts)]
        if isinstance(tree, AnyOf):
            return ["any", *(self.condition(part) for part in tree.parts)]
        if isinstance(tree, Not):
            return ["not", self.condition(tree.operand)]
        if isinstance(tree, Comparison):
            return ["compare", tree.operator, self.value(tree.left), self.value(tree.right)]
        if isinstance(tree, IsNull):
            return ["null", self.value(tree.field)]
        if isinstance(tree, Exists):
            return ["exists", self.value(tree.field)]
        if isinstance(tree, IsIn):
            return ["in", self.value(tree.value), *(self.value(each) for each in tree.choices)]
        if isinstance(tree, Like):
            return self._like(tree)
        assert isinstance(tree, Holds)
        return ["holds", self.value(tree.expression)]

    def value(self, tree: Expression) -> list[Document]:
        if isinstance(tree, Constant):
            return _constant(Property("", kind_of(tree.value), tree.value))
        if isinstance(tree, Parameter):
            return _constant(self.parameters[fold(tree.name)])
        if isinstance(tree, UserField):
            return ["user", fold(tree.name)]
        if isinstance(tree, SystemField):
            return _system(tree.property.number)
        if isinstance(tree, Lookup):
            return ["lookup", self.value(tree.name)]
        if isinstance(tree, Sign):
            return ["sign", tree.operator, self.value(tree.operand)]
        if isinstance(tree, Arithmetic):
            return ["compute", tree.operator, self.value(tree.left), self.value(tree.right)]
        assert isinstance(tree, NewId)
        raise Refused(
            INVALID_ARGUMENT,
            "A rule with newid() cannot be evaluated in Spark: it has another value each time.",
        )

    def _like(self, tree: Like) -> list[Document]:
        value, pattern = self.value(tree.value), self.value(tree.pattern)
        if tree.escape is None:
            known = self._known(tree.pattern)
            if isinstance(known, str):
                return ["like", value, _pieces(known, None)]
            return ["like", value, pattern]
        known, escape = self._known(tree.pattern), self._known(tree.escape)
        if isinstance(known, str) and isinstance(escape, str):
            return ["like", value, _pieces(known, escape)]
        raise Refused(
            INVALID_ARGUMENT,
            "A rule with a computed pattern and ESCAPE cannot be evaluated in Spark: write both "
            "as constants.",
        )

    def _known(self, tree: Expression) -> Value:
        """The value of a constant or parameter; None for everything else."""
        if isinstance(tree, Constant):
            return tree.value
        if isinstance(tree, Parameter):
            return self.parameters[fold(tree.name)].value
        return None


def _constant(property: Property) -> list[Document]:
    value = typed_value(property)
    return ["constant", value.kind, value.text]


def _system(number: int) -> list[Document]:
    field = _BY_NUMBER[number]
    if not field.is_sent:
        return ["constant", "null", ""]
    if field.column and field.is_text():
        return ["column", field.column, field.dialect]
    # Columns do not show it exactly as rules see it.
    return ["message", field.dialect]


def _pieces(pattern: str, escape: str | None) -> list[Document]:
    """A constant pattern, which the compiler has checked: texts, 0 for `_` and 1 for `%`."""
    found: list[Document] = ["pattern"]
    text = ""
    at = 0
    while at < len(pattern):
        letter = pattern[at]
        at += 1
        if letter == escape:
            text += pattern[at]
            at += 1
        elif letter in "%_":
            found.extend([text, 1 if letter == "%" else 0])
            text = ""
        else:
            text += letter
    return [*found, text]
