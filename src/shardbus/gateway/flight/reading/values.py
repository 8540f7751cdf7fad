"""Values of annotations and application properties as texts, and as JSON."""

from __future__ import annotations

import base64
import json
import math
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

from shardbus.codec.decimals import read_decimal
from shardbus.codec.decoder import ValueReader
from shardbus.codec.errors import DecodeError
from shardbus.codec.types import (
    Array,
    Char,
    Described,
    Float,
    Integer,
    Map,
    Opaque,
    Symbol,
    Timestamp,
    Uuid,
    Value,
)
from shardbus.core.properties import unpack
from shardbus.message import delivery
from shardbus.message.scan import enter_map, leave_map, scan_message
from shardbus.message.seen import DESCRIPTION_KEY, REASON_KEY

_NULL: Final = b"\x40"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]


def text_of(raw: bytes) -> bytes:
    """An encoded value as text: numbers in digits, moments in ISO 8601, UUIDs in their canonical
    form, bytes in base64, and composite values in JSON.
    """
    plain = _decoded(raw)
    text = plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)
    return text.encode("utf-8", "replace")


def json_of(section: bytes, modified: bytes, reason: str | None, description: str | None) -> bytes:
    """Application properties as a JSON object, each value of its own kind."""
    plain: dict[str, Json] = {}
    for name, raw in _changed(section, modified).items():
        plain[name] = _decoded(raw)
    for name, text in ((REASON_KEY, reason), (DESCRIPTION_KEY, description)):
        if text is not None:
            plain[name] = text
    return json.dumps(plain, ensure_ascii=False).encode("utf-8", "replace")


def overlaid(
    section: bytes, modified: bytes, reason: str | None, description: str | None
) -> list[tuple[bytes, bytes | None]]:
    """Application properties with the changes of settlements: names, and values as texts."""
    texts: dict[str, bytes | None] = {}
    for name, raw in _changed(section, modified).items():
        texts[name] = None if raw == _NULL else text_of(raw)
    for name, text in ((REASON_KEY, reason), (DESCRIPTION_KEY, description)):
        if text is not None:
            texts[name] = text.encode("utf-8", "replace")
    return [(name.encode("utf-8", "replace"), text) for name, text in texts.items()]


def settled(payload: bytes, modified: bytes) -> bytes:
    """A message with the application properties that settlements changed; the rest as it was
    sent.
    """
    head = scan_message(payload)
    start, length = head.application_properties_offset, head.application_properties_length
    if not length:
        # Before the sections that follow them in the specification.
        start = head.footer_offset if head.footer_length else len(payload)
        start = head.body_offset if head.body_length else start
    # A lone surrogate in a name can only come from a careless JSON client.
    changed = {
        name.encode("utf-8", "replace").decode(): raw for name, raw in unpack(modified).items()
    }
    section = delivery.overlaid(payload[start : start + length], changed)
    return payload[:start] + section + payload[start + length :]


def _changed(section: bytes, modified: bytes) -> dict[str, bytes]:
    """The encoded values of application properties by their names."""
    values: dict[str, bytes] = {}
    if section:
        reader = ValueReader(section, 0, len(section))
        for _ in range(enter_map(reader) >> 1):
            name = str(plain_of(reader.value()))
            values[name] = reader.raw()
        leave_map(reader)
    values.update(unpack(modified))
    return values


def _decoded(raw: bytes) -> Json:
    try:
        return plain_of(ValueReader(raw, 0, len(raw)).value())
    except DecodeError:
        # Lists, maps and symbols were not checked before: the value is shown as it is encoded.
        return base64.b64encode(raw).decode()


def plain_of(value: Value) -> Json:
    """A value in the types of JSON."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, Integer):
        return _plain_of_integer(value)
    if isinstance(value, float | Float):
        number = value.value if isinstance(value, Float) else value
        return number if math.isfinite(number) else str(number)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Symbol):
        return value.value
    if isinstance(value, Opaque):
        return _plain_of_opaque(value)
    return _plain_of_parts(value)


def _plain_of_integer(value: Integer) -> Json:
    if isinstance(value, Timestamp):
        try:
            return (_EPOCH + timedelta(milliseconds=value.value)).isoformat()
        except OverflowError:
            return value.value
    return chr(value.value) if isinstance(value, Char) else value.value


def _plain_of_opaque(value: Opaque) -> Json:
    if isinstance(value, Uuid):
        return str(UUID(bytes=value.value))
    number = read_decimal(value.value)
    return None if number is None else str(number)


def _plain_of_parts(value: Value) -> Json:
    if isinstance(value, Described):
        return plain_of(value.value)
    if isinstance(value, Array):
        return [plain_of(item) for item in value.values]
    if isinstance(value, list):
        return [plain_of(item) for item in value]
    if isinstance(value, dict):
        return {str(plain_of(key)): plain_of(item) for key, item in value.items()}
    if isinstance(value, Map):
        return {str(plain_of(key)): plain_of(item) for key, item in value.pairs}
    return None
