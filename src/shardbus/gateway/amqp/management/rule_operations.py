"""Management requests about the rules of a subscription."""

from __future__ import annotations

from typing import Final, final

from shardbus.codec.encoder import encode
from shardbus.codec.types import Described, Int, Map, Timestamp, Ulong, Value, text_of
from shardbus.core.message_fields import COMPARED
from shardbus.core.namespace.rule_spec import (
    CORRELATION_FILTER,
    FALSE_FILTER,
    SQL_FILTER,
    FilterSpec,
    RuleSpec,
    TypedValue,
    correlation_filter,
    sql_filter,
)
from shardbus.gateway.amqp.management.desk import Desk
from shardbus.gateway.amqp.management.fields import RequestFields
from shardbus.gateway.amqp.management.requests import NodeResponse
from shardbus.message.rule_values import property_from, value_from
from shardbus.rules.document import property_of, typed_value

# The bytes of rules in one answer, at least one rule: JavaScript asks for all of them at once.
RULES_BYTES_MAX: Final = 4 * 1024 * 1024
# "CompatibilityLevel 20 always".
COMPATIBILITY_LEVEL: Final = 20

RULE_DESCRIPTION: Final = 0x13700000004
EMPTY_RULE_ACTION: Final = 0x13700000005
SQL_RULE_ACTION: Final = 0x13700000006
# One hexadecimal digit fewer than those above, as in all SDKs.
SQL_FILTER_CODE: Final = 0x1370000006
TRUE_FILTER_CODE: Final = 0x1370000007
FALSE_FILTER_CODE: Final = 0x1370000008
CORRELATION_FILTER_CODE: Final = 0x1370000009

# In the order of the wire's list: the field's name in requests, and the message property.
_CORRELATION_FIELDS: Final = tuple((each.hyphenated(), each.dialect) for each in COMPARED)


@final
class RuleOperations:
    """The requests of one link about the rules of a subscription."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def add(self, fields: RequestFields) -> NodeResponse:
        name = _name(fields)
        description = fields.within("rule-description")
        if description is None:
            raise fields.bad("rule-description", "must be a map")
        # The bus sets the creation time.
        rule = RuleSpec(name, _filter_of(description), 0)
        action = description.within("sql-rule-action")
        if action is not None:
            rule.action = action.text("expression") or ""
        await self._desk.namespace.add_rule(self._desk.entity_name, rule)
        return NodeResponse(200, "OK", {})

    async def remove(self, fields: RequestFields) -> NodeResponse:
        await self._desk.namespace.remove_rule(self._desk.entity_name, _name(fields))
        return NodeResponse(200, "OK", {})

    async def list(self, fields: RequestFields) -> NodeResponse:
        skip = fields.integer("skip", least=0, default=0)
        top = fields.integer("top", least=1)
        rules = self._desk.namespace.rules(self._desk.entity_name)[skip : skip + top]
        if not rules:
            return NodeResponse(204, "No Content", {"rules": []})
        return NodeResponse(200, "OK", {"rules": _page(rules)})


def _page(rules: list[RuleSpec]) -> list[Value]:
    page: list[Value] = []
    size_bytes = 0
    for rule in rules:
        described = encode_rule(rule)
        size_bytes += len(encode(described))
        if page and size_bytes > RULES_BYTES_MAX:
            break
        page.append({"rule-description": described})
    return page


def encode_rule(rule: RuleSpec) -> Described:
    """A rule as enumerate-rules returns it."""
    return _described(
        RULE_DESCRIPTION,
        _encode_filter(rule.filter),
        _encode_action(rule.action),
        rule.name,
        Timestamp(rule.created_at_ms),
    )


def _name(fields: RequestFields) -> str:
    name = fields.text("rule-name")
    if not name:
        raise fields.bad("rule-name", "must be a text")
    return name


def _filter_of(description: RequestFields) -> FilterSpec:
    correlation = description.within("correlation-filter")
    if correlation is not None:
        return _correlation_of(correlation)
    sql = description.within("sql-filter")
    expression = None if sql is None else sql.text("expression")
    if expression is None:
        raise description.bad("rule-description", "must have a filter")
    return sql_filter(expression)


def _correlation_of(fields: RequestFields) -> FilterSpec:
    # JavaScript sends every key, with a null for fields that are not compared.
    texts = {name: fields.text(key) for key, name in _CORRELATION_FIELDS}
    given = {name: text for name, text in texts.items() if text is not None}
    properties: list[TypedValue] = []
    for key, value in (fields.properties("properties") or {}).items():
        name = text_of(key)
        if name is None:
            raise fields.bad("properties", "must have texts as keys")
        found = property_from(name, value)
        if found is None:
            raise fields.bad("properties", f"cannot compare the value of {name[:100]!r}")
        properties.append(typed_value(found))
    return correlation_filter(given, properties)


def _encode_filter(spec: FilterSpec) -> Described:
    if spec.kind == SQL_FILTER:
        return _described(SQL_FILTER_CODE, spec.expression, Int(COMPATIBILITY_LEVEL))
    if spec.kind != CORRELATION_FILTER:
        return _described(FALSE_FILTER_CODE if spec.kind == FALSE_FILTER else TRUE_FILTER_CODE)
    fields = [spec.fields.get(name) for _, name in _CORRELATION_FIELDS]
    pairs: list[tuple[Value, Value]] = [
        (each.name, value_from(property_of(each))) for each in spec.properties
    ]
    return _described(CORRELATION_FILTER_CODE, *fields, Map(pairs))


def _encode_action(expression: str) -> Described:
    # JavaScript needs an action with a descriptor even where there is none.
    if not expression:
        return _described(EMPTY_RULE_ACTION)
    return _described(SQL_RULE_ACTION, expression, Int(COMPATIBILITY_LEVEL))


def _described(code: int, *fields: Value) -> Described:
    return Described(Ulong(code), list(fields))
