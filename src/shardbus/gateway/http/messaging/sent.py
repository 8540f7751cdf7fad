"""Requests that send: one message in the body, or a batch of them in JSON."""

from __future__ import annotations

from typing import Final, final
from uuid import uuid4

from shardbus.codec import codes
from shardbus.codec.encoder import (
    NULL,
    compound,
    encode,
    encode_binary,
    encode_fields,
    encode_symbol,
    encode_symbol_map,
    encode_text,
    encode_uint,
)
from shardbus.codec.types import Timestamp, Value
from shardbus.core.message import NEVER_MS, Message
from shardbus.core.message_fields import (
    ANNOTATIONS,
    PROPERTY_FIELDS,
    SENT_TEXTS,
    SYMBOL,
    field_named,
)
from shardbus.gateway.http.messaging.broker_properties import (
    BrokerProperties,
    checked_text,
    members_of,
    parse_json,
    read_broker_properties,
)
from shardbus.gateway.http.messaging.user_properties import (
    encode_properties,
    header_text,
    properties_of_headers,
    properties_of_json,
)
from shardbus.gateway.http.server.message import HttpRequest
from shardbus.gateway.http.server.refusal import invalid
from shardbus.message.scan import AT_ONCE

BATCH_TYPE: Final = "application/vnd.microsoft.servicebus.json"
BATCH_MESSAGES_MAX: Final = 4_500

_UINT_MAX: Final = 0xFFFFFFFF
_HEADERS: Final = {"content_type": "Content-Type", "content_encoding": "Content-Encoding"}
_SCHEDULED_AT: Final = field_named("scheduled_at").key


@final
class SentDraft:
    """One message as its sender described it, not yet encoded."""

    def __init__(self, body: bytes, broker: BrokerProperties, user: dict[str, Value]) -> None:
        self.body = body
        self.broker = broker
        self.user = user
        # An encoded section in place of the body's bytes, for a body that is not data.
        self.section = b""


def read_messages(request: HttpRequest, now_ms: int) -> list[Message]:
    """The messages in a request, at least one; Refused for an invalid request."""
    content_type = request.headers.get("content-type", "")
    if content_type.partition(";")[0].strip().lower() == BATCH_TYPE:
        return [encode_draft(draft, now_ms) for draft in _batch(request.body)]
    return [encode_draft(_single(request), now_ms)]


def encode_draft(draft: SentDraft, now_ms: int) -> Message:
    """The message as AMQP receivers get it: a data section with the sender's properties."""
    broker = draft.broker
    texts = broker.texts
    payload = b"".join(
        [
            _header(broker),
            _annotations(broker, now_ms),
            encode_fields(codes.PROPERTIES, _properties(broker, now_ms)),
            _application_properties(draft.user),
            draft.section or _section(codes.DATA, encode_binary(draft.body)),
        ]
    )
    return Message(
        payload,
        # Not the id that the bus generates: it does not identify duplicates or choose a fragment.
        message_id=texts.get("message_id"),
        session_id=texts.get("session_id"),
        partition_key=texts.get("partition_key"),
        ttl_ms=broker.ttl_ms,
        scheduled_at_ms=broker.scheduled_at_ms if broker.scheduled_at_ms > now_ms else NEVER_MS,
    )


def _single(request: HttpRequest) -> SentDraft:
    text = header_text(request.headers.get("brokerproperties", "{}"))
    broker = read_broker_properties(parse_json(text, "The header BrokerProperties"))
    # A content type is a header here, and whatever the properties say of it is passed over.
    broker.texts.pop("content_type", None)
    for name, header in _HEADERS.items():
        value = request.headers.get(header.lower())
        if value:
            broker.texts[name] = checked_ascii(value, header)
    return SentDraft(request.body, broker, properties_of_headers(request))


def _batch(body: bytes) -> list[SentDraft]:
    items = parse_json(body, "The batch")
    if not isinstance(items, list) or not 0 < len(items) <= BATCH_MESSAGES_MAX:
        raise invalid(f"A batch must be a JSON array of 1 to {BATCH_MESSAGES_MAX} messages.")
    return [_batched(item, position) for position, item in enumerate(items)]


def _batched(item: object, position: int) -> SentDraft:
    members = members_of(item, f"Message {position} of the batch")
    content = members.get("Body")
    if not isinstance(content, str):
        raise invalid(f"Message {position} of the batch must have a Body that is a text.")
    body = checked_text(content, f"The Body of message {position} of the batch").encode()
    said = members.get("BrokerProperties")
    broker = BrokerProperties() if said is None else read_broker_properties(said)
    checked_ascii(broker.texts.get("content_type", ""), "ContentType")
    return SentDraft(body, broker, properties_of_json(members.get("UserProperties")))


def _header(broker: BrokerProperties) -> bytes:
    if broker.ttl_ms < 0:
        return b""
    return encode_fields(codes.HEADER, [NULL, NULL, encode_uint(min(broker.ttl_ms, _UINT_MAX))])


def _annotations(broker: BrokerProperties, now_ms: int) -> bytes:
    entries: dict[str, Value] = {}
    for field in SENT_TEXTS:
        if field.section == ANNOTATIONS and field.name in broker.texts:
            entries[field.key] = broker.texts[field.name]
    if broker.scheduled_at_ms != NEVER_MS:
        entries[_SCHEDULED_AT] = Timestamp(broker.scheduled_at_ms)
        if broker.scheduled_at_ms <= now_ms:
            entries[AT_ONCE.decode()] = True
    return _section(codes.MESSAGE_ANNOTATIONS, encode_symbol_map(entries)) if entries else b""


def _properties(broker: BrokerProperties, now_ms: int) -> list[bytes]:
    encoded = {
        field.name: encode_symbol(broker.texts[field.name])
        if field.form == SYMBOL
        else encode_text(broker.texts[field.name])
        for field in SENT_TEXTS
        if field.name in broker.texts
    }
    if "message_id" not in encoded:
        encoded["message_id"] = encode_text(uuid4().hex)
    if broker.ttl_ms > _UINT_MAX:
        # The header's ttl ends at 49.7 days; for longer times two timestamps are set, as SDKs do.
        encoded["expires_at"] = encode(Timestamp(now_ms + broker.ttl_ms))
        encoded["creation_time"] = encode(Timestamp(now_ms))
    return [encoded.get(field.name, NULL) for field in PROPERTY_FIELDS]


def _application_properties(user: dict[str, Value]) -> bytes:
    if not user:
        return b""
    return _section(codes.APPLICATION_PROPERTIES, compound(codes.MAP8, encode_properties(user)))


def _section(code: int, encoded: bytes) -> bytes:
    return bytes([codes.DESCRIBED, codes.SMALLULONG, code]) + encoded


def checked_ascii(text: str, name: str) -> str:
    if not text.isascii():
        raise invalid(f"{name} must be plain ASCII.")
    return text
