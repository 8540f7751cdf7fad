"""Rules of subscriptions as clients write them in JSON: a rule that is shown can be sent again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Literal

from msgspec import Meta, field

from shardbus.core.message_fields import COMPARED
from shardbus.core.namespace.rule_spec import (
    CORRELATION_FILTER,
    DEFAULT_RULE_NAME,
    FILTER_KINDS,
    SQL_FILTER,
    TRUE_FILTER,
    FilterSpec,
    RuleSpec,
    TypedValue,
    correlation_filter,
    sql_filter,
)
from shardbus.gateway.http.document import Body, Text, told
from shardbus.gateway.http.server.refusal import invalid, shown
from shardbus.rules.document import property_of, typed_value
from shardbus.rules.limits import CORRELATION_FIELDS_MAX, PARAMETERS_MAX, RULE_NAME_CHARACTERS_MAX
from shardbus.rules.values import KIND_NAMES

_FIELDS: Final = frozenset(each.dialect for each in COMPARED)


if TYPE_CHECKING:
    _Type = str
    _Kind = str
else:
    _Type = Literal[KIND_NAMES]
    _Kind = Literal[FILTER_KINDS]


class NewValue(Body, kw_only=True, frozen=True):
    name: Annotated[Text, Meta(examples=["@least"])]
    type: Annotated[_Type, Meta(examples=["int"])]
    value: Annotated[
        Text, Meta(description="In the form in which the API shows it.", examples=["7"])
    ]


_Values = Annotated[list[NewValue], Meta(max_length=PARAMETERS_MAX)]


class NewFilter(Body, kw_only=True, frozen=True):
    kind: Annotated[_Kind, Meta(examples=["sql"])] = TRUE_FILTER
    expression: Annotated[
        Text | None, Meta(description="Of a SQL filter.", examples=["color = 'red'"])
    ] = None
    parameters: Annotated[_Values, told("Of a SQL filter, with their @.")] = field(
        default_factory=list
    )
    fields: Annotated[
        Annotated[dict[str, Text], Meta(max_length=CORRELATION_FIELDS_MAX)],
        told("Of a correlation filter: message fields that must be equal."),
    ] = field(default_factory=dict)
    properties: Annotated[_Values, told("Of a correlation filter.")] = field(default_factory=list)


class NewRule(Body, kw_only=True, frozen=True):
    filter: Annotated[NewFilter, told("By default every message matches.")] = NewFilter()
    action: Annotated[Text | None, told("The SQL action that changes the message.")] = None
    action_parameters: _Values = field(default_factory=list)


class NamedNewRule(NewRule, kw_only=True, frozen=True):
    name: Annotated[str, Meta(min_length=1, max_length=RULE_NAME_CHARACTERS_MAX)] = (
        DEFAULT_RULE_NAME
    )


def rule_spec(name: str, rule: NewRule) -> RuleSpec:
    """The rule that a body describes; Refused for values that are not of their types."""
    made = RuleSpec(name, filter_spec(rule.filter), 0)
    made.action = rule.action or ""
    made.action_parameters = _typed(rule.action_parameters)
    return made


def filter_spec(said: NewFilter) -> FilterSpec:
    """Refused when members are given that filters of this kind do not have."""
    if said.kind != SQL_FILTER and (said.expression or said.parameters):
        raise invalid(f"expression and parameters belong to a SQL filter; this one is {said.kind}.")
    if said.kind != CORRELATION_FILTER and (said.fields or said.properties):
        raise invalid(
            f"fields and properties belong to a correlation filter; this one is {said.kind}."
        )
    if said.kind == SQL_FILTER:
        if not said.expression:
            raise invalid("The filter is of the kind sql and has no expression.")
        return sql_filter(said.expression, _typed(said.parameters))
    if said.kind == CORRELATION_FILTER:
        for name in said.fields:
            if name not in _FIELDS:
                known = ", ".join(each.dialect for each in COMPARED)
                raise invalid(
                    f"A correlation filter cannot compare {shown(name)}; it can: {known}."
                )
        return correlation_filter(dict(said.fields), _typed(said.properties))
    return FilterSpec(said.kind)


def _typed(values: list[NewValue]) -> list[TypedValue]:
    return [
        typed_value(property_of(TypedValue(each.name, each.type, each.value))) for each in values
    ]
