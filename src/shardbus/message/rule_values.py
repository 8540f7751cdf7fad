"""Converts values between the types of AMQP and those of rules."""

from __future__ import annotations

from decimal import Decimal
from typing import Final

from shardbus.codec.decimals import read_decimal, write_decimal
from shardbus.codec.types import (
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Float,
    Int,
    Integer,
    Opaque,
    Short,
    Symbol,
    Timestamp,
    Ubyte,
    Uint,
    Ulong,
    Ushort,
    Uuid,
    Value,
)
from shardbus.rules import values as rules
from shardbus.rules.values import Duration, Guid, Moment, Property

TIMESPAN: Final = Symbol("com.microsoft:timespan")
URI: Final = Symbol("com.microsoft:uri")
DATETIME_OFFSET: Final = Symbol("com.microsoft:datetime-offset")

# From the year 1, where .NET's ticks begin, to the Unix epoch.
_EPOCH_TICKS: Final = 621_355_968_000_000_000

_INTEGER_KINDS: Final[dict[type[Integer], int]] = {
    Ubyte: rules.UBYTE,
    Ushort: rules.USHORT,
    Uint: rules.UINT,
    Ulong: rules.ULONG,
    Byte: rules.BYTE,
    Short: rules.SHORT,
    Int: rules.INT,
}
_INTEGERS: Final[dict[int, type[Integer]]] = {
    kind: wrapper for wrapper, kind in _INTEGER_KINDS.items()
}


def property_from(name: str, value: Value) -> Property | None:
    """A value as rules see it; None for a list, a map, an array and an unknown described type."""
    if isinstance(value, str):
        return Property(name, rules.TEXT, value)
    if value is None:
        return Property(name, rules.NULL, None)
    if isinstance(value, bool):
        return Property(name, rules.BOOLEAN, value)
    if isinstance(value, int):
        return Property(name, rules.LONG, value)
    if isinstance(value, Integer):
        return _from_integer(name, value)
    if isinstance(value, float):
        return Property(name, rules.DOUBLE, value)
    if isinstance(value, bytes):
        return Property(name, rules.BINARY, value)
    if isinstance(value, Described):
        return _from_described(name, value)
    return _from_rare(name, value)


def value_from(property: Property) -> Value:
    """The AMQP value of a property. Raises ValueError for a value that no AMQP type holds."""
    kind, value = property.kind, property.value
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        wrapper = _INTEGERS.get(kind)
        return value if wrapper is None else wrapper(value)
    if isinstance(value, str):
        return _from_text(kind, value)
    if isinstance(value, float):
        return Float(value) if kind == rules.FLOAT else value
    if isinstance(value, Moment):
        if kind == rules.OFFSET_TIMESTAMP:
            return Described(DATETIME_OFFSET, value.ticks + _EPOCH_TICKS)
        return Timestamp(rules.ms_of(value))
    if isinstance(value, Duration):
        return Described(TIMESPAN, value.ticks)
    if isinstance(value, Guid):
        return Uuid(value.value)
    return Decimal128(write_decimal(value)) if isinstance(value, Decimal) else value


def _from_integer(name: str, value: Integer) -> Property:
    if isinstance(value, Timestamp):
        return Property(name, rules.TIMESTAMP, rules.moment_of_ms(value.value))
    if isinstance(value, Char):
        return Property(name, rules.CHAR, chr(value.value))
    return Property(name, _INTEGER_KINDS[type(value)], value.value)


def _from_rare(name: str, value: Value) -> Property | None:
    if isinstance(value, Symbol):
        return Property(name, rules.SYMBOL, value.value)
    if isinstance(value, Float):
        return Property(name, rules.FLOAT, value.value)
    if isinstance(value, Uuid):
        return Property(name, rules.UUID, Guid(value.value))
    if isinstance(value, Opaque):
        assert isinstance(value, Decimal32 | Decimal64 | Decimal128)
        return Property(name, rules.DECIMAL, read_decimal(value.value))
    return None


def _from_described(name: str, value: Described) -> Property | None:
    inner = value.value
    if value.descriptor == URI and isinstance(inner, str):
        return Property(name, rules.URI, inner)
    if isinstance(inner, bool) or not isinstance(inner, int):
        return None
    if value.descriptor == TIMESPAN:
        return Property(name, rules.DURATION, Duration(inner))
    if value.descriptor == DATETIME_OFFSET:
        return Property(name, rules.OFFSET_TIMESTAMP, Moment(inner - _EPOCH_TICKS))
    return None


def _from_text(kind: int, text: str) -> Value:
    if kind == rules.SYMBOL:
        return Symbol(text)
    if kind == rules.URI:
        return Described(URI, text)
    if kind == rules.CHAR:
        return Char(ord(text))
    return text
