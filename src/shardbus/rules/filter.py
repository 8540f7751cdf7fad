"""The four filters, and the rule: a name, a filter, and an optional action.

Each keeps what a client gave, so that it can be listed in the same form.
"""

from __future__ import annotations

from typing import Final, TypeAlias, final

from shardbus.core import message_fields
from shardbus.core.errors import INVALID_ARGUMENT, Refused
from shardbus.rules import system
from shardbus.rules.action import SqlAction
from shardbus.rules.compiler import compile_condition
from shardbus.rules.correlation import Criterion, key_of
from shardbus.rules.limits import CORRELATION_FIELDS_MAX, RULE_NAME_CHARACTERS_MAX
from shardbus.rules.parameters import parameters_by_name
from shardbus.rules.parser import parse_filter
from shardbus.rules.values import Property, fold

DEFAULT_RULE_NAME: Final = "$Default"


@final
class SqlFilter:
    """A parsed SQL filter. Refuses what `parse_filter` refuses, and parameters without a value."""

    def __init__(self, expression: str, parameters: list[Property] | None = None) -> None:
        self.expression = expression
        self.parameters = [] if parameters is None else parameters
        self.condition = parse_filter(expression)
        known = parameters_by_name(self.parameters)
        self.check = compile_condition(self.condition, expression, known)


@final
class CorrelationFilter:
    """Every given field must be equal: texts exactly, numbers by value.

    Refuses a filter without a field, a property without a value, and two properties of one name.
    """

    def __init__(self, fields: dict[int, str], properties: list[Property]) -> None:
        """`fields` has system properties by number, out of CORRELATION_FIELDS."""
        self.fields = fields
        self.properties = properties
        self.conditions = [_field_condition(each, fields[each]) for each in sorted(fields)]
        self.conditions.extend(_property_condition(each) for each in properties)
        count = len(self.conditions)
        if not 1 <= count <= CORRELATION_FIELDS_MAX:
            raise Refused(
                INVALID_ARGUMENT,
                f"A correlation filter must compare 1 to {CORRELATION_FIELDS_MAX} fields, not "
                f"{count}.",
            )
        if len({fold(each.name) for each in properties}) < len(properties):
            raise Refused(
                INVALID_ARGUMENT,
                "The correlation filter has a property twice: give each property once.",
            )


@final
class TrueFilter:
    """Matches every message."""


@final
class FalseFilter:
    """Matches no message."""


Filter: TypeAlias = SqlFilter | CorrelationFilter | TrueFilter | FalseFilter

CORRELATION_FIELDS: Final = tuple(each.number for each in message_fields.COMPARED)
"""In the order of the wire's list."""


@final
class Rule:
    """A rule of a subscription; names are compared without regard to case."""

    def __init__(self, name: str, filter: Filter, action: SqlAction | None = None) -> None:
        if not 1 <= len(name) <= RULE_NAME_CHARACTERS_MAX:
            raise Refused(
                INVALID_ARGUMENT,
                f"The name of a rule must have 1 to {RULE_NAME_CHARACTERS_MAX} characters, "
                f"not {len(name)}.",
            )
        self.name = name
        self.filter = filter
        self.action = action


def _field_condition(number: int, text: str) -> Criterion:
    if number not in CORRELATION_FIELDS:
        name = system.ALL[number].name
        raise Refused(INVALID_ARGUMENT, f"A correlation filter cannot compare sys.{name}.")
    return Criterion(number, "", text)


def _property_condition(property: Property) -> Criterion:
    key = key_of(property.value)
    if key is None:
        raise Refused(
            INVALID_ARGUMENT,
            f"The correlation filter has no value for the property {property.name!r}: give it one.",
        )
    return Criterion(-1, fold(property.name), key)
