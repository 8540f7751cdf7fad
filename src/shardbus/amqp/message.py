"""Messages as the wire carries them: what a broker needs to read, and what it stamps on them."""

from collections.abc import Mapping
from typing import Final, final

from shardbus.amqp.types import Value

BATCH_FORMAT: Final = 0x80013700


@final
class MessageHead:
    """What the bus reads from a message; -1 and None mean that the sender said nothing.

    Offsets and lengths point into the scanned payload and include the section's descriptor.
    """

    durable: bool
    priority: int
    ttl_ms: int
    delivery_count: int
    partition_key: str | None
    via_partition_key: str | None
    scheduled_enqueue_ms: int
    # message-id as text whatever its type (uuid in canonical form, binary as hex), and as encoded.
    message_id: str | None
    message_id_raw: bytes
    user_id: bytes | None
    to: str | None
    subject: str | None
    reply_to: str | None
    correlation_id: str | None
    correlation_id_raw: bytes
    content_type: str | None
    content_encoding: str | None
    absolute_expiry_ms: int
    creation_time_ms: int
    session_id: str | None
    group_sequence: int
    reply_to_session_id: str | None
    header_offset: int
    header_length: int
    message_annotations_offset: int
    message_annotations_length: int
    properties_offset: int
    properties_length: int
    application_properties_offset: int
    application_properties_length: int
    body_offset: int
    body_length: int
    footer_offset: int
    footer_length: int


@final
class Stamp:
    """What the bus adds to a message for one receiver; -1 leaves an annotation out.

    `message_state` is written when it is not -1 (0 active, 1 deferred, 2 scheduled).
    `absolute_expiry_ms` rewrites the property of that name when it is not -1.
    """

    def __init__(  # noqa: PLR0913 - the annotations of one delivery, given by keyword
        self,
        *,
        sequence_number: int,
        enqueued_time_ms: int,
        delivery_count: int = 0,
        enqueue_sequence_number: int = -1,
        locked_until_ms: int = -1,
        partition_id: int = -1,
        message_state: int = -1,
        absolute_expiry_ms: int = -1,
    ) -> None:
        self.sequence_number = sequence_number
        self.enqueued_time_ms = enqueued_time_ms
        self.delivery_count = delivery_count
        self.enqueue_sequence_number = enqueue_sequence_number
        self.locked_until_ms = locked_until_ms
        self.partition_id = partition_id
        self.message_state = message_state
        self.absolute_expiry_ms = absolute_expiry_ms


def scan_message(payload: bytes) -> MessageHead:
    """Read one encoded message in one pass, sections in any order. Raises DecodeError."""
    raise NotImplementedError


def split_batch(payload: bytes) -> list[bytes]:
    """The encoded messages inside a BATCH_FORMAT payload, at least one. Raises DecodeError."""
    raise NotImplementedError


def encode_delivery(
    payload: bytes,
    head: MessageHead,
    stamp: Stamp,
    overlay: Mapping[str, Value] | None = None,
) -> bytes:
    """The message as a receiver gets it: the sender's sections under our header and annotations.

    `head` must be the scan of `payload`. `overlay` entries are merged into the application
    properties; None values are left out.
    """
    raise NotImplementedError


@final
class Message:
    """A decoded message of a request/response node."""

    head: MessageHead
    # Keys as text, values wrapped as decoded.
    application_properties: dict[str, Value]
    # The amqp-value, the data as bytes, the sequence as list; None when there is no body.
    body: Value


def decode_message(payload: bytes) -> Message:
    """Decode a whole message. Raises DecodeError."""
    raise NotImplementedError


def build_message(
    *,
    body: Value = None,
    application_properties: Mapping[str, Value] | None = None,
    message_id: Value = None,
    correlation_id_raw: bytes = b"",
    to: str | None = None,
    reply_to: str | None = None,
) -> bytes:
    """A message with properties, application properties and an amqp-value body.

    `correlation_id_raw` is an encoded value (a request's `message_id_raw`), echoed byte for byte.
    """
    raise NotImplementedError
