"""Rules in XML: as clients send them, and as both strict readers accept them."""

from __future__ import annotations

from typing import Final

from shardbus.core.errors import INVALID_ARGUMENT, Refused
from shardbus.core.message_fields import COMPARED
from shardbus.core.namespace.rule_spec import (
    CORRELATION_FILTER,
    DEFAULT_RULE_NAME,
    FALSE_FILTER,
    SQL_FILTER,
    TRUE_FILTER,
    FilterSpec,
    RuleSpec,
    correlation_filter,
    sql_filter,
)
from shardbus.gateway.http.atom.element_reader import CONNECT
from shardbus.gateway.http.atom.markup import INSTANCE, Element, tag
from shardbus.gateway.http.atom.typed_markup import read_pairs, write_pairs
from shardbus.gateway.http.moment import format_moment

# "CompatibilityLevel 20 always".
_LEVEL: Final = "20"
_FIELDS: Final = tuple(each.dialect for each in COMPARED)
_FILTERS: Final = {
    "SqlFilter": SQL_FILTER,
    "TrueFilter": TRUE_FILTER,
    "FalseFilter": FALSE_FILTER,
    "CorrelationFilter": CORRELATION_FILTER,
}
_FILTER_NAMES: Final = {kind: name for name, kind in _FILTERS.items()}
_FIXED: Final = {TRUE_FILTER: "1=1", FALSE_FILTER: "1=0"}


def read_rule(element: Element, name: str) -> RuleSpec:
    """The rule of a description; without a filter it matches every message.

    `name` is used when the description has none; the caller sets the creation time.
    """
    said = element.child(CONNECT, "Name")
    filter = element.child(CONNECT, "Filter")
    found = RuleSpec(
        name or (said.text.strip() if said is not None else "") or DEFAULT_RULE_NAME,
        FilterSpec(TRUE_FILTER) if filter is None or filter.is_nil() else _read_filter(filter),
        0,
    )
    action = element.child(CONNECT, "Action")
    if action is not None:
        _read_action(action, found)
    return found


def write_rule(rule: RuleSpec, element_name: str = "RuleDescription") -> str:
    """The description. It always has an action: both readers expect one."""
    return (
        f'<{element_name} xmlns="{CONNECT}" xmlns:i="{INSTANCE}">'
        + _write_filter(rule.filter)
        + _write_action(rule)
        + tag("CreatedAt", format_moment(rule.created_at_ms))
        + tag("Name", rule.name)
        + f"</{element_name}>"
    )


def _read_filter(element: Element) -> FilterSpec:
    word = _type_of(element)
    if word not in _FILTERS:
        known = ", ".join(_FILTERS)
        raise _invalid(f"The Filter is of the type '{word[:60]}'; types are {known}.")
    kind = _FILTERS[word]
    if kind == CORRELATION_FILTER:
        fields = {name: text for name in _FIELDS if (text := _text(element, name)) is not None}
        properties = element.child(CONNECT, "Properties")
        return correlation_filter(fields, read_pairs("Properties", properties))
    if kind != SQL_FILTER:
        return FilterSpec(kind)
    expression = _text(element, "SqlExpression")
    if expression is None:
        raise _invalid("The SqlFilter has no SqlExpression.")
    return sql_filter(expression, read_pairs("Parameters", element.child(CONNECT, "Parameters")))


def _read_action(element: Element, rule: RuleSpec) -> None:
    word = _type_of(element)
    if word in ("", "EmptyRuleAction"):
        return
    if word != "SqlRuleAction":
        raise _invalid(
            f"The Action is of the type '{word[:60]}'; types are SqlRuleAction, EmptyRuleAction."
        )
    expression = _text(element, "SqlExpression")
    if not expression:
        raise _invalid("The SqlRuleAction has no SqlExpression.")
    rule.action = expression
    rule.action_parameters = read_pairs("Parameters", element.child(CONNECT, "Parameters"))


def _write_filter(spec: FilterSpec) -> str:
    inside = (
        _write_correlation(spec)
        if spec.kind == CORRELATION_FILTER
        else _write_sql(
            _FIXED.get(spec.kind, spec.expression), write_pairs("Parameters", spec.parameters)
        )
    )
    return f'<Filter i:type="{_FILTER_NAMES[spec.kind]}">{inside}</Filter>'


def _write_correlation(spec: FilterSpec) -> str:
    fields = "".join(tag(name, spec.fields[name]) for name in _FIELDS if name in spec.fields)
    return fields + write_pairs("Properties", spec.properties)


def _write_action(rule: RuleSpec) -> str:
    if not rule.action:
        return '<Action i:type="EmptyRuleAction"/>'
    inside = _write_sql(rule.action, write_pairs("Parameters", rule.action_parameters))
    return f'<Action i:type="SqlRuleAction">{inside}</Action>'


def _write_sql(expression: str, parameters: str) -> str:
    return tag("SqlExpression", expression) + tag("CompatibilityLevel", _LEVEL) + parameters


def _type_of(element: Element) -> str:
    return element.attributes.get((INSTANCE, "type"), "").rpartition(":")[2]


def _text(element: Element, name: str) -> str | None:
    child = element.child(CONNECT, name)
    if child is None or child.is_nil():
        return None
    return child.text


def _invalid(message: str) -> Refused:
    return Refused(INVALID_ARGUMENT, message)
