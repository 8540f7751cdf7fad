"""Messages as the wire carries them: batches, requests and responses."""

from collections.abc import Mapping
from typing import Final, final

from mypy_extensions import i64

from shardbus.codec import codes
from shardbus.codec.decoder import ValueReader, text_map_of
from shardbus.codec.encoder import (
    NULL,
    compound,
    encode,
    encode_fields,
    encode_symbol,
    encode_text,
    u32,
)
from shardbus.codec.errors import DecodeError
from shardbus.codec.limits import BATCH_MESSAGES_MAX
from shardbus.codec.types import Value
from shardbus.message.delivery import FIRST_HEADER, Stamp, encode_delivery
from shardbus.message.scan import (
    PARTITION_KEY,
    MessageHead,
    scan_message,
    section_code,
    skip_binary,
)

__all__ = [
    "BATCH_FORMAT",
    "SECTION_HEAD_BYTES",
    "SECTION_START",
    "DecodedMessage",
    "MessageHead",
    "Stamp",
    "build_message",
    "decode_message",
    "drop_body",
    "encode_batch",
    "encode_data_message",
    "encode_delivery",
    "scan_message",
    "section_head",
    "split_batch",
]

BATCH_FORMAT: Final = 0x80013700
# A message in a batch is the content of a data section: this, its size in four bytes, and itself.
SECTION_START: Final = b"\x00\x53\x75\xb0"
SECTION_HEAD_BYTES: Final = 8
# A message needs a section: empty properties.
_NO_PROPERTIES: Final = b"\x00\x53\x73\x45"


def split_batch(payload: bytes) -> list[bytes]:
    """The encoded messages inside a BATCH_FORMAT payload, at least one. Raises DecodeError.

    Each data section is one message; other sections of the envelope are ignored.
    """
    messages: list[bytes] = []
    size: i64 = len(payload)
    reader = ValueReader(payload, 0, size)
    while reader.position < size:
        code: i64 = section_code(reader)
        if code == codes.AMQP_SEQUENCE or code == codes.AMQP_VALUE:
            raise DecodeError("the batch has a section that is not a data section")
        if code == codes.DATA:
            length: i64 = skip_binary(reader)
            if len(messages) >= BATCH_MESSAGES_MAX:
                raise DecodeError(f"the batch has more than {BATCH_MESSAGES_MAX} messages")
            messages.append(payload[reader.position - length : reader.position])
        else:
            reader.skip()
    if not messages:
        raise DecodeError("the batch has no message")
    return messages


def encode_batch(messages: list[bytes]) -> bytes:
    """The BATCH_FORMAT payload that carries these encoded messages."""
    parts: list[bytes] = []
    for message in messages:
        parts.append(section_head(len(message)))
        parts.append(message)
    return b"".join(parts)


def section_head(size_bytes: int) -> bytes:
    """What comes before a message of this size in a batch."""
    return SECTION_START + u32(size_bytes)


def drop_body(payload: bytes) -> bytes:
    """The message without its body, which may leave it without any content."""
    head = scan_message(payload)
    rest = payload[: head.body_offset] + payload[head.body_offset + head.body_length :]
    return rest or _NO_PROPERTIES


@final
class DecodedMessage:
    """A decoded message: a request or a response, or one whose contents are examined."""

    def __init__(
        self, head: MessageHead, application_properties: dict[str, Value], body: Value
    ) -> None:
        self.head = head
        # Names as text, values wrapped as decoded.
        self.application_properties = application_properties
        # The amqp-value, or all data sections as one bytes, or all sequences as one list; None
        # without a body.
        self.body = body


def decode_message(payload: bytes) -> DecodedMessage:
    """Decode a whole message. Raises DecodeError."""
    head = scan_message(payload)
    return DecodedMessage(head, decode_application_properties(payload, head), _body(payload, head))


def decode_application_properties(payload: bytes, head: MessageHead) -> dict[str, Value]:
    """The application properties by name, values wrapped. Raises DecodeError."""
    if head.application_properties_length == 0:
        return {}
    offset: i64 = head.application_properties_offset
    reader = ValueReader(payload, offset, offset + head.application_properties_length)
    section_code(reader)
    entries = text_map_of(reader.value())
    assert entries is not None
    return entries


def build_message(
    *,
    body: Value = None,
    application_properties: Mapping[str, Value] | None = None,
    message_id: Value = None,
    correlation_id_raw: bytes = b"",
    to: str | None = None,
    reply_to: str | None = None,
) -> bytes:
    """A message with header, properties, application properties and an amqp-value body.

    `correlation_id_raw` is an encoded value (a request's `message_id_raw`), echoed byte for byte.
    """
    properties = [
        encode(message_id),
        NULL,
        encode_text(to),
        NULL,
        encode_text(reply_to),
        correlation_id_raw or NULL,
    ]
    entries: list[bytes] = []
    for name, value in (application_properties or {}).items():
        entries.append(encode_text(name))
        entries.append(encode(value))
    return b"".join(
        [
            FIRST_HEADER,
            encode_fields(codes.PROPERTIES, properties),
            b"\x00\x53\x74" + compound(codes.MAP8, entries),
            b"\x00\x53\x77" + encode(body),
        ]
    )


def _body(payload: bytes, head: MessageHead) -> Value:
    if head.body_length == 0:
        return None
    end: i64 = head.body_offset + head.body_length
    reader = ValueReader(payload, head.body_offset, end)
    if head.body_kind == codes.AMQP_VALUE:
        section_code(reader)
        value = reader.value()
        if reader.position != end:
            raise DecodeError("the size of an amqp-value does not match its contents")
        return value
    chunks: list[bytes] = []
    items: list[Value] = []
    while reader.position < end:
        section_code(reader)
        value = reader.value()
        if isinstance(value, bytes):
            chunks.append(value)
        elif isinstance(value, list):
            items.extend(value)
    return b"".join(chunks) if head.body_kind == codes.DATA else items


def encode_data_message(
    content: bytes,
    *,
    message_id: str | None = None,
    session_id: str | None = None,
    partition_key: str | None = None,
) -> bytes:
    """A plain message with one data section, as a simple client sends it."""
    parts: list[bytes] = []
    if partition_key is not None:
        entry = [encode_symbol(PARTITION_KEY.decode()), encode_text(partition_key)]
        parts.append(b"\x00\x53\x72" + compound(codes.MAP8, entry))
    if message_id is not None or session_id is not None:
        fields = [encode_text(message_id), *[NULL] * 9, encode_text(session_id)]
        parts.append(encode_fields(codes.PROPERTIES, fields))
    parts.append(b"\x00\x53\x75" + encode(content))
    return b"".join(parts)
