"""A message of the source as it is sent to the target."""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta
from typing import Final

from azure.servicebus import ServiceBusReceivedMessage
from azure.servicebus.amqp import (
    AmqpAnnotatedMessage,
    AmqpMessageBodyType,
    AmqpMessageHeader,
    AmqpMessageProperties,
)

from shardbus.app.cli.failures import Refused
from shardbus.app.migrate.typed import TYPE, UNSENDABLE, VALUE

ORIGIN: Final = "shardbus_origin"
"""The property by which a later run recognizes a message: its line and number on the source."""
TAG: Final = "shardbus_migrate"
"""The property by which a subscription of the target gets its messages; its rule removes it."""
MESSAGE_ID: Final = "shardbus_message_id"
"""The property with the original id of a message that is sent with another id; the rule removes
it.
"""
PARTITION_KEY: Final = "x-opt-partition-key"
REASON: Final = "DeadLetterReason"
DESCRIPTION: Final = "DeadLetterErrorDescription"
TTL_MS_MAX: Final = 2**32 - 1
"""The longest time to live in a header: 49.7 days."""
_ID_LENGTH: Final = 32
_LEAST_MS: Final = 1_000
_MS: Final = timedelta(milliseconds=1)

Outgoing = AmqpAnnotatedMessage


def key_of(message: ServiceBusReceivedMessage) -> str:
    return message.session_id or message.partition_key or ""


def id_of(message: ServiceBusReceivedMessage) -> str:
    """The message id as the dialect compares it; empty without one."""
    found: object = message.message_id
    if found is None:
        return ""
    return found.decode(errors="replace") if isinstance(found, bytes) else str(found)


def outgoing(
    message: ServiceBusReceivedMessage,
    origin: str,
    *,
    tag: str,
    now: datetime,
    is_dead: bool,
    has_own_id: bool = False,
) -> Outgoing:
    """The message with everything that its sender set, and with the rest of its time to live.

    A dead letter keeps its reason and has no time to live, because it must not expire on its way.
    With `has_own_id` the message is sent with a unique id, and a rule restores the original id.
    """
    raw = message.raw_amqp_message
    dropped = (ORIGIN, TAG) if is_dead else (ORIGIN, TAG, REASON, DESCRIPTION)
    properties: dict[str | bytes, object] = {
        _text(name): value
        for name, value in (raw.application_properties or {}).items()
        if _text(name) not in dropped
    }
    for name, value in properties.items():
        if isinstance(value, dict) and value.get(TYPE) == UNSENDABLE:
            raise Refused(
                f"{origin}: the SDK cannot send the property {name!r}, of the type {value[VALUE]}; "
                "the message and all messages after it stay on the source"
            )
    properties[ORIGIN] = origin
    if tag:
        properties[TAG] = tag
    own_id = id_of(message) if has_own_id else ""
    if own_id:
        properties[MESSAGE_ID] = own_id
    key = message.partition_key
    left_ms = None if is_dead else _left_ms(message, now)
    made = _with_body(raw)
    if raw.properties is not None:
        said = AmqpMessageProperties(**dict(raw.properties.items()))
        if own_id:
            said.message_id = hashlib.sha256(origin.encode()).hexdigest()[:_ID_LENGTH]
        if left_ms is not None and left_ms > TTL_MS_MAX:
            said.creation_time = _ms(now)
            said.absolute_expiry_time = said.creation_time + left_ms
            left_ms = _Saturated(TTL_MS_MAX)
        made.properties = said
    made.application_properties = properties
    made.annotations = {PARTITION_KEY: key} if key else {}
    made.header = AmqpMessageHeader(time_to_live=left_ms)
    return made


def _with_body(raw: AmqpAnnotatedMessage) -> AmqpAnnotatedMessage:
    match raw.body_type:
        case AmqpMessageBodyType.VALUE:
            return AmqpAnnotatedMessage(value_body=raw.body)
        case AmqpMessageBodyType.SEQUENCE:
            return AmqpAnnotatedMessage(sequence_body=list(raw.body))
        case _:
            return AmqpAnnotatedMessage(data_body=list(raw.body))


def _left_ms(message: ServiceBusReceivedMessage, now: datetime) -> int | None:
    """The rest of its time to live, which begins when a message is enqueued."""
    ttl = message.time_to_live
    if ttl is None or message.expires_at_utc is None:
        return None
    due = message.scheduled_enqueue_time_utc
    if due is not None and due > now:
        return ttl // _MS
    left_ms = min(ttl, message.expires_at_utc - now) // _MS
    properties = message.raw_amqp_message.properties
    if ttl // _MS >= TTL_MS_MAX and properties is not None and properties.absolute_expiry_time:
        left_ms = properties.absolute_expiry_time - _ms(now)
    return max(_LEAST_MS, left_ms)


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


class _Saturated(int):
    """The longest time to live of a header, with a longer one in the properties.

    For any other value the SDK computes those of the properties from the header. It looks whether
    this is its own maximum, which a header cannot contain.
    """

    def __ne__(self, other: object) -> bool:
        return False

    __eq__ = int.__eq__
    __hash__ = int.__hash__


def _text(name: str | bytes) -> str:
    return name.decode() if isinstance(name, bytes) else name
