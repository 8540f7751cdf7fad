"""Messages and small values as bytes, for the records that fragments keep.

Integers are big-endian and of fixed size, texts are UTF-8. Lengths have four bytes; a length of all
ones means that there is no text.
"""

from __future__ import annotations

from typing import Final, final

from shardbus.core.message import NEVER_MS, Message

_NONE: Final = 0xFFFFFFFF


def packed_integer(value: int) -> bytes:
    return value.to_bytes(8, "big", signed=True)


def packed_count(value: int) -> bytes:
    return value.to_bytes(4, "big")


def packed_text(value: str | None) -> bytes:
    if value is None:
        return packed_count(_NONE)
    encoded = value.encode("utf-8", "surrogatepass")
    return packed_count(len(encoded)) + encoded


def pack_messages(messages: list[Message], parts: list[bytes]) -> None:
    parts.append(packed_count(len(messages)))
    for message in messages:
        parts.append(packed_count(len(message.payload)))
        parts.append(message.payload)
        parts.append(packed_text(message.message_id))
        parts.append(packed_text(message.session_id))
        parts.append(packed_text(message.partition_key))
        parts.append(packed_integer(message.ttl_ms))
        if message.subscription_id:
            # Such a message is not scheduled.
            parts.append(packed_integer(-message.subscription_id))
            parts.append(packed_integer(message.past_number))
        else:
            parts.append(packed_integer(message.scheduled_at_ms))


@final
class Unpacker:
    """Reads packed values in the order in which they were packed; ValueError for damaged bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def piece(self, length: int) -> bytes:
        start = self._at
        self._at = start + length
        if self._at > len(self._data):
            raise ValueError("a record of the fragment is truncated")
        return self._data[start : self._at]

    def byte(self) -> int:
        return self.piece(1)[0]

    def integer(self) -> int:
        return int.from_bytes(self.piece(8), "big", signed=True)

    def count(self) -> int:
        return int.from_bytes(self.piece(4), "big")

    def text(self) -> str | None:
        length = self.count()
        return None if length == _NONE else self.piece(length).decode("utf-8", "surrogatepass")

    def messages(self) -> list[Message]:
        return [self._message() for _ in range(self.count())]

    def rest(self) -> bytes:
        return self.piece(len(self._data) - self._at)

    def is_at_end(self) -> bool:
        return self._at == len(self._data)

    def end(self) -> None:
        if not self.is_at_end():
            raise ValueError("a record of the fragment has extra bytes at its end")

    def _message(self) -> Message:
        payload = self.piece(self.count())
        message_id, session_id, partition_key = self.text(), self.text(), self.text()
        ttl_ms, scheduled_at_ms = self.integer(), self.integer()
        subscription_id = past_number = 0
        if scheduled_at_ms < 0:
            subscription_id, scheduled_at_ms = -scheduled_at_ms, NEVER_MS
            past_number = self.integer()
        return Message(
            payload,
            message_id=message_id,
            session_id=session_id,
            partition_key=partition_key,
            ttl_ms=ttl_ms,
            scheduled_at_ms=scheduled_at_ms,
            subscription_id=subscription_id,
            past_number=past_number,
        )
