"""What a test wants to know of a delivered message."""

from __future__ import annotations

from typing import NamedTuple

from shardbus.codec.decoder import ValueReader
from shardbus.codec.types import Symbol, Value, integer_of
from shardbus.message.scan import MessageHead, section_code
from shardbus.message.sections import decode_message


class Seen(NamedTuple):
    """A delivered message: its body, and what the bus says about it."""

    body: bytes
    sequence_number: int
    partition_id: int | None
    partition_key: str | None
    delivery_count: int

    @property
    def fragment(self) -> int:
        return self.sequence_number >> 48


def seen(payload: bytes) -> Seen:
    """Read a delivery with a data body."""
    message = decode_message(payload)
    annotations = annotations_of(payload, message.head)
    number = integer_of(annotations["x-opt-sequence-number"])
    assert isinstance(message.body, bytes)
    assert number is not None
    return Seen(
        message.body,
        number,
        integer_of(annotations.get("x-opt-partition-id")),
        message.head.partition_key,
        message.head.delivery_count,
    )


def annotations_of(payload: bytes, head: MessageHead) -> dict[str, Value]:
    """The message annotations by name."""
    start = head.message_annotations_offset
    reader = ValueReader(payload, start, start + head.message_annotations_length)
    section_code(reader)
    found = reader.value()
    assert isinstance(found, dict)
    return {key.value: value for key, value in found.items() if isinstance(key, Symbol)}
