"""Values of messages as JSON: JSON types as they are, others as an object with their type.

`{"type": "timestamp", "value": "2026-01-02T03:04:05.000Z"}` is a moment and not a text. So a value
that is shown can be sent again unchanged. The widths of numbers are kept only if a message is shown
to be sent again; otherwise the bus chooses them.
"""

from __future__ import annotations

import math
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Mapping, Sequence
from typing import Annotated, Final, Literal
from uuid import UUID

from msgspec import Meta

from shardbus.codec.types import (
    Byte,
    Char,
    Float,
    Int,
    Integer,
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
from shardbus.gateway.http.document import (
    INTEGER_MAX,
    TEXT_CHARACTERS_MAX,
    Body,
    Json,
    converted,
    inlined,
    told,
)
from shardbus.gateway.http.messaging.user_properties import plain, properties_of_json
from shardbus.gateway.http.moment import format_moment, parse_moment
from shardbus.gateway.http.server.refusal import invalid, shown

PROPERTIES_MAX: Final = 1_000
_DEPTH_MAX: Final = 32
_EXACT_MAX: Final = 2**53
_MOMENT_MS_MAX: Final = 253_402_300_799_999
_LONG_MAX: Final = (1 << 63) - 1
_INT_MAX: Final = (1 << 31) - 1
_WIDTHS: Final[dict[str, tuple[type[Integer], int, int]]] = {
    "int": (Int, -(1 << 31), _INT_MAX),
    "short": (Short, -(1 << 15), (1 << 15) - 1),
    "byte": (Byte, -(1 << 7), (1 << 7) - 1),
    "ulong": (Ulong, 0, (1 << 64) - 1),
    "uint": (Uint, 0, (1 << 32) - 1),
    "ushort": (Ushort, 0, (1 << 16) - 1),
    "ubyte": (Ubyte, 0, (1 << 8) - 1),
}


class TypedProperty(Body, kw_only=True, frozen=True):
    """A value of a type that JSON lacks; `other` can be read but not sent."""

    type: Literal[
        "timestamp",
        "uuid",
        "binary",
        "symbol",
        "char",
        "double",
        "float",
        "long",
        "int",
        "short",
        "byte",
        "ulong",
        "uint",
        "ushort",
        "ubyte",
        "other",
    ]
    value: Json


# Properties are read one by one, so that a refusal can name the invalid one.
Properties = Annotated[
    dict[
        str,
        Annotated[
            object,
            Meta(extra_json_schema=inlined(str | int | float | bool | TypedProperty | None)),
        ],
    ],
    Meta(max_length=PROPERTIES_MAX, description="Application properties by name."),
]
Number = Annotated[
    int | Annotated[str, Meta(pattern="^[0-9]{1,19}$")],
    told("A sequence number, as a number or as text."),
]


def property_document(value: Value) -> object:
    """A property as the API shows it."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float | Float):
        number = value.value if isinstance(value, Float) else value
        return number if math.isfinite(number) else _typed("double", str(number))
    if isinstance(value, Timestamp):
        is_date = 0 < value.value <= _MOMENT_MS_MAX
        return _typed("timestamp", format_moment(value.value) if is_date else value.value)
    if isinstance(value, Char):
        return _typed("char", chr(value.value))
    if isinstance(value, Integer):
        return value.value
    if isinstance(value, Symbol):
        return _typed("symbol", value.value)
    if isinstance(value, Uuid):
        return _typed("uuid", str(UUID(bytes=value.value)))
    if isinstance(value, bytes):
        return _typed("binary", b64encode(value).decode())
    return _typed("other", plain(value))


def exact_property(value: Value) -> object:
    """A property as it is shown to be sent again: a number has its type where JSON, or JavaScript,
    would choose another one.
    """
    if isinstance(value, Float):
        return _typed("float", str(value.value))
    if isinstance(value, float) and value.is_integer():
        return _typed("double", str(value))
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _INT_MAX:
        return _typed("long", str(value))
    if isinstance(value, Integer):
        for name, (width, _, _) in _WIDTHS.items():
            if type(value) is width and width is not Int:
                return _typed(name, str(value.value))
    return exact(property_document(value))


def exact(value: object) -> object:
    """A value of JSON in which integers that JavaScript would round are texts with their type."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > _EXACT_MAX:
        return _typed("long", str(value))
    if isinstance(value, list):
        return [exact(each) for each in value]
    if isinstance(value, dict):
        return {name: exact(each) for name, each in value.items()}
    return value


def read_properties(properties: Mapping[str, object]) -> dict[str, Value]:
    """The properties in a document, as AMQP values; Refused for invalid ones."""
    return {name: _property(name, value) for name, value in properties.items()}


def read_value(value: object, depth: int = 0) -> Value:
    """Any JSON body as an AMQP value."""
    if depth > _DEPTH_MAX:
        raise invalid(f"A body may be nested at most {_DEPTH_MAX} levels deep.")
    if isinstance(value, list):
        return [read_value(item, depth + 1) for item in value]
    if isinstance(value, dict):
        return {name: read_value(item, depth + 1) for name, item in value.items()}
    return properties_of_json({"body": value})["body"]


def read_base64(text: str, what: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (Base64Error, ValueError) as error:
        raise invalid(f"{what} must be Base64, with its padding.") from error


def _typed(kind: str, value: object) -> dict[str, object]:
    return {"type": kind, "value": value}


def _property(name: str, value: object) -> Value:
    if isinstance(value, list):
        raise invalid(f"The property {shown(name)} is a list; properties must be simple values.")
    if not isinstance(value, dict):
        return properties_of_json({name: value})[name]
    typed = converted(value, TypedProperty, f"the property {shown(name)}")
    said = typed.value
    if typed.type == "timestamp" and isinstance(said, int) and not isinstance(said, bool):
        if abs(said) >= 1 << 63:
            raise invalid(f"The property {shown(name)} is a moment outside of the supported range.")
        return Timestamp(said)
    if typed.type == "other":
        raise invalid(f"The property {shown(name)} has the type other, which cannot be sent.")
    if not isinstance(said, str) or len(said) > TEXT_CHARACTERS_MAX:
        raise invalid(
            f"value of the property {shown(name)} must be a text of at most "
            f"{TEXT_CHARACTERS_MAX} characters."
        )
    return _read_typed(name, typed.type, said)


def _read_typed(name: str, kind: str, text: str) -> Value:
    try:
        match kind:
            case "timestamp":
                return Timestamp(_moment(text))
            case "uuid":
                return Uuid(UUID(text).bytes)
            case "binary":
                return read_base64(text, f"The property {shown(name)}")
            case "symbol":
                return Symbol(text.encode("ascii").decode())
            case "char":
                return Char(ord(text))
            case "long":
                return _long(name, int(text))
            case "double":
                return float(text)
            case "float":
                return Float(float(text))
            case _:
                return _narrow(kind, int(text))
    except (ValueError, TypeError) as error:
        raise invalid(
            f"The property {shown(name)} is not a valid {kind}: {shown(text)}."
        ) from error


def _long(name: str, number: int) -> Value:
    # An int is encoded as a long, or as an unsigned long if it is too large for that.
    return number if abs(number) <= _LONG_MAX else properties_of_json({name: number})[name]


def _narrow(kind: str, number: int) -> Value:
    width, least, most = _WIDTHS[kind]
    if not least <= number <= most:
        raise ValueError("out of range")
    return width(number)


def _moment(text: str) -> int:
    moment_ms = parse_moment(text)
    if moment_ms is None:
        raise ValueError("no moment")
    return moment_ms


def read_numbers(numbers: Sequence[int | str]) -> list[int]:
    """The distinct sequence numbers of a request; Refused for an impossible number."""
    found = list(dict.fromkeys(int(number) for number in numbers))
    for number in found:
        if not 0 < number <= INTEGER_MAX:
            raise invalid(f"{number} is not a sequence number.")
    return found
