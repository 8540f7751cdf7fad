"""A received message as an HTTP answer: its body, its properties, and where to settle it."""

from __future__ import annotations

import json
import re
from typing import Final
from urllib.parse import quote
from uuid import UUID

from shardbus.codec import codes
from shardbus.codec.errors import DecodeError
from shardbus.codec.types import Value
from shardbus.core.message import DEFERRED, NEVER_MS, SCHEDULED, Entry
from shardbus.core.message_fields import SENT_TEXTS
from shardbus.core.messages.command import Delivery
from shardbus.core.namespace.entity import Entity
from shardbus.core.namespace.tier import INFINITE_MS
from shardbus.gateway.http.messaging.user_properties import (
    headers_of_properties,
    plain,
)
from shardbus.gateway.http.moment import format_http_date
from shardbus.gateway.http.server.message import JSON, TEXT, HttpResponse
from shardbus.message.sections import (
    MessageHead,
    Stamp,
    decode_message,
    encode_delivery,
    scan_message,
)
from shardbus.message.seen import first_number, overlay_of, state_received

OCTETS: Final = "application/octet-stream"
BROKER_PROPERTIES: Final = "BrokerProperties"

# The largest time span, in seconds, as the service writes it.
INFINITE_TEXT: Final = "922337203685.47754"

_INFINITE_S: Final = INFINITE_MS / 1000
_TIME_TO_LIVE: Final = "TimeToLive"
_STATES: Final = {DEFERRED: "Deferred", SCHEDULED: "Scheduled"}
_PRINTABLE: Final = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]{0,254}[\x21-\x7e])?", re.ASCII)
_SWALLOWED: Final = (".", "..")


def locked_response(delivery: Delivery, entity: Entity, entity_url: str) -> HttpResponse:
    """201 with the message; its Location is the URL for completing, unlocking and renewing it."""
    token = str(UUID(bytes_le=delivery.token))
    response, head = _response(201, delivery)
    broker = _broker_properties(delivery, head, entity)
    broker["LockToken"] = token
    broker["LockedUntilUtc"] = format_http_date(delivery.locked_until_ms)
    # URLs drop the parts "." and "..", and a number identifies the message as well.
    name = head.message_id or ""
    if not name or name in _SWALLOWED:
        name = str(delivery.entry.sequence_number)
    location = f"{entity_url}/messages/{quote(name, safe='')}/{token}"
    response.headers[:0] = [("Location", location), (BROKER_PROPERTIES, _written(broker))]
    return response


def deleted_response(delivery: Delivery, entity: Entity) -> HttpResponse:
    """200 with the message, which was removed."""
    response, head = _response(200, delivery)
    broker = _broker_properties(delivery, head, entity)
    response.headers.insert(0, (BROKER_PROPERTIES, _written(broker)))
    return response


def _response(status: int, delivery: Delivery) -> tuple[HttpResponse, MessageHead]:
    # Read as AMQP receivers get it, so that both see the same message.
    seen = _as_delivered(delivery)
    head = scan_message(seen)
    try:
        message = decode_message(seen)
        properties = message.application_properties
        content_type, content = _content(head.body_kind, message.body)
    except DecodeError:
        # Sections are kept as they were sent, and this one was not decoded before.
        properties = {}
        content_type = OCTETS
        content = seen[head.body_offset : head.body_offset + head.body_length]
    own_type = head.content_type or ""
    if _PRINTABLE.fullmatch(own_type):
        content_type = own_type
    response = HttpResponse(status, content_type, content)
    response.headers += headers_of_properties(properties)
    return response, head


def _as_delivered(delivery: Delivery) -> bytes:
    entry, payload = delivery.entry, delivery.payload or b""
    stamp = Stamp(
        sequence_number=entry.sequence_number,
        enqueued_time_ms=entry.enqueued_at_ms,
    )
    return encode_delivery(payload, scan_message(payload), stamp, overlay_of(entry))


def _content(kind: int, body: Value) -> tuple[str, bytes]:
    """Data as it is, a text as UTF-8; any other value, and sequences, as JSON."""
    if kind == codes.DATA or body is None:
        return OCTETS, body if isinstance(body, bytes) else b""
    if isinstance(body, bytes):
        return OCTETS, body
    if isinstance(body, str):
        return TEXT, body.encode()
    return JSON, json.dumps(plain(body)).encode()


def _broker_properties(delivery: Delivery, head: MessageHead, entity: Entity) -> dict[str, object]:
    entry = delivery.entry
    # Receivers do not see the annotations that only the bus writes into a message.
    stored = scan_message(delivery.payload or b"")
    is_subscription = entity.is_subscription()
    known: dict[str, object] = {
        **{each.dialect: head.text(each.name) for each in SENT_TEXTS if each.dialect},
        "DeliveryCount": delivery.delivery_count + 1,
        "EnqueuedSequenceNumber": first_number(entry, stored, is_subscription=is_subscription),
        "EnqueuedTimeUtc": format_http_date(entry.enqueued_at_ms),
        "ScheduledEnqueueTimeUtc": format_http_date(head.scheduled_enqueue_ms)
        if head.scheduled_enqueue_ms > 0
        else None,
        "SequenceNumber": entry.sequence_number,
        "State": _STATES.get(state_received(entry, stored), "Active"),
        _TIME_TO_LIVE: _time_to_live_s(entry),
    }
    return {name: known[name] for name in sorted(known) if known[name] is not None}


def _written(broker: dict[str, object]) -> str:
    """As JSON; a message that never expires has the exact number that clients expect.

    That number has one digit more than a float needs, so a float cannot write it.
    """
    if broker[_TIME_TO_LIVE] != _INFINITE_S:
        return json.dumps(broker)
    others = {name: value for name, value in broker.items() if name != _TIME_TO_LIVE}
    return f'{json.dumps(others)[:-1]}, "{_TIME_TO_LIVE}": {INFINITE_TEXT}}}'


def _time_to_live_s(entry: Entry) -> float:
    if entry.expires_at_ms == NEVER_MS:
        return _INFINITE_S
    return max(0, entry.lives_ms()) / 1000
