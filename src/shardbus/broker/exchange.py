"""Answers and pages as the fields of a frame."""

from __future__ import annotations

from struct import Struct
from typing import Final

from shardbus.broker.fields import (
    HAS_FIFTH,
    HAS_FIRST,
    HAS_FOURTH,
    HAS_SECOND,
    HAS_THIRD,
    LENGTH,
    Reader,
    WireError,
    Writer,
    flags_of,
)
from shardbus.broker.wire_commands import checked_line
from shardbus.broker.wire_readers import decode_read, encode_read, is_read
from shardbus.broker.wire_stages import decode_staged, encode_staged, is_staged
from shardbus.broker.wire_tickets import JUDGED, decode_judged, encode_judged
from shardbus.broker.wire_transactions import DECIDED, IN_DOUBT, decode_decided, encode_decided
from shardbus.broker.wire_transfers import (
    OUTSTANDING,
    SOURCES,
    TAKEN_OVER,
    decode_transferred,
    encode_transferred,
)
from shardbus.core.command import (
    Decided,
    Delivery,
    Done,
    InDoubt,
    Judged,
    NoSession,
    Outstanding,
    Producers,
    Purged,
    ReaderReply,
    Received,
    Renewed,
    Reply,
    Sent,
    SessionAccepted,
    SessionState,
    Settled,
    Sources,
    StageReply,
    StagesHeld,
    TakenOver,
)
from shardbus.core.errors import ALL_KINDS, ErrorKind, Refused, Unavailable
from shardbus.core.message import NEVER_MS, Entry
from shardbus.core.stage_command import StagesChecked
from shardbus.stores.base import Page

_SENT: Final = Struct(">qII")
_ENTRY: Final = Struct(">qqqIIBBBI")
_LOCK: Final = Struct(">Iq")

_SENT_TAG: Final = 1
_RECEIVED: Final = 2
_SETTLED: Final = 3
_RENEWED: Final = 4
_PURGED: Final = 5
_DONE: Final = 6
_REFUSED: Final = 7
_UNAVAILABLE: Final = 8
_SESSION_ACCEPTED: Final = 9
_NO_SESSION: Final = 10
_SESSION_STATE: Final = 11

_KIND_OF: Final[dict[str, ErrorKind]] = {kind.name: kind for kind in ALL_KINDS}


def encode_answer(writer: Writer, answer: Reply | Refused | Unavailable) -> int:
    """Write the fields; the tag that tells which answer they are of."""
    if isinstance(answer, Sent):
        writer.parts.append(_SENT.pack(answer.first, answer.count, len(answer.duplicates)))
        for position in answer.duplicates:
            writer.count(position)
        return _SENT_TAG
    if isinstance(answer, Received):
        writer.u8(answer.has_more)
        writer.count(len(answer.deliveries))
        for delivery in answer.deliveries:
            _encode_entry(writer, delivery.entry, delivery.payload)
            writer.parts.append(_LOCK.pack(delivery.delivery_count, delivery.locked_until_ms))
            writer.data(delivery.token)
        return _RECEIVED
    if isinstance(answer, Settled):
        writer.data(bytes(answer.lost))
        return _SETTLED
    if isinstance(answer, Renewed):
        writer.i64(answer.locked_until_ms)
        return _RENEWED
    if isinstance(answer, Purged):
        writer.count(answer.count)
        writer.u8(answer.has_more)
        return _PURGED
    if isinstance(answer, Refused | Unavailable):
        return _encode_failure(writer, answer)
    if isinstance(answer, Decided | InDoubt):
        return encode_decided(writer, answer)
    if isinstance(answer, TakenOver | Outstanding | Sources | Judged):
        return _encode_taken(writer, answer)
    if isinstance(answer, (SessionAccepted, NoSession, SessionState, Done)):
        return _encode_session(writer, answer)
    return _encode_bulk(writer, answer)


def _encode_taken(writer: Writer, answer: TakenOver | Outstanding | Sources | Judged) -> int:
    if isinstance(answer, Judged):
        return encode_judged(writer, answer)
    return encode_transferred(writer, answer)


def _encode_bulk(writer: Writer, answer: ReaderReply | StageReply) -> int:
    if isinstance(answer, (StagesHeld, StagesChecked, Producers)):
        return encode_staged(writer, answer)
    return encode_read(writer, answer, _encode_entry)


def _encode_session(
    writer: Writer, answer: SessionAccepted | NoSession | SessionState | Done
) -> int:
    if isinstance(answer, SessionAccepted):
        writer.text(answer.session_id)
        writer.data(answer.token)
        writer.i64(answer.locked_until_ms)
        return _SESSION_ACCEPTED
    if isinstance(answer, SessionState):
        writer.text(answer.session_id)
        writer.maybe_data(answer.state)
        return _SESSION_STATE
    return _NO_SESSION if isinstance(answer, NoSession) else _DONE


def _encode_failure(writer: Writer, failure: Refused | Unavailable) -> int:
    if isinstance(failure, Refused):
        writer.text(failure.kind.name)
        writer.text(failure.message)
        return _REFUSED
    writer.u8(failure.is_unknown)
    writer.text(failure.message)
    return _UNAVAILABLE


def _encode_entry(writer: Writer, entry: Entry, payload: bytes | None) -> None:
    flags = flags_of(entry.reason, entry.description)
    if payload is not None:
        flags |= HAS_THIRD
    if entry.session_id is not None:
        flags |= HAS_FOURTH
    if entry.delayed_until_ms != NEVER_MS:
        flags |= HAS_FIFTH
    writer.parts.append(
        _ENTRY.pack(
            entry.sequence_number,
            entry.enqueued_at_ms,
            entry.expires_at_ms,
            entry.size_bytes,
            entry.delivery_count,
            entry.line,
            entry.state,
            flags,
            len(entry.modified),
        )
    )
    writer.parts.append(entry.modified)
    if payload is not None:
        writer.data(payload)
    writer.optional_texts(entry.reason, entry.description)
    if flags >= HAS_FOURTH:
        writer.optional_texts(entry.session_id, None)
        if flags & HAS_FIFTH:
            writer.i64(entry.delayed_until_ms)


def encode_page(writer: Writer, page: Page) -> None:
    writer.u8(page.is_end)
    writer.integers(page.damaged)
    writer.count(len(page.entries))
    for entry in page.entries:
        _encode_entry(writer, entry, entry.payload)


def decode_answer(tag: int, reader: Reader) -> Reply | Refused | Unavailable:
    if tag == _SENT_TAG:
        first, count = reader.i64(), reader.u32()
        duplicates = [reader.u32() for _ in range(reader.count(LENGTH.size))]
        return Sent(first, count, duplicates)
    if tag == _RECEIVED:
        has_more = reader.flag()
        count = reader.count(_ENTRY.size)
        return Received([_decode_delivery(reader) for _ in range(count)], has_more)
    if tag == _SETTLED:
        return Settled([lost != 0 for lost in reader.data()])
    if tag == _RENEWED:
        return Renewed(reader.i64())
    if tag == _PURGED:
        return Purged(reader.u32(), reader.flag())
    if tag == _DONE:
        return Done()
    if tag in (DECIDED, IN_DOUBT):
        return decode_decided(tag, reader)
    if tag == JUDGED:
        return decode_judged(reader)
    if tag in (TAKEN_OVER, OUTSTANDING, SOURCES):
        return decode_transferred(tag, reader)
    if is_read(tag):
        return decode_read(tag, reader, _decode_entry)
    if is_staged(tag):
        return decode_staged(tag, reader)
    return _decode_session(tag, reader)


def _decode_session(tag: int, reader: Reader) -> Reply | Refused | Unavailable:
    if tag == _SESSION_ACCEPTED:
        session_id, token = reader.text(), reader.data()
        return SessionAccepted(session_id, token, reader.i64())
    if tag == _NO_SESSION:
        return NoSession()
    if tag == _SESSION_STATE:
        return SessionState(reader.text(), reader.maybe_data())
    return _decode_failure(tag, reader)


def _decode_failure(tag: int, reader: Reader) -> Refused | Unavailable:
    if tag == _REFUSED:
        kind = _KIND_OF.get(reader.text())
        if kind is None:
            raise WireError("a refusal is of a kind that does not exist")
        return Refused(kind, reader.text())
    if tag == _UNAVAILABLE:
        is_unknown = reader.flag()
        return Unavailable(reader.text(), is_unknown)
    raise WireError(f"there is no answer {tag}")


def _decode_delivery(reader: Reader) -> Delivery:
    entry = _decode_entry(reader)
    delivery_count: int
    locked_until_ms: int
    start = reader.step(_LOCK.size)
    delivery_count, locked_until_ms = _LOCK.unpack_from(reader.buffer, start)
    return Delivery(entry, entry.payload, delivery_count, reader.data(), locked_until_ms)


def _decode_entry(reader: Reader) -> Entry:
    number: int
    enqueued_at_ms: int
    expires_at_ms: int
    size_bytes: int
    delivery_count: int
    line: int
    state: int
    flags: int
    length: int
    start = reader.step(_ENTRY.size)
    (
        number, enqueued_at_ms, expires_at_ms, size_bytes, delivery_count, line, state, flags,
        length,
    ) = _ENTRY.unpack_from(reader.buffer, start)  # fmt: skip
    modified = reader.fixed(length)
    payload = reader.data() if flags & HAS_THIRD else None
    reason = reader.text() if flags & HAS_FIRST else None
    description = reader.text() if flags & HAS_SECOND else None
    session_id = reader.text() if flags & HAS_FOURTH else None
    delayed_until_ms = reader.i64() if flags & HAS_FIFTH else NEVER_MS
    return Entry(
        number,
        payload,
        size_bytes,
        enqueued_at_ms=enqueued_at_ms,
        expires_at_ms=expires_at_ms,
        delivery_count=delivery_count,
        line=checked_line(line),
        state=state,
        reason=reason,
        description=description,
        modified=modified,
        session_id=session_id,
        delayed_until_ms=delayed_until_ms,
    )


def decode_page(reader: Reader) -> Page:
    is_end = reader.flag()
    damaged = reader.integers()
    entries = [_decode_entry(reader) for _ in range(reader.count(_ENTRY.size))]
    return Page(entries, damaged, is_end)
