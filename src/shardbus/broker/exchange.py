"""Commands, answers and pages as the fields of a frame."""

from __future__ import annotations

from struct import Struct
from typing import Final

from shardbus.broker.fields import I64, LENGTH, Reader, WireError, Writer
from shardbus.broker.frames import ClientCommand
from shardbus.core.command import (
    RELEASE,
    Delivery,
    Done,
    Purge,
    Purged,
    Receive,
    Received,
    Renew,
    Renewed,
    Reply,
    Send,
    Sent,
    Settle,
    Settled,
)
from shardbus.core.errors import ALL_KINDS, ErrorKind, Refused, Unavailable
from shardbus.core.message import TRANSFER_DEAD_LETTER_LINE, Entry, Message
from shardbus.core.sequence import TOKEN_SEED_BYTES
from shardbus.stores.base import Page

_SENT: Final = Struct(">qI")
_RECEIVE: Final = Struct(">BIB")
_PURGE: Final = Struct(">BI")
_MESSAGE: Final = Struct(">BqI")
_ENTRY: Final = Struct(">qqqIIBBBI")
_LOCK: Final = Struct(">Iq")

_SEND: Final = 1
_RECEIVE_TAG: Final = 2
_SETTLE: Final = 3
_RENEW: Final = 4
_PURGE_TAG: Final = 5

_SENT_TAG: Final = 1
_RECEIVED: Final = 2
_SETTLED: Final = 3
_RENEWED: Final = 4
_PURGED: Final = 5
_DONE: Final = 6
_REFUSED: Final = 7
_UNAVAILABLE: Final = 8

_HAS_FIRST: Final = 1
_HAS_SECOND: Final = 2
_HAS_THIRD: Final = 4

_KIND_OF: Final[dict[str, ErrorKind]] = {kind.name: kind for kind in ALL_KINDS}


def command_tag(command: ClientCommand) -> int:
    if isinstance(command, Send):
        return _SEND
    if isinstance(command, Receive):
        return _RECEIVE_TAG
    if isinstance(command, Settle):
        return _SETTLE
    if isinstance(command, Renew):
        return _RENEW
    return _PURGE_TAG


def encode_command(writer: Writer, command: ClientCommand) -> None:
    if isinstance(command, Send):
        writer.count(len(command.messages))
        for message in command.messages:
            _encode_message(writer, message)
    elif isinstance(command, Receive):
        writer.parts.append(_RECEIVE.pack(command.line, command.count_max, command.is_locking))
        writer.fixed(command.token_seed, TOKEN_SEED_BYTES)
    elif isinstance(command, Settle):
        flags = _flags(command.reason, command.description, None)
        writer.parts.append(bytes((command.how, flags)))
        writer.optional_texts(command.reason, command.description)
        writer.data(command.modified)
        _encode_tokens(writer, command.tokens)
    elif isinstance(command, Renew):
        _encode_tokens(writer, command.tokens)
    else:
        writer.parts.append(_PURGE.pack(command.line, command.count_max))


def _encode_message(writer: Writer, message: Message) -> None:
    payload = message.payload
    flags = _flags(message.message_id, message.session_id, message.partition_key)
    writer.parts.append(_MESSAGE.pack(flags, message.ttl_ms, len(payload)))
    writer.parts.append(payload)
    if flags:
        writer.optional_texts(message.message_id, message.session_id)
        writer.optional_texts(message.partition_key, None)


def _flags(first: str | None, second: str | None, third: str | None) -> int:
    flags = 0 if first is None else _HAS_FIRST
    if second is not None:
        flags |= _HAS_SECOND
    return flags if third is None else flags | _HAS_THIRD


def _encode_tokens(writer: Writer, tokens: list[bytes]) -> None:
    writer.count(len(tokens))
    for token in tokens:
        writer.data(token)


def decode_command(tag: int, reader: Reader) -> ClientCommand:
    if tag == _SEND:
        count = reader.count(_MESSAGE.size)
        return Send([_decode_message(reader) for _ in range(count)])
    if tag == _RECEIVE_TAG:
        line, count_max, is_locking = checked_line(reader.u8()), reader.u32(), reader.flag()
        token_seed = reader.fixed(TOKEN_SEED_BYTES)
        return Receive(line, count_max, is_locking=is_locking, token_seed=token_seed)
    if tag == _SETTLE:
        how, flags = reader.u8(), reader.u8()
        if how > RELEASE:
            raise WireError(f"nothing is settled by {how}")
        reason = reader.text() if flags & _HAS_FIRST else None
        description = reader.text() if flags & _HAS_SECOND else None
        modified = reader.data()
        tokens = _decode_tokens(reader)
        return Settle(how, tokens, reason=reason, description=description, modified=modified)
    if tag == _RENEW:
        return Renew(_decode_tokens(reader))
    if tag == _PURGE_TAG:
        return Purge(checked_line(reader.u8()), reader.u32())
    raise WireError(f"there is no command {tag}")


def _decode_message(reader: Reader) -> Message:
    flags: int
    ttl_ms: int
    length: int
    start = reader.step(_MESSAGE.size)
    flags, ttl_ms, length = _MESSAGE.unpack_from(reader.buffer, start)
    payload = reader.fixed(length)
    if flags == 0:
        return Message(payload, ttl_ms=ttl_ms)
    message_id = reader.text() if flags & _HAS_FIRST else None
    session_id = reader.text() if flags & _HAS_SECOND else None
    partition_key = reader.text() if flags & _HAS_THIRD else None
    return Message(
        payload,
        message_id=message_id,
        session_id=session_id,
        partition_key=partition_key,
        ttl_ms=ttl_ms,
    )


def _decode_tokens(reader: Reader) -> list[bytes]:
    return [reader.data() for _ in range(reader.count(LENGTH.size))]


def checked_line(value: int) -> int:
    if value > TRANSFER_DEAD_LETTER_LINE:
        raise WireError(f"there is no line {value}")
    return value


def answer_tag(answer: Reply | Refused | Unavailable) -> int:
    if isinstance(answer, Sent):
        return _SENT_TAG
    if isinstance(answer, Received):
        return _RECEIVED
    if isinstance(answer, Settled):
        return _SETTLED
    if isinstance(answer, Renewed):
        return _RENEWED
    if isinstance(answer, Purged):
        return _PURGED
    if isinstance(answer, Refused):
        return _REFUSED
    return _UNAVAILABLE if isinstance(answer, Unavailable) else _DONE


def encode_answer(writer: Writer, answer: Reply | Refused | Unavailable) -> None:
    if isinstance(answer, Sent):
        writer.parts.append(_SENT.pack(answer.first, answer.count))
    elif isinstance(answer, Received):
        writer.u8(answer.has_more)
        writer.count(len(answer.deliveries))
        for delivery in answer.deliveries:
            _encode_entry(writer, delivery.entry, delivery.payload)
            writer.parts.append(_LOCK.pack(delivery.delivery_count, delivery.locked_until_ms))
            writer.data(delivery.token)
    elif isinstance(answer, Settled):
        writer.data(bytes(answer.lost))
    elif isinstance(answer, Renewed):
        writer.i64(answer.locked_until_ms)
    elif isinstance(answer, Purged):
        writer.count(answer.count)
    elif isinstance(answer, Refused):
        writer.text(answer.kind.name)
        writer.text(answer.message)
    elif isinstance(answer, Unavailable):
        writer.u8(answer.is_unknown)
        writer.text(answer.message)


def _encode_entry(writer: Writer, entry: Entry, payload: bytes | None) -> None:
    flags = _flags(entry.reason, entry.description, None)
    if payload is not None:
        flags |= _HAS_THIRD
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


def encode_page(writer: Writer, page: Page) -> None:
    writer.u8(page.is_end)
    writer.count(len(page.damaged))
    for number in page.damaged:
        writer.i64(number)
    writer.count(len(page.entries))
    for entry in page.entries:
        _encode_entry(writer, entry, entry.payload)


def decode_answer(tag: int, reader: Reader) -> Reply | Refused | Unavailable:
    if tag == _SENT_TAG:
        return Sent(reader.i64(), reader.u32())
    if tag == _RECEIVED:
        has_more = reader.flag()
        count = reader.count(_ENTRY.size)
        return Received([_decode_delivery(reader) for _ in range(count)], has_more)
    if tag == _SETTLED:
        return Settled([lost != 0 for lost in reader.data()])
    if tag == _RENEWED:
        return Renewed(reader.i64())
    if tag == _PURGED:
        return Purged(reader.u32())
    if tag == _DONE:
        return Done()
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
    payload = reader.data() if flags & _HAS_THIRD else None
    reason = reader.text() if flags & _HAS_FIRST else None
    description = reader.text() if flags & _HAS_SECOND else None
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
    )


def decode_page(reader: Reader) -> Page:
    is_end = reader.flag()
    damaged = [reader.i64() for _ in range(reader.count(I64.size))]
    entries = [_decode_entry(reader) for _ in range(reader.count(_ENTRY.size))]
    return Page(entries, damaged, is_end)
