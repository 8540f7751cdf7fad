"""Application properties with their AMQP types, which the SDK forgets when it reads them.

The SDK reads a timestamp as a number and a text as bytes, and would send them as such. So this
module decodes the properties again and gives each value its type, in the form that the SDK sends
unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Final, Protocol
from uuid import UUID

from shardbus.app.cli.failures import Usage
from shardbus.codec.types import (
    Byte,
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
from shardbus.message.scan import scan_message
from shardbus.message.sections import decode_application_properties

TYPE: Final = "TYPE"
VALUE: Final = "VALUE"
UNSENDABLE: Final = "UNSENDABLE"
"""A type that the SDK cannot send: a character or a decimal number."""

_READERS: Final = (
    "azure.servicebus._pyamqp.receiver",
    "azure.servicebus._transport._pyamqp_transport",
)
_DELIVERED: Final = b"x-opt-sequence-number"
_NAME: Final = "decode_payload"
_INTEGERS: Final[dict[type[Integer], str]] = {
    Ubyte: "UBYTE",
    Ushort: "USHORT",
    Uint: "UINT",
    Ulong: "ULONG",
    Byte: "BYTE",
    Short: "SHORT",
    Int: "INT",
    Timestamp: "TIMESTAMP",
}

Typed = dict[str, object]


class _Message(Protocol):
    """A message as the SDK reads it: a named tuple."""

    application_properties: object
    message_annotations: object

    def _replace(self, **members: object) -> _Message: ...


class _Decode(Protocol):
    def __call__(self, buffer: memoryview) -> _Message: ...


@contextmanager
def kept_types() -> Iterator[None]:
    """Within this context the SDK reads application properties with their types.

    Usage if this version of the SDK has other functions. The functions are replaced for the whole
    process, and restored at the end for other users of the SDK.
    """
    plain: list[tuple[dict[str, object], _Decode]] = []
    for name in _READERS:
        members = vars(import_module(name))
        decode: _Decode | None = members.get(_NAME)
        if decode is None:
            raise Usage("this version of azure-servicebus is not supported: install version 7.15")
        plain.append((members, decode))
    for members, decode in plain:
        members[_NAME] = _Keeping(decode)
    try:
        yield
    finally:
        for members, decode in plain:
            members[_NAME] = decode


class _Keeping:
    def __init__(self, plain: _Decode) -> None:
        self._plain = plain

    def __call__(self, buffer: memoryview) -> _Message:
        message = self._plain(buffer)
        annotations = message.message_annotations
        if not isinstance(annotations, dict) or _DELIVERED not in annotations:
            # An answer of the management node.
            return message
        payload = bytes(buffer)
        said = decode_application_properties(payload, scan_message(payload))
        typed = {name: typed_value(value) for name, value in said.items()}
        return message._replace(application_properties=typed)


def typed_value(value: Value) -> Typed:
    """A value as the SDK sends it, with its type."""
    match value:
        case None:
            return _as("NULL", None)
        case bool():
            return _as("BOOL", value)
        case int():
            return _as("LONG", value)
        case float():
            return _as("DOUBLE", value)
        case str():
            return _as("STRING", value)
        case bytes():
            return _as("BINARY", value)
        case Uuid():
            return _as("UUID", UUID(bytes=value.value))
        case Symbol():
            return _as("SYMBOL", value.value)
        case Float():
            return _as("FLOAT", value.value)
        case Integer():
            kind = _INTEGERS.get(type(value))
            return _as(kind, value.value) if kind else _as(UNSENDABLE, type(value).__name__)
        case _:
            return _as(UNSENDABLE, type(value).__name__)


def plain_text(value: object) -> str:
    """The text of a property that was read; empty for anything else."""
    found = value.get(VALUE) if isinstance(value, dict) else value
    return found if isinstance(found, str) else ""


def _as(kind: str, value: object) -> Typed:
    return {TYPE: kind, VALUE: value}
