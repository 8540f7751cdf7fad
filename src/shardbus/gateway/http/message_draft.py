"""Messages that JSON documents describe, as they are sent."""

from __future__ import annotations

from typing import Final

from shardbus.amqp import codes
from shardbus.amqp.encoder import encode
from shardbus.core.limits import KEY_CHARACTERS_MAX
from shardbus.core.message import NEVER_MS
from shardbus.core.tier import INFINITE_MS
from shardbus.gateway.http.api_call import Members
from shardbus.gateway.http.broker_properties import BrokerProperties
from shardbus.gateway.http.message_document import BODY_TYPES, SENT_MEMBERS, STAMPED_MEMBERS
from shardbus.gateway.http.moment import parse_moment
from shardbus.gateway.http.property_document import read_base64, read_properties, read_value
from shardbus.gateway.http.refusal import invalid, shown
from shardbus.gateway.http.sent import Draft

MEMBERS: Final = (*SENT_MEMBERS, *STAMPED_MEMBERS)
"""What a message that is sent may say: also what the bus stamped on one that was received before,
which is passed over, so that messages can be sent as they were shown."""

_BODY_CHARACTERS_MAX: Final = 1024 * 1024
_SECTIONS: Final = {"value": codes.AMQP_VALUE, "sequence": codes.AMQP_SEQUENCE}


def read_draft(members: Members) -> Draft:
    """The message that a document describes; Refused when something in it cannot be."""
    draft = Draft(_data(members), _broker_properties(members), {})
    draft.user = read_properties(members.value("properties"))
    draft.section = _section(members, draft.body)
    draft.content_type = _ascii(members, "content_type")
    draft.content_encoding = _ascii(members, "content_encoding")
    return draft


def _broker_properties(members: Members) -> BrokerProperties:
    said = BrokerProperties()
    said.message_id = _key(members, "message_id")
    if members.has("session_id"):
        said.session_id = members.text("session_id", most=KEY_CHARACTERS_MAX)
    said.partition_key = _key(members, "partition_key")
    said.via_partition_key = _key(members, "via_partition_key")
    said.reply_to_session_id = _key(members, "reply_to_session_id")
    said.label = members.text("subject", "") or None
    said.correlation_id = members.text("correlation_id", "") or None
    said.to = members.text("to", "") or None
    said.reply_to = members.text("reply_to", "") or None
    if members.has("time_to_live_ms"):
        said.ttl_ms = members.integer("time_to_live_ms", most=INFINITE_MS, least=1)
    said.scheduled_at_ms = _moment(members, "scheduled_at")
    return said


def _key(members: Members, name: str) -> str | None:
    return members.text(name, "", most=KEY_CHARACTERS_MAX) or None


def _ascii(members: Members, name: str) -> str | None:
    text = members.text(name, "")
    if not text.isascii():
        raise invalid(f"{name} must be plain ASCII.")
    return text or None


def _moment(members: Members, name: str) -> int:
    if not members.has(name):
        return NEVER_MS
    text = members.text(name)
    moment_ms = parse_moment(text)
    if moment_ms is None or moment_ms <= NEVER_MS:
        raise invalid(f"{name} is {shown(text)}; it must be a moment like 2026-01-02T03:04:05Z.")
    return moment_ms


def _data(members: Members) -> bytes:
    if members.has("body") and members.has("body_base64"):
        raise invalid("A message has a body or a body_base64, not both.")
    if members.has("body_base64"):
        text = members.text("body_base64", most=_BODY_CHARACTERS_MAX)
        return read_base64(text, "body_base64")
    if members.choice("body_type", BODY_TYPES, "data") == "data":
        return members.text("body", "", most=_BODY_CHARACTERS_MAX).encode()
    return b""


def _section(members: Members, data: bytes) -> bytes:
    """The encoded body of a message whose body is not data; b"" for data."""
    kind = members.choice("body_type", BODY_TYPES, "data")
    if kind == "data":
        return b""
    body = data if members.has("body_base64") else read_value(members.value("body"))
    if kind == "sequence" and not isinstance(body, list):
        raise invalid("The body of a message with the body_type sequence must be a list.")
    return bytes([codes.DESCRIBED, codes.SMALLULONG, _SECTIONS[kind]]) + encode(body)
