"""Messages to send, from their JSON documents."""

from __future__ import annotations

from typing import Final

from msgspec import UNSET

from shardbus.codec import codes
from shardbus.codec.encoder import encode
from shardbus.core.message import NEVER_MS
from shardbus.core.message_fields import SENT_TEXTS, SYMBOL
from shardbus.gateway.http.api.messages_schemas import BODY_CHARACTERS_MAX, NewMessage
from shardbus.gateway.http.api.property_document import read_base64, read_properties, read_value
from shardbus.gateway.http.messaging.broker_properties import BrokerProperties
from shardbus.gateway.http.messaging.sent import SentDraft, checked_ascii
from shardbus.gateway.http.moment import parse_moment
from shardbus.gateway.http.server.refusal import invalid, shown

_SECTIONS: Final = {"value": codes.AMQP_VALUE, "sequence": codes.AMQP_SEQUENCE}


def read_draft(message: NewMessage) -> SentDraft:
    """The message that a document describes; Refused for an invalid one."""
    draft = SentDraft(_data(message), _broker_properties(message), {})
    draft.user = read_properties(message.properties or {})
    draft.section = _section(message, draft.body)
    return draft


def _broker_properties(message: NewMessage) -> BrokerProperties:
    said = BrokerProperties()
    for field in SENT_TEXTS:
        text = message.text(field)
        if field.form == SYMBOL:
            checked_ascii(text or "", field.member)
        # Only a session may be empty: that is one like any other.
        if text or (text is not None and field.name == "session_id"):
            said.texts[field.name] = text
    if message.time_to_live_ms is not UNSET:
        said.ttl_ms = message.time_to_live_ms
    if message.scheduled_at is not UNSET:
        said.scheduled_at_ms = _moment(message.scheduled_at, "scheduled_at")
    return said


def _moment(text: str, name: str) -> int:
    moment_ms = parse_moment(text)
    if moment_ms is None or moment_ms <= NEVER_MS:
        raise invalid(f"{name} is {shown(text)}; it must be a moment like 2026-01-02T03:04:05Z.")
    return moment_ms


def _data(message: NewMessage) -> bytes:
    body = message.body
    if message.body_base64 is not UNSET:
        if body is not UNSET:
            raise invalid("A message must have body or body_base64, not both.")
        return read_base64(message.body_base64, "body_base64")
    if _kind(message) != "data" or body is UNSET:
        return b""
    if not isinstance(body, str) or len(body) > BODY_CHARACTERS_MAX:
        raise invalid(
            f"body must be a text of at most {BODY_CHARACTERS_MAX} characters; other JSON "
            "needs the body_type value or sequence."
        )
    return body.encode()


def _section(message: NewMessage, data: bytes) -> bytes:
    """The encoded body of a message whose body is not data; b"" for data."""
    kind = _kind(message)
    if kind == "data":
        return b""
    said = None if message.body is UNSET else message.body
    body = read_value(said) if message.body_base64 is UNSET else data
    if kind == "sequence" and not isinstance(body, list):
        raise invalid("The body of a message with the body_type sequence must be a list.")
    return bytes([codes.DESCRIBED, codes.SMALLULONG, _SECTIONS[kind]]) + encode(body)


def _kind(message: NewMessage) -> str:
    return "data" if message.body_type is UNSET else message.body_type
