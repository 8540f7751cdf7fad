"""What fragments promise and decide about transactions, as the records that keep it.

Integers are big-endian and of fixed size, texts UTF-8; lengths have four bytes, and the length of
a text that is not there is all ones.
"""

from __future__ import annotations

from typing import Final, final

from shardbus.core.command import Home, Settle
from shardbus.core.message import Message

_NONE: Final = 0xFFFFFFFF


@final
class Promise:
    """A settlement that is promised: of which messages, and as what command.

    `tokens` and `deadlines_ms` run parallel to `numbers` as long as the locks that were held are
    known; after a restart both are empty.
    """

    def __init__(
        self, command: Settle, numbers: list[int], tokens: list[bytes], deadlines_ms: list[int]
    ) -> None:
        self.command = command
        self.numbers = numbers
        self.tokens = tokens
        self.deadlines_ms = deadlines_ms


@final
class Prepared:
    """All that a fragment has promised to do, should its transaction be committed."""

    def __init__(
        self, decider: Home, expires_at_ms: int, messages: list[Message], promises: list[Promise]
    ) -> None:
        self.decider = decider
        self.expires_at_ms = expires_at_ms
        self.messages = messages
        self.promises = promises
        self.size_bytes = 0


@final
class Decision:
    """Whether a transaction is committed, since when, and who else is to be told."""

    def __init__(self, is_commit: bool, at_ms: int, others: list[Home]) -> None:
        self.is_commit = is_commit
        self.at_ms = at_ms
        self.others = others


def pack_prepared(prepared: Prepared) -> bytes:
    parts = [_home(prepared.decider), _integer(prepared.expires_at_ms)]
    parts.append(_count(len(prepared.messages)))
    for message in prepared.messages:
        _pack_message(message, parts)
    parts.append(_count(len(prepared.promises)))
    for promise in prepared.promises:
        _pack_promise(promise, parts)
    return b"".join(parts)


def unpack_prepared(data: bytes) -> Prepared:
    """What `pack_prepared` packed; ValueError when it is something else."""
    reader = _Reader(data)
    decider, expires_at_ms = reader.home(), reader.integer()
    messages = [_unpack_message(reader) for _ in range(reader.count())]
    promises = [_unpack_promise(reader) for _ in range(reader.count())]
    reader.end()
    prepared = Prepared(decider, expires_at_ms, messages, promises)
    prepared.size_bytes = len(data)
    return prepared


def pack_decision(decision: Decision) -> bytes:
    parts = [b"\x01" if decision.is_commit else b"\x00", _integer(decision.at_ms)]
    parts.append(_count(len(decision.others)))
    parts += [_home(home) for home in decision.others]
    return b"".join(parts)


def unpack_decision(data: bytes) -> Decision:
    """What `pack_decision` packed; ValueError when it is something else."""
    reader = _Reader(data)
    is_commit, at_ms = reader.byte() == 1, reader.integer()
    others = [reader.home() for _ in range(reader.count())]
    reader.end()
    return Decision(is_commit, at_ms, others)


def _pack_message(message: Message, parts: list[bytes]) -> None:
    parts.append(_count(len(message.payload)))
    parts.append(message.payload)
    parts.append(_text(message.message_id))
    parts.append(_text(message.session_id))
    parts.append(_text(message.partition_key))
    parts.append(_integer(message.ttl_ms))
    parts.append(_integer(message.scheduled_at_ms))


def _unpack_message(reader: _Reader) -> Message:
    payload = reader.piece(reader.count())
    message_id, session_id, partition_key = reader.text(), reader.text(), reader.text()
    ttl_ms, scheduled_at_ms = reader.integer(), reader.integer()
    return Message(
        payload,
        message_id=message_id,
        session_id=session_id,
        partition_key=partition_key,
        ttl_ms=ttl_ms,
        scheduled_at_ms=scheduled_at_ms,
    )


def _pack_promise(promise: Promise, parts: list[bytes]) -> None:
    command = promise.command
    parts.append(command.how.to_bytes(1, "big"))
    parts.append(_text(command.reason))
    parts.append(_text(command.description))
    parts.append(_count(len(command.modified)))
    parts.append(command.modified)
    parts.append(_integer(command.delay_ms))
    parts.append(_count(len(promise.numbers)))
    parts += [_integer(number) for number in promise.numbers]


def _unpack_promise(reader: _Reader) -> Promise:
    how, reason, description = reader.byte(), reader.text(), reader.text()
    modified, delay_ms = reader.piece(reader.count()), reader.integer()
    numbers = [reader.integer() for _ in range(reader.count())]
    command = Settle(
        how, [], reason=reason, description=description, modified=modified, delay_ms=delay_ms
    )
    return Promise(command, numbers, [], [])


def _integer(value: int) -> bytes:
    return value.to_bytes(8, "big", signed=True)


def _count(value: int) -> bytes:
    return value.to_bytes(4, "big")


def _home(home: Home) -> bytes:
    return _integer(home[0]) + _integer(home[1])


def _text(value: str | None) -> bytes:
    if value is None:
        return _count(_NONE)
    encoded = value.encode("utf-8", "surrogatepass")
    return _count(len(encoded)) + encoded


@final
class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def piece(self, length: int) -> bytes:
        start = self._at
        self._at = start + length
        if self._at > len(self._data):
            raise ValueError("the record of a transaction is cut short")
        return self._data[start : self._at]

    def byte(self) -> int:
        return self.piece(1)[0]

    def integer(self) -> int:
        return int.from_bytes(self.piece(8), "big", signed=True)

    def count(self) -> int:
        return int.from_bytes(self.piece(4), "big")

    def home(self) -> Home:
        return self.integer(), self.integer()

    def text(self) -> str | None:
        length = self.count()
        return None if length == _NONE else self.piece(length).decode("utf-8", "surrogatepass")

    def end(self) -> None:
        if self._at < len(self._data):
            raise ValueError("something follows the record of a transaction")
