"""Messages as JSON, with the same members for showing and sending."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Final, Literal, TypeVar, overload
from uuid import UUID

from msgspec import UNSET, Meta, Struct, UnsetType, defstruct

from shardbus.codec import codes
from shardbus.codec.errors import DecodeError
from shardbus.codec.types import Value
from shardbus.core.limits import KEY_CHARACTERS_MAX
from shardbus.core.message import ACTIVE, DEFERRED, DELAYED, NEVER_MS, SCHEDULED, Entry
from shardbus.core.message_fields import SENT_TEXTS, MessageField, field_named
from shardbus.core.messages.command import Delivery
from shardbus.core.namespace.tier import INFINITE_MS
from shardbus.core.properties import unpack
from shardbus.gateway.http.api.messages.values import (
    Properties,
    exact_property,
    property_document,
)
from shardbus.gateway.http.document import (
    Count,
    Json,
    Maybe,
    Moment,
    Text,
    given,
    one_of,
    told,
)
from shardbus.gateway.http.messaging.user_properties import plain
from shardbus.gateway.http.moment import format_moment
from shardbus.message.revision import Revision, revise
from shardbus.message.sections import MessageHead, decode_message, scan_message

_UINT_MAX: Final = 0xFFFFFFFF
_MOMENT_MS_MAX: Final = 253_402_300_799_999
_STATES: Final = {
    ACTIVE: "active",
    DEFERRED: "deferred",
    SCHEDULED: "scheduled",
    DELAYED: "delayed",
}

_MaybeKey = Maybe[Annotated[str, Meta(max_length=KEY_CHARACTERS_MAX)]]
_MaybeText = Maybe[Text]


def _member(field: MessageField) -> tuple[str, object, UnsetType]:
    """The member of a text field that senders set, as msgspec declares it."""
    kind: object = _MaybeKey if field.is_key else _MaybeText
    if field.note:
        kind = Annotated[kind, told(field.note)]
    if field.example:
        kind = Annotated[kind, Meta(examples=[field.example])]
    return field.member, kind, UNSET


if TYPE_CHECKING:

    class _SaidTexts(Struct, kw_only=True):
        """Its members are derived from the table of fields."""

else:
    _SaidTexts = defstruct("_SaidTexts", [_member(each) for each in SENT_TEXTS], kw_only=True)


class SaidMessage(_SaidTexts, kw_only=True):
    """The members that the sender of a message sets."""

    time_to_live_ms: Maybe[Annotated[int, Meta(ge=1, le=INFINITE_MS)]] = UNSET
    scheduled_at: Annotated[Maybe[Moment], told(field_named("scheduled_at").note)] = UNSET
    properties: Maybe[Properties | None] = UNSET
    body: Annotated[
        Json,
        Meta(
            description="The text of a UTF-8 body; any JSON when `body_type` is not `data`.",
            examples=["hello"],
        ),
    ] = UNSET
    body_base64: Annotated[Maybe[str], told("The bytes of a body that is not text.")] = UNSET
    body_type: Annotated[
        Maybe[Literal["data", "value", "sequence"]], told("The AMQP section; `data` by default.")
    ] = UNSET

    def text(self, field: MessageField) -> str | None:
        """The value of a text field; None if it is not set."""
        value: object = getattr(self, field.member)
        return value if isinstance(value, str) else None


class Message(SaidMessage, kw_only=True):
    """A member that neither the sender nor the bus has set is left out."""

    sequence_number: Count
    state: Annotated[str, one_of(*_STATES.values())]
    enqueued_at: Maybe[Moment]
    delivery_count: Annotated[Count, told("The number of failed deliveries before this one.")]
    size_bytes: Count
    expires_at: Maybe[Moment] = UNSET
    dead_letter_reason: Maybe[str] = UNSET
    dead_letter_description: Maybe[str] = UNSET
    dead_letter_source: Annotated[Maybe[str], told("The entity of which it was a dead letter.")] = (
        UNSET
    )
    lock_token: Maybe[str] = UNSET
    locked_until: Maybe[Moment] = UNSET


M = TypeVar("M", bound=Message)


@overload
def message_document(
    entry: Entry, payload: bytes, *, delivery_count: int, is_exact: bool = False
) -> Message: ...


@overload
def message_document(entry: Entry, payload: bytes, *, delivery_count: int, shape: type[M]) -> M: ...


def message_document(
    entry: Entry,
    payload: bytes,
    *,
    delivery_count: int,
    shape: type[Message] = Message,
    is_exact: bool = False,
) -> Message:
    """A message as receivers see it, with the properties that the bus has set.

    `shape` is a type of messages; its additional members keep their defaults. `is_exact`:
    properties have the types that they need to be sent again unchanged.
    """
    document = shape(
        sequence_number=entry.sequence_number,
        state=_STATES.get(entry.state, "active"),
        enqueued_at=_moment(entry.enqueued_at_ms),
        expires_at=_moment(entry.expires_at_ms),
        delivery_count=delivery_count,
        size_bytes=entry.size_bytes,
        dead_letter_reason=given(entry.reason),
        dead_letter_description=given(entry.description),
    )
    _say(document, entry, payload, exact_property if is_exact else property_document)
    return document


def locked_document(delivery: Delivery) -> Message:
    """A message that is locked for the client."""
    document = taken_document(delivery)
    document.lock_token = token_text(delivery.token)
    document.locked_until = _moment(delivery.locked_until_ms)
    return document


def taken_document(delivery: Delivery) -> Message:
    """A message that is removed for the client."""
    return message_document(
        delivery.entry, delivery.payload or b"", delivery_count=delivery.delivery_count
    )


def token_text(token: bytes) -> str:
    """A lock token in the form that all protocols use."""
    return str(UUID(bytes_le=token))


def time_to_live_ms(head: MessageHead) -> int:
    """The sender's time to live; -1 if it set none."""
    # The header's ttl ends at 49.7 days; for longer times SDKs set two timestamps.
    if head.ttl_ms == _UINT_MAX and head.absolute_expiry_ms > head.creation_time_ms >= 0:
        return min(head.absolute_expiry_ms - head.creation_time_ms, INFINITE_MS)
    return head.ttl_ms


def modified_payload(entry: Entry, payload: bytes) -> bytes:
    """The sender's message with the properties that settlements changed. Raises DecodeError."""
    if not entry.modified:
        return payload
    made = Revision()
    made.application = unpack(entry.modified)
    return revise(payload, scan_message(payload), made)


def _say(document: Message, entry: Entry, payload: bytes, said: Callable[[Value], object]) -> None:
    """Add the sender's members."""
    try:
        seen = modified_payload(entry, payload)
        message = decode_message(seen)
    except DecodeError:
        # Sections are kept as they were sent, and this one was not decoded before.
        document.body_base64 = b64encode(payload).decode()
        return
    _say_head(document, message.head)
    if message.application_properties:
        document.properties = {
            name: said(value) for name, value in message.application_properties.items()
        }
    _say_body(document, message.head.body_kind, message.body)


def _say_head(document: Message, head: MessageHead) -> None:
    ttl_ms = time_to_live_ms(head)
    for field in SENT_TEXTS:
        setattr(document, field.member, given(head.text(field.name)))
    document.time_to_live_ms = ttl_ms if ttl_ms > 0 else UNSET
    document.scheduled_at = _moment(head.scheduled_enqueue_ms)
    document.dead_letter_source = given(head.deadletter_source)


def _say_body(document: Message, kind: int, body: object) -> None:
    if kind == codes.AMQP_VALUE:
        document.body_type = "value"
    elif kind == codes.AMQP_SEQUENCE:
        document.body_type = "sequence"
    if document.body_type is not UNSET and not isinstance(body, bytes):
        said = plain(body)
        # Values that are not set are left out, as everywhere in messages.
        document.body = UNSET if said is None else said
        return
    content = body if isinstance(body, bytes) else b""
    try:
        text = content.decode() if document.body_type is UNSET else None
    except UnicodeDecodeError:
        text = None
    if text is None:
        document.body_base64 = b64encode(content).decode()
    else:
        document.body = text


def _moment(moment_ms: int) -> str | UnsetType:
    return format_moment(moment_ms) if NEVER_MS < moment_ms <= _MOMENT_MS_MAX else UNSET
