"""A stored message as one receiver gets it: the sender's sections with the bus's header and
annotations.
"""

from collections.abc import Mapping
from struct import Struct
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from shardbus.codec import codes
from shardbus.codec.decoder import ValueReader
from shardbus.codec.encoder import (
    FALSE,
    NULL,
    TRUE,
    compound,
    encode_symbol,
    encode_text,
    encode_uint,
    u32,
    u64,
)
from shardbus.core.message_fields import field_named
from shardbus.message.scan import MessageHead, enter_map


@final
@mypyc_attr(acyclic=True, free_list_len=1)
class Stamp:
    """What the bus adds to a message for one receiver; -1 and None leave an annotation out.

    `message_state` is 0 active, 1 deferred, 2 scheduled. `ttl_ms` replaces the sender's in the
    header. `absolute_expiry_ms` sets the property of that name in the sender's properties, which
    otherwise stay as they are. SDKs compute the time to live as absolute expiry minus creation time
    for a sender that gave both, and for a message that lives longer than the header can express
    (`is_long`). In these cases the creation time is set to the enqueued time. `lock_token` goes
    into the delivery annotations: empty for a message that is not locked, None to leave them out.
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
        ttl_ms: int = -1,
        absolute_expiry_ms: int = -1,
        is_long: bool = False,
        deadletter_source: str | None = None,
        lock_token: bytes | None = None,
    ) -> None:
        self.sequence_number = sequence_number
        self.enqueued_time_ms = enqueued_time_ms
        self.delivery_count = delivery_count
        self.enqueue_sequence_number = enqueue_sequence_number
        self.locked_until_ms = locked_until_ms
        self.partition_id = partition_id
        self.message_state = message_state
        self.ttl_ms = ttl_ms
        self.absolute_expiry_ms = absolute_expiry_ms
        self.is_long = is_long
        self.deadletter_source = deadletter_source
        self.lock_token = lock_token


def _key(name: str, *codes_after: int) -> bytes:
    """The annotation of a field, encoded, and what its value begins with."""
    return encode_symbol(field_named(name).key) + bytes(codes_after)


_SMALL: Final = [bytes([number]) for number in range(256)]
_SEQUENCE_NUMBER: Final = _key("sequence_number", codes.LONG)
_ENQUEUED_TIME: Final = _key("enqueued_at", codes.TIMESTAMP)
_ENQUEUE_SEQUENCE_NUMBER: Final = _key("enqueued_sequence_number", codes.LONG)
_LOCKED_UNTIL: Final = _key("locked_until", codes.TIMESTAMP)
_PARTITION_ID: Final = _key("partition_id", codes.SHORT)
_MESSAGE_STATE: Final = _key("state", codes.SMALLINT)
_DEADLETTER_SOURCE: Final = _key("dead_letter_source")
# durable, priority, ttl and first-acquirer null, delivery-count 0.
FIRST_HEADER: Final = b"\x00\x53\x70\xc0\x06\x05\x40\x40\x40\x40\x43"
# By the scan's value of a flag: 0, 1 and -1.
_FLAGS: Final = [FALSE, TRUE, NULL]
_HEADER_PREFIX: Final = b"\x00\x53\x70\xc0"
_LOCK_TOKEN: Final = _key("lock_token")
_OF_GUID: Final = Struct("<IHH8s").unpack
_AS_UUID: Final = Struct(">IHH8s").pack
# Empty delivery annotations, and delivery annotations with only a lock token, which follows.
_NO_DELIVERY_ANNOTATIONS: Final = b"\x00\x53\x71\xc1\x01\x00"
_LOCKED: Final = b"\x00\x53\x71\xc1\x24\x02" + _LOCK_TOKEN + b"\x98"
_ANNOTATIONS_PREFIX: Final = b"\x00\x53\x72"
# A properties section with only a message-id of 32 characters.
_PROPERTIES_OF_ID: Final = b"\x00\x53\x73\xc0\x23\x01"
_MESSAGE_ID_PLACE: Final = field_named("message_id").place
_ABSOLUTE_EXPIRY_PLACE: Final = field_named("expires_at").place
_CREATION_TIME_PLACE: Final = field_named("creation_time").place


def encode_delivery(
    payload: bytes,
    head: MessageHead,
    stamp: Stamp,
    overlay: Mapping[str, bytes] | None = None,
) -> bytes:
    """The message as a receiver gets it: the sender's sections with the bus's header and
    annotations.

    `head` must be the scan of `payload`. `overlay` entries (encoded values) replace or add
    application properties; an empty value removes one. A message without a message-id gets one.
    """
    parts = [_envelope(payload, head, stamp), _ANNOTATIONS_PREFIX, b""]
    count: i64 = _stamp_annotations(parts, stamp)
    if head.kept_annotations_count > 0:
        parts.append(head.kept_annotations)
        count += head.kept_annotations_count
    parts[2] = _map_head(parts, count)
    is_untouched = overlay is None and stamp.absolute_expiry_ms < 0 and head.bare_offset >= 0
    if is_untouched and head.message_id_raw:
        parts.append(payload[head.bare_offset :])
    elif is_untouched and head.properties_length == 0:
        parts.append(_PROPERTIES_OF_ID)
        parts.append(_identifier(stamp))
        parts.append(payload[head.bare_offset :])
    else:
        _append_bare(parts, payload, head, stamp, overlay)
    return b"".join(parts)


def _identifier(stamp: Stamp) -> bytes:
    """The encoded message-id of a message whose sender gave none; the same at every delivery.

    The JavaScript SDK sends no message-id, and fails to settle a message without one.
    """
    digits = u64(stamp.enqueued_time_ms) + u64(stamp.sequence_number)
    return b"\xa1\x20" + digits.hex().encode()


def _envelope(payload: bytes, head: MessageHead, stamp: Stamp) -> bytes:
    """Header and delivery annotations."""
    token = stamp.lock_token
    header = _header(head, stamp)
    if token is None:
        return header
    if head.delivery_annotations_length > 0:
        return header + _annotated(payload, head, token)
    return header + _LOCKED + guid(token) if token else header + _NO_DELIVERY_ANNOTATIONS


def _annotated(payload: bytes, head: MessageHead, token: bytes) -> bytes:
    """The sender's delivery annotations with the bus's lock token in place of the sender's."""
    start: i64 = head.delivery_annotations_offset
    reader = ValueReader(payload, start, start + head.delivery_annotations_length)
    reader.u8()
    reader.descriptor_code()
    parts: list[bytes] = []
    for _ in range(enter_map(reader) >> 1):
        key = reader.raw()
        value = reader.raw()
        if key != _LOCK_TOKEN:
            parts.append(key)
            parts.append(value)
    if token:
        parts.append(_LOCK_TOKEN)
        parts.append(b"\x98" + guid(token))
    return b"\x00\x53\x71" + compound(codes.MAP8, parts)


def guid(token: bytes) -> bytes:
    """A lock token as an AMQP uuid: SDKs read the delivery tag as a GUID, whose first three fields
    have the opposite byte order.
    """
    return _AS_UUID(*_OF_GUID(token))


def _header(head: MessageHead, stamp: Stamp) -> bytes:
    if stamp.delivery_count == 0 and head.header_length == 0 and stamp.ttl_ms < 0:
        return FIRST_HEADER
    priority = NULL if head.priority < 0 else b"\x50" + _SMALL[head.priority]
    ttl_ms: i64 = head.ttl_ms if stamp.ttl_ms < 0 else stamp.ttl_ms
    ttl = NULL if ttl_ms < 0 else encode_uint(ttl_ms)
    durable, first = _FLAGS[head.durable], _FLAGS[head.first_acquirer]
    count = encode_uint(stamp.delivery_count)
    size: i64 = 3 + len(priority) + len(ttl) + len(count)
    return b"".join([_HEADER_PREFIX, _SMALL[size], b"\x05", durable, priority, ttl, first, count])


def _stamp_annotations(parts: list[bytes], stamp: Stamp) -> i64:
    """Append the entries of the stamp; returns how many map elements they are."""
    parts.append(_SEQUENCE_NUMBER)
    parts.append(u64(stamp.sequence_number))
    parts.append(_ENQUEUED_TIME)
    parts.append(u64(stamp.enqueued_time_ms))
    count: i64 = 4
    if stamp.locked_until_ms >= 0:
        parts.append(_LOCKED_UNTIL)
        parts.append(u64(stamp.locked_until_ms))
        count += 2
    if stamp.enqueue_sequence_number >= 0:
        parts.append(_ENQUEUE_SEQUENCE_NUMBER)
        parts.append(u64(stamp.enqueue_sequence_number))
        count += 2
    if stamp.partition_id >= 0:
        parts.append(_PARTITION_ID)
        parts.append(stamp.partition_id.to_bytes(2, "big"))
        count += 2
    if stamp.message_state >= 0:
        parts.append(_MESSAGE_STATE)
        parts.append(_SMALL[stamp.message_state])
        count += 2
    if stamp.deadletter_source is not None:
        parts.append(_DEADLETTER_SOURCE)
        parts.append(encode_text(stamp.deadletter_source))
        count += 2
    return count


def _map_head(parts: list[bytes], count: i64) -> bytes:
    """Constructor, size and count of the map whose entries follow the first three parts."""
    size: i64 = -len(parts[0]) - len(parts[1])
    for part in parts:
        size += len(part)
    if size < 255 and count < 256:
        return b"\xc1" + _SMALL[size + 1] + _SMALL[count]
    return b"\xd1" + u32(size + 4) + u32(count)


def _append_bare(
    parts: list[bytes],
    payload: bytes,
    head: MessageHead,
    stamp: Stamp,
    overlay: Mapping[str, bytes] | None,
) -> None:
    """Append the sender's sections in the specification's order, whatever order they came in."""
    properties = _slice(payload, head.properties_offset, head.properties_length)
    if not head.message_id_raw:
        properties = with_field(properties, codes.PROPERTIES, _MESSAGE_ID_PLACE, _identifier(stamp))
    if stamp.absolute_expiry_ms >= 0:
        moment = b"\x83" + u64(stamp.absolute_expiry_ms)
        properties = with_field(properties, codes.PROPERTIES, _ABSOLUTE_EXPIRY_PLACE, moment)
        if stamp.is_long or (head.absolute_expiry_ms >= 0 and head.creation_time_ms >= 0):
            created = b"\x83" + u64(stamp.enqueued_time_ms)
            properties = with_field(properties, codes.PROPERTIES, _CREATION_TIME_PLACE, created)
    application = _slice(
        payload, head.application_properties_offset, head.application_properties_length
    )
    if overlay is not None:
        application = overlaid(application, overlay)
    parts.append(properties)
    parts.append(application)
    parts.append(_slice(payload, head.body_offset, head.body_length))
    parts.append(_slice(payload, head.footer_offset, head.footer_length))


def _slice(payload: bytes, offset: i64, length: i64) -> bytes:
    return payload[offset : offset + length]


def with_field(section: bytes, code: i64, index: int, value: bytes) -> bytes:
    """A section that is a list (or a new one) with one field set to an encoded value."""
    fields: list[bytes] = []
    if section:
        reader = ValueReader(section, 0, len(section))
        reader.enter_described_list()
        while reader.fields_left > 0:
            reader.fields_left -= 1
            fields.append(reader.raw())
    while len(fields) <= index:
        fields.append(NULL)
    fields[index] = value
    return b"\x00\x53" + _SMALL[code] + compound(codes.LIST8, fields)


def overlaid(section: bytes, overlay: Mapping[str, bytes]) -> bytes:
    """A section of application properties (or a new one) with the overlay; empty values remove
    entries.
    """
    parts: list[bytes] = []
    if section:
        reader = ValueReader(section, 3 if section[1] == codes.SMALLULONG else 10, len(section))
        for _ in range(enter_map(reader) >> 1):
            start: i64 = reader.position
            name = reader.text_of_code(reader.u8())
            key = section[start : reader.position]
            raw = reader.raw()
            if name not in overlay:
                parts.append(key)
                parts.append(raw)
    for name, value in overlay.items():
        if value:
            parts.append(encode_text(name))
            parts.append(value)
    return b"\x00\x53\x74" + compound(codes.MAP8, parts) if parts else b""
