"""Converts between stored rules (`core.namespace.rule_spec`) and rules that match."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation

from shardbus.core.errors import INVALID_ARGUMENT, Refused
from shardbus.core.namespace.rule_spec import (
    CORRELATION_FILTER,
    FALSE_FILTER,
    SQL_FILTER,
    FilterSpec,
    RuleSpec,
    TypedValue,
)
from shardbus.rules import system
from shardbus.rules.action import SqlAction
from shardbus.rules.filter import (
    CorrelationFilter,
    FalseFilter,
    Filter,
    Rule,
    SqlFilter,
    TrueFilter,
)
from shardbus.rules.values import (
    BINARY,
    BOOLEAN,
    CHAR,
    DECIMAL,
    DOUBLE,
    DURATION,
    FLOAT,
    KIND_NAMES,
    LONG,
    NULL,
    OFFSET_TIMESTAMP,
    RANGES,
    SYMBOL,
    TEXT,
    TIMESTAMP,
    UBYTE,
    UNZONED_TIMESTAMP,
    URI,
    Duration,
    Guid,
    Moment,
    Property,
    Value,
)


def rule_of(spec: RuleSpec) -> Rule:
    """The rule, ready to match; Refused when it breaks a rule of the language."""
    action = None
    if spec.action:
        action = SqlAction(spec.action, _properties(spec.action_parameters))
    return Rule(spec.name, filter_of(spec.filter), action)


def filter_of(spec: FilterSpec) -> Filter:
    """The filter, ready to match; Refused when it breaks a rule of the language."""
    if spec.kind == SQL_FILTER:
        return SqlFilter(spec.expression, _properties(spec.parameters))
    if spec.kind == CORRELATION_FILTER:
        fields = {_field_number(name): text for name, text in spec.fields.items()}
        return CorrelationFilter(fields, _properties(spec.properties))
    return FalseFilter() if spec.kind == FALSE_FILTER else TrueFilter()


def typed_value(property: Property) -> TypedValue:
    """A property as it is stored; nothing is lost."""
    return TypedValue(property.name, KIND_NAMES[property.kind], _text_of(property.value))


def property_of(value: TypedValue) -> Property:
    """The property of a stored value; Refused when no value of its kind has this text."""
    try:
        kind = KIND_NAMES.index(value.kind)
        return Property(value.name, kind, _value_of(kind, value.text))
    except (ValueError, InvalidOperation) as error:
        raise Refused(
            INVALID_ARGUMENT, f"{value.name!r} is not a value of type '{value.kind}': {error}."
        ) from error


def _properties(values: list[TypedValue]) -> list[Property]:
    return [property_of(value) for value in values]


def _field_number(name: str) -> int:
    found = system.find(name)
    if found is None:
        raise Refused(INVALID_ARGUMENT, f"A correlation filter cannot compare sys.{name}.")
    return found.number


def _text_of(value: Value) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Guid):
        return value.value.hex()
    if isinstance(value, Moment | Duration):
        return str(value.ticks)
    return value if isinstance(value, str) else str(value)


def _value_of(kind: int, text: str) -> Value:
    if kind in (TEXT, SYMBOL, URI, CHAR):
        return text
    if UBYTE <= kind <= LONG:
        return _integer(kind, text)
    if kind in (FLOAT, DOUBLE):
        return float(text)
    if kind == BOOLEAN:
        return _boolean(text)
    if kind == DECIMAL:
        return Decimal(text)
    if kind in (TIMESTAMP, OFFSET_TIMESTAMP, UNZONED_TIMESTAMP):
        return Moment(int(text))
    if kind == DURATION:
        return Duration(int(text))
    return _null_or_bytes(kind, text)


def _null_or_bytes(kind: int, text: str) -> Value:
    if kind == NULL:
        return None
    value = bytes.fromhex(text)
    if kind == BINARY:
        return value
    if len(value) != 16:
        raise ValueError("a uuid must have 16 bytes")
    return Guid(value)


def _integer(kind: int, text: str) -> int:
    value = int(text)
    low, high = RANGES[kind]
    if not low <= value <= high:
        raise ValueError(f"{value} is out of range")
    return value


def _boolean(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError("the text is neither true nor false")
    return text == "true"
