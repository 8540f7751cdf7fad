"""A message as a client sent it: the values that the bus reads from it, and their limits."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from shardbus.codec.decoder import ValueReader
from shardbus.codec.encoder import NULL, TRUE
from shardbus.core.errors import INVALID_ARGUMENT, TOO_LARGE, Refused
from shardbus.core.limits import KEY_CHARACTERS_MAX
from shardbus.core.message import NEVER_MS, Message
from shardbus.core.namespace.tier import INFINITE_MS
from shardbus.message.canonical import canonical
from shardbus.message.revision import Revision, revise
from shardbus.message.scan import AT_ONCE, MARKS, enter_map, section_code
from shardbus.message.sections import MessageHead, scan_message, split_batch
from shardbus.message.stored import LATEST_MS

# "message headers/properties: single <= 32 KB, total <= 64 KB".
PROPERTY_BYTES_MAX: Final = 32 * 1024
HEADER_BYTES_MAX: Final = 64 * 1024

_UINT_MAX: Final = 0xFFFFFFFF


def read_message(payload: bytes, now_ms: int) -> Message:
    """The values that the bus needs from an encoded message. Raises DecodeError or Refused."""
    head = scan_message(payload)
    if head.is_loose:
        written_anew = canonical(payload)
        return _read_scanned(written_anew, scan_message(written_anew), now_ms)
    return _read_scanned(payload, head, now_ms)


def _read_scanned(payload: bytes, head: MessageHead, now_ms: int) -> Message:
    _check_header(payload, head)
    is_late = 0 < head.scheduled_enqueue_ms <= now_ms
    return Message(
        _marked_anew(payload, head, is_late) if is_late or head.is_marked else payload,
        message_id=_checked(head.message_id, "MessageId"),
        session_id=_checked(head.session_id, "SessionId"),
        partition_key=_checked(head.partition_key, "PartitionKey"),
        ttl_ms=ttl_of(head),
        scheduled_at_ms=_scheduled_at(head.scheduled_enqueue_ms, now_ms),
    )


def read_batch(payload: bytes, now_ms: int, size_max: int, entity: str) -> list[Message]:
    """The values that the bus needs from the messages of a batch. None of them may have more bytes
    than the entity allows. Raises DecodeError or Refused.
    """
    messages: list[Message] = []
    for encoded in split_batch(payload):
        if len(encoded) > size_max:
            message_id = scan_message(encoded).message_id
            told = "" if message_id is None else f", message_id '{message_id[:100]}',"
            raise Refused(
                TOO_LARGE,
                f"Message {len(messages)} of the piece{told} has {len(encoded)} bytes; "
                f"'{entity}' allows at most {size_max}.",
            )
        messages.append(read_message(encoded, now_ms))
    return messages


def _marked_anew(payload: bytes, head: MessageHead, is_late: bool) -> bytes:
    """The payload without the marks that only the bus may set. A message whose scheduled moment has
    passed gets its mark, because it was never scheduled.
    """
    made = Revision()
    for name in MARKS:
        made.annotations[name.decode()] = NULL
    if is_late:
        made.annotations[AT_ONCE.decode()] = TRUE
    return revise(payload, head, made)


def ttl_of(head: MessageHead) -> int:
    """The sender's time to live in milliseconds; -1 if it set none."""
    ttl_ms = head.ttl_ms
    if ttl_ms == _UINT_MAX and head.absolute_expiry_ms >= 0 and head.creation_time_ms >= 0:
        # The header's ttl ends at 49.7 days; for longer times SDKs set two timestamps.
        ttl_ms = min(max(0, head.absolute_expiry_ms - head.creation_time_ms), INFINITE_MS)
    return ttl_ms


def _checked(key: str | None, name: str) -> str | None:
    if key is not None and len(key) > KEY_CHARACTERS_MAX:
        raise Refused(
            INVALID_ARGUMENT,
            f"{name} has {len(key)} characters; at most {KEY_CHARACTERS_MAX} are allowed.",
        )
    return key


def _scheduled_at(moment_ms: int, now_ms: int) -> int:
    if moment_ms <= now_ms:
        return NEVER_MS
    if moment_ms > LATEST_MS:
        raise Refused(
            INVALID_ARGUMENT,
            "ScheduledEnqueueTimeUtc is after the year 9999: use an earlier moment.",
        )
    return moment_ms


def _check_header(payload: bytes, head: MessageHead) -> None:
    annotations: i64 = head.message_annotations_length
    properties: i64 = head.application_properties_length
    total: i64 = annotations + properties + head.properties_length
    if total > HEADER_BYTES_MAX:
        raise Refused(
            INVALID_ARGUMENT,
            f"The properties and annotations of the message have {int(total)} bytes; at most "
            f"{HEADER_BYTES_MAX} are allowed.",
        )
    # A section that is not longer than one entry may be needs no check of its entries.
    if annotations > PROPERTY_BYTES_MAX:
        _check_entries(payload, head.message_annotations_offset, annotations)
    if properties > PROPERTY_BYTES_MAX:
        _check_entries(payload, head.application_properties_offset, properties)


def _check_entries(payload: bytes, offset: i64, length: i64) -> None:
    reader = ValueReader(payload, offset, offset + length)
    section_code(reader)
    for _ in range(enter_map(reader) >> 1):
        start: i64 = reader.position
        reader.skip()
        reader.skip()
        size: i64 = reader.position - start
        if size > PROPERTY_BYTES_MAX:
            raise Refused(
                INVALID_ARGUMENT,
                f"A property of the message has {int(size)} bytes; at most "
                f"{PROPERTY_BYTES_MAX} are allowed.",
            )
