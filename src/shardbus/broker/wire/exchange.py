"""Answers as the fields of a frame.

The codecs of frequent answers are written by hand, with the same result as the derived ones. That
of a `Delivery` has no derived one to compare with: its payload is written in place of its entry's.
"""
# Compiled by mypyc.

from __future__ import annotations

from struct import Struct
from typing import Final, final, get_args

from shardbus.broker.wire.derived import Codec, Codecs, Tagged
from shardbus.broker.wire.fields import (
    HAS_FIFTH,
    HAS_FIRST,
    HAS_FOURTH,
    HAS_SECOND,
    HAS_THIRD,
    LENGTH,
    FieldReader,
    FieldWriter,
    WireError,
)
from shardbus.core.errors import (
    ALL_KINDS,
    REPARTITIONING,
    SERVER_BUSY,
    ErrorKind,
    Refused,
    Unavailable,
)
from shardbus.core.fragment.command import Reply
from shardbus.core.message import DELAYED, NEVER_MS, TRANSFER_DEAD_LETTER_LINE, Entry
from shardbus.core.messages.command import Delivery, Received, Sent, Settled

_SENT: Final = Struct(">qII")
_ENTRY: Final = Struct(">BqqqIIBBI")
_ENTRY_FLAGS: Final = HAS_FIRST | HAS_SECOND | HAS_THIRD | HAS_FOURTH | HAS_FIFTH
_LOCK: Final = Struct(">Iq")

_REFUSED: Final = 254
_UNAVAILABLE: Final = 255

_KIND_OF: Final[dict[str, ErrorKind]] = {kind.name: kind for kind in ALL_KINDS}


@final
class _SentCodec(Codec):
    def put(self, writer: FieldWriter, value: object) -> None:
        assert isinstance(value, Sent)
        writer.parts.append(_SENT.pack(value.first, value.count, len(value.duplicates)))
        for position in value.duplicates:
            writer.count(position)

    def take(self, reader: FieldReader) -> Sent:
        first, count = reader.i64(), reader.u32()
        duplicates = [reader.u32() for _ in range(reader.count(LENGTH.size))]
        return Sent(first, count, duplicates)


@final
class _EntryCodec(Codec):
    def put(self, writer: FieldWriter, value: object) -> None:
        assert isinstance(value, Entry)
        self.put_with(writer, value, value.payload)

    def put_with(self, writer: FieldWriter, entry: Entry, payload: bytes | None) -> None:
        flags = 0 if payload is None else HAS_FIRST
        if entry.reason is not None:
            flags |= HAS_SECOND
        if entry.description is not None:
            flags |= HAS_THIRD
        if entry.session_id is not None:
            flags |= HAS_FOURTH
        if entry.delayed_until_ms != NEVER_MS:
            flags |= HAS_FIFTH
        writer.parts.append(
            _ENTRY.pack(
                flags,
                entry.sequence_number,
                entry.enqueued_at_ms,
                entry.expires_at_ms,
                entry.size_bytes,
                entry.delivery_count,
                entry.line,
                entry.state,
                len(entry.modified),
            )
        )
        writer.parts.append(entry.modified)
        if payload is not None:
            writer.data(payload)
        if flags > HAS_FIRST:
            writer.optional_texts(entry.reason, entry.description)
            writer.optional_texts(entry.session_id, None)
            if flags & HAS_FIFTH:
                writer.i64(entry.delayed_until_ms)

    def take(self, reader: FieldReader) -> Entry:
        flags: int
        number: int
        enqueued_at_ms: int
        expires_at_ms: int
        size_bytes: int
        delivery_count: int
        line: int
        state: int
        length: int
        start = reader.step(_ENTRY.size)
        (
            flags, number, enqueued_at_ms, expires_at_ms, size_bytes, delivery_count, line, state,
            length,
        ) = _ENTRY.unpack_from(reader.buffer, start)  # fmt: skip
        reader.check_bits(flags, _ENTRY_FLAGS, "Entry")
        reader.check_small(line, TRANSFER_DEAD_LETTER_LINE, "line")
        reader.check_small(state, DELAYED, "state")
        modified = reader.fixed(length)
        payload = reader.data() if flags & HAS_FIRST else None
        reason = reader.text() if flags & HAS_SECOND else None
        description = reader.text() if flags & HAS_THIRD else None
        session_id = reader.text() if flags & HAS_FOURTH else None
        delayed_until_ms = reader.i64() if flags & HAS_FIFTH else NEVER_MS
        return Entry(
            number,
            payload,
            size_bytes,
            enqueued_at_ms=enqueued_at_ms,
            expires_at_ms=expires_at_ms,
            delivery_count=delivery_count,
            line=line,
            state=state,
            reason=reason,
            description=description,
            modified=modified,
            session_id=session_id,
            delayed_until_ms=delayed_until_ms,
        )


@final
class _DeliveryCodec(Codec):
    def put(self, writer: FieldWriter, value: object) -> None:
        assert isinstance(value, Delivery)
        _ENTRIES.put_with(writer, value.entry, value.payload)
        writer.parts.append(_LOCK.pack(value.delivery_count, value.locked_until_ms))
        writer.data(value.token)

    def take(self, reader: FieldReader) -> Delivery:
        delivery_count: int
        locked_until_ms: int
        entry = _ENTRIES.take(reader)
        start = reader.step(_LOCK.size)
        delivery_count, locked_until_ms = _LOCK.unpack_from(reader.buffer, start)
        return Delivery(entry, entry.payload, delivery_count, reader.data(), locked_until_ms)


@final
class _ReceivedCodec(Codec):
    def put(self, writer: FieldWriter, value: object) -> None:
        assert isinstance(value, Received)
        writer.u8(value.has_more)
        writer.count(len(value.deliveries))
        for delivery in value.deliveries:
            _DELIVERIES.put(writer, delivery)

    def take(self, reader: FieldReader) -> Received:
        has_more = reader.bits(HAS_FIRST, "Received") != 0
        count = reader.count(_DELIVERIES.size_min)
        return Received([_DELIVERIES.take(reader) for _ in range(count)], has_more)


@final
class _SettledCodec(Codec):
    def put(self, writer: FieldWriter, value: object) -> None:
        assert isinstance(value, Settled)
        writer.data(bytes(value.lost))

    def take(self, reader: FieldReader) -> Settled:
        return Settled(reader.flags())


_SENTS: Final = _SentCodec(_SENT.size)
_ENTRIES: Final = _EntryCodec(_ENTRY.size)
_DELIVERIES: Final = _DeliveryCodec(_ENTRY.size + _LOCK.size + LENGTH.size)
_RECEIVEDS: Final = _ReceivedCodec()
_SETTLEDS: Final = _SettledCodec()

BY_HAND: Final[dict[type[object], Codec]] = {
    Sent: _SENTS,
    Entry: _ENTRIES,
    Delivery: _DELIVERIES,
    Received: _RECEIVEDS,
    Settled: _SETTLEDS,
}
REPLIES: Final = Tagged[Reply]("answer", get_args(Reply), Codecs(BY_HAND))


def encode_answer(writer: FieldWriter, answer: Reply | Refused | Unavailable) -> int:
    """Write the fields; returns the tag of the answer."""
    if isinstance(answer, Refused):
        kind = answer.kind
        if kind is REPARTITIONING and writer.version < 12:
            kind = SERVER_BUSY
        writer.text(kind.name)
        writer.text(answer.message)
        return _REFUSED
    if isinstance(answer, Unavailable):
        writer.u8(answer.is_unknown)
        writer.text(answer.message)
        return _UNAVAILABLE
    return REPLIES.put(writer, answer)


def decode_answer(tag: int, reader: FieldReader) -> Reply | Refused | Unavailable:
    if tag == _REFUSED:
        kind = _KIND_OF.get(reader.text())
        if kind is None:
            raise WireError("the kind of a refusal does not exist")
        return Refused(kind, reader.text())
    if tag == _UNAVAILABLE:
        is_unknown = reader.flag()
        return Unavailable(reader.text(), is_unknown)
    return REPLIES.take(tag, reader)
