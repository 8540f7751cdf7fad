"""Messages as JSON: the same members where they are shown and where they are sent."""

from __future__ import annotations

from base64 import b64encode
from typing import Final
from uuid import UUID

from shardbus.amqp import codes
from shardbus.amqp.errors import DecodeError
from shardbus.amqp.message import MessageHead, decode_message, scan_message
from shardbus.amqp.revision import Revision, revise
from shardbus.core.command import Delivery
from shardbus.core.message import ACTIVE, DEFERRED, DELAYED, NEVER_MS, SCHEDULED, Entry
from shardbus.core.properties import unpack
from shardbus.core.tier import INFINITE_MS
from shardbus.gateway.http.documents_schema import (
    COUNT,
    MOMENT,
    TEXT,
    Document,
    Schema,
    described,
    one_of,
)
from shardbus.gateway.http.moment import format_moment
from shardbus.gateway.http.property_document import PROPERTIES_SCHEMA, property_document
from shardbus.gateway.http.user_properties import plain

BODY_TYPES: Final = ("data", "value", "sequence")

_UINT_MAX: Final = 0xFFFFFFFF
_MOMENT_MS_MAX: Final = 253_402_300_799_999
_STATES: Final = {
    ACTIVE: "active",
    DEFERRED: "deferred",
    SCHEDULED: "scheduled",
    DELAYED: "delayed",
}

SENT_MEMBERS: Final[dict[str, Schema]] = {
    "message_id": TEXT,
    "session_id": TEXT,
    "partition_key": TEXT,
    "via_partition_key": TEXT,
    "subject": TEXT,
    "correlation_id": TEXT,
    "content_type": described(TEXT, "Plain ASCII."),
    "content_encoding": described(TEXT, "Plain ASCII."),
    "to": TEXT,
    "reply_to": TEXT,
    "reply_to_session_id": TEXT,
    "time_to_live_ms": {"type": "integer", "minimum": 1, "maximum": INFINITE_MS},
    "scheduled_at": described(MOMENT, "When it is to be enqueued; what has passed means now."),
    "properties": PROPERTIES_SCHEMA,
    "body": described(
        {}, "The text of a body that is UTF-8; any JSON when `body_type` is not `data`."
    ),
    "body_base64": described(TEXT, "The bytes of a body that is no text."),
    "body_type": described(one_of(*BODY_TYPES), "The AMQP section; `data` unless said."),
}
STAMPED_MEMBERS: Final[dict[str, Schema]] = {
    "sequence_number": COUNT,
    "state": one_of(*_STATES.values()),
    "enqueued_at": MOMENT,
    "expires_at": MOMENT,
    "delivery_count": described(COUNT, "Deliveries that were not completed, before this one."),
    "size_bytes": COUNT,
    "dead_letter_reason": TEXT,
    "dead_letter_description": TEXT,
    "dead_letter_source": described(TEXT, "The entity that it was a dead letter of."),
    "lock_token": TEXT,
    "locked_until": MOMENT,
}

MESSAGE: Final[Schema] = {
    "type": "object",
    "required": ["sequence_number", "state", "enqueued_at", "delivery_count", "size_bytes"],
    "properties": {**STAMPED_MEMBERS, **SENT_MEMBERS},
    "description": "A member that the sender or the bus has not set is not there.",
}


def message_document(entry: Entry, payload: bytes, *, delivery_count: int) -> Document:
    """A message as its receivers see it, with what the bus has stamped on it."""
    stamped: Document = {
        "sequence_number": entry.sequence_number,
        "state": _STATES.get(entry.state, "active"),
        "enqueued_at": _moment(entry.enqueued_at_ms),
        "expires_at": _moment(entry.expires_at_ms),
        "delivery_count": delivery_count,
        "size_bytes": entry.size_bytes,
        "dead_letter_reason": entry.reason,
        "dead_letter_description": entry.description,
    }
    said = _as_sent(entry, payload)
    return {name: value for name, value in (stamped | said).items() if value is not None}


def locked_document(delivery: Delivery) -> Document:
    """A message that is locked for who gets this."""
    return {
        **_received(delivery),
        "lock_token": token_text(delivery.token),
        "locked_until": _moment(delivery.locked_until_ms),
    }


def taken_document(delivery: Delivery) -> Document:
    """A message that is taken out for who gets this."""
    return _received(delivery)


def token_text(token: bytes) -> str:
    """A lock token as clients of every protocol know it."""
    return str(UUID(bytes_le=token))


def time_to_live_ms(head: MessageHead) -> int:
    """How long the sender lets a message live; -1 if it does not say."""
    # The header's ttl ends at 49.7 days; SDKs then say the rest with two timestamps.
    if head.ttl_ms == _UINT_MAX and head.absolute_expiry_ms > head.creation_time_ms >= 0:
        return min(head.absolute_expiry_ms - head.creation_time_ms, INFINITE_MS)
    return head.ttl_ms


def modified_payload(entry: Entry, payload: bytes) -> bytes:
    """What the sender wrote, with the properties that settlements changed. Raises DecodeError."""
    if not entry.modified:
        return payload
    made = Revision()
    made.application = unpack(entry.modified)
    return revise(payload, scan_message(payload), made)


def _received(delivery: Delivery) -> Document:
    return message_document(
        delivery.entry, delivery.payload or b"", delivery_count=delivery.delivery_count
    )


def _as_sent(entry: Entry, payload: bytes) -> Document:
    try:
        seen = modified_payload(entry, payload)
        message = decode_message(seen)
    except DecodeError:
        # Sections are kept as they were sent, and nobody looked into this one before.
        return {"body_base64": b64encode(payload).decode()}
    properties = {
        name: property_document(value) for name, value in message.application_properties.items()
    }
    return {
        **_head_document(message.head),
        "properties": properties or None,
        **_body_document(message.head.body_kind, message.body),
    }


def _head_document(head: MessageHead) -> Document:
    ttl_ms = time_to_live_ms(head)
    return {
        "message_id": head.message_id,
        "session_id": head.session_id,
        "partition_key": head.partition_key,
        "via_partition_key": head.via_partition_key,
        "subject": head.subject,
        "correlation_id": head.correlation_id,
        "content_type": head.content_type,
        "content_encoding": head.content_encoding,
        "to": head.to,
        "reply_to": head.reply_to,
        "reply_to_session_id": head.reply_to_session_id,
        "time_to_live_ms": ttl_ms if ttl_ms > 0 else None,
        "scheduled_at": _moment(head.scheduled_enqueue_ms),
        "dead_letter_source": head.deadletter_source,
    }


def _body_document(kind: int, body: object) -> Document:
    if kind == codes.AMQP_VALUE:
        return {"body_type": "value", **_value_document(body)}
    if kind == codes.AMQP_SEQUENCE:
        return {"body_type": "sequence", "body": plain(body)}
    return _bytes_document(body if isinstance(body, bytes) else b"")


def _value_document(body: object) -> Document:
    if isinstance(body, bytes):
        return {"body_base64": b64encode(body).decode()}
    return {"body": plain(body)}


def _bytes_document(body: bytes) -> Document:
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        return {"body_base64": b64encode(body).decode()}


def _moment(moment_ms: int) -> str | None:
    return format_moment(moment_ms) if NEVER_MS < moment_ms <= _MOMENT_MS_MAX else None
