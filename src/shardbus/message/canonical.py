"""Rewrites messages that a client did not encode as the specification says.

A message that was received with the Python SDK and is sent again has binary where it had text; the
SDK's older transport writes annotation names as strings; descriptors may be symbols, or numbers of
eight bytes, neither of which the Python SDK can read. The service accepts all of these. The bus
rewrites such a message when it arrives, so that everything behind the gateway, and every receiver,
sees one form only.
"""

from typing import Final

from mypy_extensions import i64

from shardbus.codec import codes
from shardbus.codec.decoder import ValueReader, utf8
from shardbus.codec.encoder import compound, encode_symbol, encode_text
from shardbus.codec.errors import DecodeError
from shardbus.core.message_fields import (
    ANNOTATIONS,
    PROPERTY_FIELDS,
    SENT_TEXTS,
    SYMBOL,
    TEXT,
)
from shardbus.message.scan import enter_map, leave_map, section_code

# Fields of the properties that hold a string, and those that hold a symbol.
_TEXT_FIELDS: Final = frozenset(each.place for each in PROPERTY_FIELDS if each.form == TEXT)
_SYMBOL_FIELDS: Final = frozenset(each.place for each in PROPERTY_FIELDS if each.form == SYMBOL)
_FIELDS_MAX: Final = len(PROPERTY_FIELDS)
_TEXT_ANNOTATIONS: Final = frozenset(each.key for each in SENT_TEXTS if each.section == ANNOTATIONS)


def canonical(payload: bytes) -> bytes:
    """The same message with text as text, names in their proper type and numeric descriptors.

    Values whose type is the sender's choice (ids, application properties, annotations that mean
    nothing to the bus) stay as they are. Raises DecodeError.
    """
    reader = ValueReader(payload, 0, len(payload))
    parts: list[bytes] = []
    while reader.position < reader.end:
        code: i64 = section_code(reader)
        start: i64 = reader.position
        parts.append(b"\x00\x53" + bytes([code]))
        if code == codes.MESSAGE_ANNOTATIONS:
            parts.append(_annotations(reader))
        elif code == codes.PROPERTIES:
            parts.append(_properties(reader))
        elif code == codes.APPLICATION_PROPERTIES:
            parts.append(_application_properties(reader))
        else:
            reader.skip()
            parts.append(payload[start : reader.position])
    return b"".join(parts)


def _annotations(reader: ValueReader) -> bytes:
    parts: list[bytes] = []
    for _ in range(enter_map(reader) >> 1):
        key = reader.raw()
        name = _text_in(key)
        value = reader.raw()
        if name is not None and name.isascii():
            key = encode_symbol(name)
            if name in _TEXT_ANNOTATIONS:
                value = _as_text(value)
        parts.append(key)
        parts.append(value)
    leave_map(reader)
    return compound(codes.MAP8, parts)


def _properties(reader: ValueReader) -> bytes:
    reader.enter_list()
    fields: list[bytes] = []
    while reader.fields_left > 0:
        reader.fields_left -= 1
        raw = reader.raw()
        if len(fields) in _TEXT_FIELDS:
            raw = _as_text(raw)
        elif len(fields) in _SYMBOL_FIELDS:
            raw = _as_symbol(raw)
        fields.append(raw)
    reader.leave_list()
    if len(fields) > _FIELDS_MAX:
        # The Python SDK fails on a field that it does not know, and on every page with such a
        # message.
        raise DecodeError(
            f"the properties section has {len(fields)} fields; at most {_FIELDS_MAX} exist"
        )
    return compound(codes.LIST8, fields)


def _application_properties(reader: ValueReader) -> bytes:
    parts: list[bytes] = []
    for _ in range(enter_map(reader) >> 1):
        parts.append(_as_text(reader.raw()))
        parts.append(reader.raw())
    leave_map(reader)
    return compound(codes.MAP8, parts)


def _as_text(raw: bytes) -> bytes:
    text = _text_in(raw)
    return raw if text is None else encode_text(text)


def _as_symbol(raw: bytes) -> bytes:
    text = _text_in(raw)
    if text is None:
        return raw
    return encode_symbol(text) if text.isascii() else encode_text(text)


def _text_in(raw: bytes) -> str | None:
    """The text of an encoded string, symbol or binary; None for any other value."""
    code: i64 = raw[0]
    if code in (codes.STRING8, codes.SYMBOL8, codes.BINARY8):
        return utf8(raw[2:])
    if code in (codes.STRING32, codes.SYMBOL32, codes.BINARY32):
        return utf8(raw[5:])
    return None
