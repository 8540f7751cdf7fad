"""Stored messages as rules see them, and with the changes of a rule's action."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from shardbus.codec.encoder import NULL, TRUE, encode, encode_symbol, encode_text, encode_uint
from shardbus.codec.errors import DecodeError
from shardbus.codec.types import Timestamp
from shardbus.codec.types import Value as AmqpValue
from shardbus.core import message_fields
from shardbus.core.errors import Refused
from shardbus.core.message import NEVER_MS, Entry
from shardbus.core.message_fields import FIELDS, field_named
from shardbus.core.properties import pack
from shardbus.message.revision import Revision, revise
from shardbus.message.rule_values import property_from, value_from
from shardbus.message.scan import AT_ONCE, MessageHead
from shardbus.message.sections import decode_application_properties, scan_message
from shardbus.message.sent import HEADER_BYTES_MAX, PROPERTY_BYTES_MAX, read_message, ttl_of
from shardbus.rules import values
from shardbus.rules.action import Changes
from shardbus.rules.scope import RuleMessage
from shardbus.rules.values import Duration, Moment, Property, Value, fold

_UINT_MAX: Final = 0xFFFFFFFF

_BY_NUMBER: Final = {each.number: each for each in FIELDS if each.number >= 0}
_TTL: Final = field_named("time_to_live").place
_DURABLE: Final = field_named("durable").place
_ABSOLUTE_EXPIRY_TIME: Final = field_named("expires_at").place


@final
class PayloadFormat:
    """What publishing needs from payloads; a parameter only so that tests can have simpler ones.

    `view_of(payload)` shows a message to rules. `rewrite(payload, changes)` returns the payload
    with the system properties that an action set or unset (`changes.system`). `pack(payload,
    changes)` returns the application properties that the action set or removed as `Entry.modified`
    (`core.properties`); a removed one has an empty value under each name that the payload has for
    it. Each of them, and the view, raises ValueError for a payload that cannot be read or a change
    that cannot be made.
    """

    def __init__(
        self,
        view_of: Callable[[bytes], RuleMessage],
        rewrite: Callable[[bytes, Changes], bytes],
        pack: Callable[[bytes, Changes], bytes],
    ) -> None:
        self.view_of = view_of
        self.rewrite = rewrite
        self.pack = pack


@final
class RuleView:
    """A message as it was sent. A `rules.scope.RuleMessage`.

    The constructor and the properties raise ValueError for a payload that cannot be read.
    """

    def __init__(self, payload: bytes) -> None:
        self._payload = payload
        self._head = _scanned(payload)

    def system(self, number: int) -> Value:
        head = self._head
        if number == message_fields.LABEL:
            return head.subject
        if number == message_fields.MESSAGE_ID:
            return head.message_id
        if number == message_fields.CORRELATION_ID:
            return head.correlation_id
        if number == message_fields.TO:
            return head.to
        if number == message_fields.REPLY_TO:
            return head.reply_to
        if number == message_fields.SESSION_ID:
            return head.session_id
        if number == message_fields.REPLY_TO_SESSION_ID:
            return head.reply_to_session_id
        if number == message_fields.CONTENT_TYPE:
            return head.content_type
        return self._rare(number)

    def properties(self) -> dict[str, Property]:
        found: dict[str, Property] = {}
        for name, value in _application_properties(self._payload, self._head).items():
            # A value that rules cannot represent exists all the same: EXISTS is true for it.
            made = property_from(name, value) or Property(name, values.NULL, None)
            found[fold(name)] = made
        return found

    def _rare(self, number: int) -> Value:
        head = self._head
        if number == message_fields.PARTITION_KEY:
            return head.partition_key
        if number == message_fields.FORCE_PERSISTENCE:
            return head.durable > 0
        if number == message_fields.TIME_TO_LIVE:
            ttl_ms = ttl_of(head)
            return None if ttl_ms < 0 else values.duration_of_ms(ttl_ms)
        if number == message_fields.SCHEDULED_ENQUEUE_TIME and head.scheduled_enqueue_ms >= 0:
            return values.moment_of_ms(head.scheduled_enqueue_ms)
        field = _BY_NUMBER[number]
        return head.text(field.name) if field.is_sent and field.is_text() else None


def entry_value(entry: Entry, number: int) -> Value:
    """The system property of this number, if the bus sets it when it stores a message."""
    if number in (message_fields.SEQUENCE_NUMBER, message_fields.ENQUEUED_SEQUENCE_NUMBER):
        return entry.sequence_number
    if number == message_fields.ENQUEUED_TIME:
        return values.moment_of_ms(entry.enqueued_at_ms)
    if number == message_fields.EXPIRES_AT and entry.expires_at_ms != NEVER_MS:
        return values.moment_of_ms(entry.expires_at_ms)
    if number == message_fields.SIZE:
        return entry.size_bytes
    return None


def rewrite(payload: bytes, changes: Changes) -> bytes:
    """The payload with the system properties that an action set or unset.

    Raises ValueError for a payload that cannot be read and for one that could not be sent.
    """
    head = _scanned(payload)
    made = Revision()
    for number, value in changes.system.items():
        _revise(made, head, number, value)
    rewritten = revise(payload, head, made)
    try:
        read_message(rewritten, 0)
    except Refused as refusal:
        raise ValueError(refusal.message) from refusal
    return rewritten


def pack_changes(payload: bytes, changes: Changes) -> bytes:
    """The application properties that an action set or removed, as `Entry.modified`.

    A removed property has an empty value under every name that differs from its own by case only.
    Raises ValueError for a payload that cannot be read and for properties that could not be sent.
    """
    packed: dict[str, bytes] = {}
    size_bytes = 0
    for name in _application_properties(payload, _scanned(payload)):
        if fold(name) in changes.properties:
            packed[name] = b""
    for property in changes.properties.values():
        if property is None:
            continue
        value = encode(value_from(property))
        property_bytes = len(property.name.encode()) + len(value)
        if property_bytes > PROPERTY_BYTES_MAX:
            raise ValueError(
                f"The property '{property.name[:100]}' has {property_bytes} bytes; at most "
                f"{PROPERTY_BYTES_MAX} are allowed."
            )
        size_bytes += property_bytes
        packed[property.name] = value
    if size_bytes > HEADER_BYTES_MAX:
        raise ValueError(
            f"The properties that the action sets have {size_bytes} bytes; at most "
            f"{HEADER_BYTES_MAX} are allowed."
        )
    return pack(packed)


def _scanned(payload: bytes) -> MessageHead:
    try:
        return scan_message(payload)
    except DecodeError as error:
        raise ValueError(f"The message cannot be read: {error.description}.") from error


def _application_properties(payload: bytes, head: MessageHead) -> dict[str, AmqpValue]:
    try:
        return decode_application_properties(payload, head)
    except DecodeError as error:
        raise ValueError(
            f"The application properties cannot be read: {error.description}."
        ) from error


def _revise(made: Revision, head: MessageHead, number: int, value: Value) -> None:
    field = _BY_NUMBER[number]
    if number == message_fields.TIME_TO_LIVE:
        made.header[_TTL] = NULL
        if isinstance(value, Duration):
            ttl_ms = min(max(values.ms_of(value), 0), _UINT_MAX)
            made.header[_TTL] = encode_uint(ttl_ms)
        # The absolute expiry belongs to the old time to live.
        if head.absolute_expiry_ms >= 0:
            made.properties[_ABSOLUTE_EXPIRY_TIME] = NULL
    elif number == message_fields.FORCE_PERSISTENCE:
        made.header[_DURABLE] = encode(value)
    elif field.section == message_fields.ANNOTATIONS:
        made.annotations[field.key] = _encoded(value)
        if number == message_fields.SCHEDULED_ENQUEUE_TIME and head.scheduled_enqueue_ms <= 0:
            # The copy is active at once: a scheduled moment that an action writes never delayed it.
            made.annotations[AT_ONCE.decode()] = TRUE
    elif field.form == message_fields.SYMBOL:
        made.properties[field.place] = encode_symbol(_text(value))
    else:
        made.properties[field.place] = encode_text(_text(value))


def _encoded(value: Value) -> bytes:
    if isinstance(value, Moment):
        return encode(Timestamp(values.ms_of(value)))
    return encode_text(_text(value))


def _text(value: Value) -> str | None:
    assert value is None or isinstance(value, str), "the action converted it"
    return value


MESSAGES: Final = PayloadFormat(RuleView, rewrite, pack_changes)
