"""SQL actions: how a rule changes its copy of a message."""

from __future__ import annotations

from typing import final

from shardbus.rules.compiler import compile_expression
from shardbus.rules.conversion import convert
from shardbus.rules.errors import EvaluationError
from shardbus.rules.parameters import parameters_by_name
from shardbus.rules.parser import parse_action
from shardbus.rules.plan import Term
from shardbus.rules.scope import Scope
from shardbus.rules.system import SystemProperty
from shardbus.rules.tree import Expression, Parameter, SetField, Statement, UserField
from shardbus.rules.values import KIND_NAMES, Property, Value, fold, kind_of


@final
class Changes:
    """The changes of an action, for the caller to apply to the copy.

    `system` has new values by number, None to unset. `properties` has the new application
    properties by folded name, None for a removed one; a change replaces the message's property in
    any spelling.
    """

    def __init__(self) -> None:
        self.system: dict[int, Value] = {}
        self.properties: dict[str, Property | None] = {}

    def applied(self, properties: list[Property]) -> list[Property]:
        """The application properties of the copy: the unchanged ones in order, then those that were
        set.
        """
        kept = [each for each in properties if fold(each.name) not in self.properties]
        return kept + [each for each in self.properties.values() if each is not None]


class _Step:
    def run(self, scope: Scope, changes: Changes) -> None:
        raise NotImplementedError


@final
class SqlAction:
    """A parsed action. Refuses what `parse_action` refuses, and parameters without a value."""

    def __init__(self, expression: str, parameters: list[Property] | None = None) -> None:
        self.expression = expression
        self.parameters = [] if parameters is None else parameters
        self.statements = parse_action(expression)
        known = parameters_by_name(self.parameters)
        self._steps = [_step(each, expression, known) for each in self.statements]

    def run(self, scope: Scope) -> Changes:
        """The changes of all statements, one after another; the scope is left as it was.

        Raises EvaluationError if a statement has no result: then there are no changes at all.
        """
        changes = Changes()
        copy = scope.copy()
        for step in self._steps:
            step.run(copy, changes)
        return changes


@final
class _SetUser(_Step):
    def __init__(self, name: str, term: Term, origin: _Origin) -> None:
        self._name = name
        self._folded = fold(name)
        self._term = term
        self._origin = origin

    def run(self, scope: Scope, changes: Changes) -> None:
        properties = scope.properties()
        new = self._made(scope, properties.get(self._folded))
        properties[self._folded] = new
        changes.properties[self._folded] = new

    def _made(self, scope: Scope, old: Property | None) -> Property:
        value = self._term.value(scope)
        if old is None:
            return Property(self._name, self._origin.kind(scope, value), value)
        converted = convert(value, old.kind)
        if converted is None:
            return Property(old.name, self._origin.kind(scope, value), value)
        return Property(old.name, converted.kind, converted.value)


@final
class _Origin:
    """Where a value comes from: a plain copy of a property or parameter keeps its kind."""

    def __init__(self, expression: Expression, parameters: dict[str, Property]) -> None:
        self._copied: str | None = None
        self._parameter: Property | None = None
        if isinstance(expression, UserField):
            self._copied = fold(expression.name)
        elif isinstance(expression, Parameter):
            self._parameter = parameters.get(fold(expression.name))

    def kind(self, scope: Scope, value: Value) -> int:
        source = self._parameter
        if self._copied is not None:
            source = scope.properties().get(self._copied)
        return kind_of(value) if source is None else source.kind


@final
class _SetSystem(_Step):
    def __init__(self, property: SystemProperty, term: Term) -> None:
        self._property = property
        self._term = term

    def run(self, scope: Scope, changes: Changes) -> None:
        value = self._term.value(scope)
        converted = convert(value, self._property.kind)
        if converted is None:
            name, kind = self._property.name, KIND_NAMES[kind_of(value)]
            raise EvaluationError(f"sys.{name} cannot be set to a value of type {kind}.")
        scope.set_system(self._property.number, converted.value)
        changes.system[self._property.number] = converted.value


@final
class _RemoveUser(_Step):
    def __init__(self, name: str) -> None:
        self._folded = fold(name)

    def run(self, scope: Scope, changes: Changes) -> None:
        if scope.properties().pop(self._folded, None) is not None:
            changes.properties[self._folded] = None


def _step(statement: Statement, expression: str, parameters: dict[str, Property]) -> _Step:
    if not isinstance(statement, SetField):
        return _RemoveUser(statement.field.name)
    term = compile_expression(statement.expression, expression, parameters)
    field = statement.field
    if isinstance(field, UserField):
        return _SetUser(field.name, term, _Origin(statement.expression, parameters))
    return _SetSystem(field.property, term)
