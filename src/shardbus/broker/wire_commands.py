"""Commands as the fields of a frame."""

from __future__ import annotations

from struct import Struct
from typing import Final

from shardbus.broker.fields import (
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
from shardbus.broker.frames import ClientCommand
from shardbus.broker.wire_readers import decode_reader, encode_reader, is_reader
from shardbus.broker.wire_stages import (
    decode_published,
    decode_stage,
    encode_published,
    encode_stage,
    is_stage,
)
from shardbus.broker.wire_tickets import (
    ASK_TICKETS,
    decode_question,
    decode_ticket,
    encode_question,
    encode_ticket,
)
from shardbus.broker.wire_transactions import decode_transaction, encode_transaction
from shardbus.broker.wire_transfers import decode_transfer, encode_transfer, is_transfer
from shardbus.core.command import (
    DEFER,
    AboutStages,
    AcceptSession,
    AskTickets,
    Cancel,
    Claim,
    CompleteClaim,
    DescribeClaim,
    DropReader,
    ForgetSources,
    GetState,
    KeepReader,
    ListReaders,
    ListSources,
    ListTransfers,
    OpenReader,
    Purge,
    ReadClaim,
    ReaderCommand,
    Receive,
    ReceiveDeferred,
    RefuseTransfers,
    ReleaseClaims,
    ReleaseSession,
    Renew,
    RenewSession,
    ReturnTransfers,
    Send,
    SetState,
    Settle,
    StageCommand,
    TakeOver,
    TakeTransfers,
    TransfersDone,
    Work,
)
from shardbus.core.message import NEVER_MS, TRANSFER_DEAD_LETTER_LINE, Message
from shardbus.core.sequence import TOKEN_SEED_BYTES
from shardbus.core.transactions import TransactionCommand
from shardbus.core.transfers import TransferCommand

_RECEIVE: Final = Struct(">BIB")
_PURGE: Final = Struct(">BIq")
_MESSAGE: Final = Struct(">BqI")

_SEND: Final = 1
_RECEIVE_TAG: Final = 2
_SETTLE: Final = 3
_RENEW: Final = 4
_PURGE_TAG: Final = 5
_RECEIVE_DEFERRED: Final = 6
_CANCEL: Final = 7
_ACCEPT_SESSION: Final = 8
_RENEW_SESSION: Final = 9
_RELEASE_SESSION: Final = 10
_GET_STATE: Final = 11
_SET_STATE: Final = 12


def encode_command(writer: Writer, command: ClientCommand) -> int:
    """Write the fields; the tag that tells which command they are of."""
    if isinstance(command, Send):
        encode_ticket(writer, command.ticket)
        writer.count(len(command.messages))
        for message in command.messages:
            _encode_message(writer, message)
        return _SEND
    if isinstance(command, Receive):
        writer.parts.append(_RECEIVE.pack(command.line, command.count_max, command.is_locking))
        writer.fixed(command.token_seed, TOKEN_SEED_BYTES)
        writer.data(command.session)
        return _RECEIVE_TAG
    if isinstance(command, Settle):
        _encode_settle(writer, command)
        return _SETTLE
    if isinstance(command, Renew):
        _encode_tokens(writer, command.tokens)
        return _RENEW
    if isinstance(command, Purge):
        fields = (command.line, command.count_max, command.enqueued_until_ms)
        writer.parts.append(_PURGE.pack(*fields))
        writer.data(command.session)
        return _PURGE_TAG
    return _encode_rare(writer, command)


def _encode_rare(
    writer: Writer,
    command: ReceiveDeferred
    | Cancel
    | AcceptSession
    | RenewSession
    | ReleaseSession
    | GetState
    | SetState
    | TransactionCommand
    | TransferCommand
    | AskTickets
    | ReaderCommand
    | StageCommand,
) -> int:
    if isinstance(command, ReceiveDeferred):
        writer.u8(command.line)
        writer.u8(command.is_locking)
        writer.fixed(command.token_seed, TOKEN_SEED_BYTES)
        writer.data(command.session)
        writer.integers(command.sequence_numbers)
        return _RECEIVE_DEFERRED
    if isinstance(command, Cancel | AskTickets):
        return _encode_numbers(writer, command)
    if isinstance(
        command,
        (
            TakeTransfers,
            TransfersDone,
            RefuseTransfers,
            ReturnTransfers,
            ListTransfers,
            TakeOver,
            ListSources,
            ForgetSources,
        ),
    ):
        return encode_transfer(writer, command, _encode_message)
    if isinstance(
        command,
        (
            OpenReader,
            KeepReader,
            Claim,
            DescribeClaim,
            ReadClaim,
            CompleteClaim,
            ReleaseClaims,
            DropReader,
            ListReaders,
        ),
    ):
        return encode_reader(writer, command)
    if isinstance(command, AboutStages):
        return encode_stage(writer, command, _encode_message)
    if isinstance(command, (AcceptSession, RenewSession, ReleaseSession, GetState, SetState)):
        return _encode_session(writer, command)
    return encode_transaction(writer, command, _encode_work)


def _encode_numbers(writer: Writer, command: Cancel | AskTickets) -> int:
    if isinstance(command, AskTickets):
        return encode_question(writer, command)
    writer.integers(command.sequence_numbers)
    return _CANCEL


def _encode_session(
    writer: Writer, command: AcceptSession | RenewSession | ReleaseSession | GetState | SetState
) -> int:
    if isinstance(command, AcceptSession):
        writer.maybe_text(command.session_id)
        writer.fixed(command.token_seed, TOKEN_SEED_BYTES)
        return _ACCEPT_SESSION
    writer.data(command.session)
    if isinstance(command, SetState):
        writer.maybe_data(command.state)
        return _SET_STATE
    if isinstance(command, RenewSession):
        return _RENEW_SESSION
    return _RELEASE_SESSION if isinstance(command, ReleaseSession) else _GET_STATE


def _encode_settle(writer: Writer, command: Settle) -> None:
    flags = flags_of(command.reason, command.description)
    if command.delay_ms:
        flags |= HAS_THIRD
    writer.parts.append(bytes((command.how, flags)))
    writer.optional_texts(command.reason, command.description)
    if command.delay_ms:
        writer.i64(command.delay_ms)
    writer.data(command.modified)
    _encode_tokens(writer, command.tokens)


def _encode_work(writer: Writer, work: Work) -> None:
    writer.count(len(work.messages))
    for message in work.messages:
        _encode_message(writer, message)
    writer.count(len(work.settlements))
    for settlement in work.settlements:
        _encode_settle(writer, settlement)
    encode_published(writer, work.stages, work.publication)
    writer.data(work.batch_key)
    writer.count(len(work.scheduled))
    for number, message in work.scheduled:
        writer.i64(number)
        _encode_message(writer, message)
    writer.integers(work.cancelled)
    writer.count(len(work.states))
    for state in work.states:
        writer.data(state.session)
        writer.maybe_data(state.state)


def _decode_work(reader: Reader) -> Work:
    messages = [_decode_message(reader) for _ in range(reader.count(_MESSAGE.size))]
    settlements = [_decode_settle(reader) for _ in range(reader.count(LENGTH.size))]
    work = Work(messages, settlements, *decode_published(reader))
    work.batch_key = reader.data()
    count = reader.count(_MESSAGE.size)
    work.scheduled = [(reader.i64(), _decode_message(reader)) for _ in range(count)]
    work.cancelled = reader.integers()
    count = reader.count(LENGTH.size)
    work.states = [SetState(reader.data(), reader.maybe_data()) for _ in range(count)]
    return work


def _encode_message(writer: Writer, message: Message) -> None:
    payload = message.payload
    flags = flags_of(message.message_id, message.session_id, message.partition_key)
    if message.scheduled_at_ms != NEVER_MS:
        flags |= HAS_FOURTH
    writer.parts.append(_MESSAGE.pack(flags, message.ttl_ms, len(payload)))
    writer.parts.append(payload)
    if flags:
        writer.optional_texts(message.message_id, message.session_id)
        writer.optional_texts(message.partition_key, None)
        if flags & HAS_FOURTH:
            writer.i64(message.scheduled_at_ms)


def _encode_tokens(writer: Writer, tokens: list[bytes]) -> None:
    writer.count(len(tokens))
    for token in tokens:
        writer.data(token)


def decode_command(tag: int, reader: Reader) -> ClientCommand:
    if tag == _SEND:
        ticket = decode_ticket(reader)
        count = reader.count(_MESSAGE.size)
        return Send([_decode_message(reader) for _ in range(count)], ticket)
    if tag == _RECEIVE_TAG:
        line, count_max, is_locking = checked_line(reader.u8()), reader.u32(), reader.flag()
        token_seed, session = reader.fixed(TOKEN_SEED_BYTES), reader.data()
        return Receive(
            line, count_max, is_locking=is_locking, token_seed=token_seed, session=session
        )
    if tag == _SETTLE:
        return _decode_settle(reader)
    if tag == _RENEW:
        return Renew(_decode_tokens(reader))
    if tag == _PURGE_TAG:
        line, count_max, until_ms = checked_line(reader.u8()), reader.u32(), reader.i64()
        return Purge(line, count_max, enqueued_until_ms=until_ms, session=reader.data())
    return _decode_rare(tag, reader)


def _decode_rare(tag: int, reader: Reader) -> ClientCommand:
    if tag == _RECEIVE_DEFERRED:
        line, is_locking = checked_line(reader.u8()), reader.flag()
        token_seed, session = reader.fixed(TOKEN_SEED_BYTES), reader.data()
        return ReceiveDeferred(
            line,
            reader.integers(),
            is_locking=is_locking,
            token_seed=token_seed,
            session=session,
        )
    if tag == _CANCEL:
        return Cancel(reader.integers())
    if tag == _ACCEPT_SESSION:
        return AcceptSession(reader.maybe_text(), reader.fixed(TOKEN_SEED_BYTES))
    if tag == _RENEW_SESSION:
        return RenewSession(reader.data())
    if tag == _RELEASE_SESSION:
        return ReleaseSession(reader.data())
    if tag == _GET_STATE:
        return GetState(reader.data())
    if tag == _SET_STATE:
        return SetState(reader.data(), reader.maybe_data())
    if tag == ASK_TICKETS:
        return decode_question(reader)
    if is_transfer(tag):
        return decode_transfer(tag, reader, _decode_message)
    if is_reader(tag):
        return decode_reader(tag, reader)
    if is_stage(tag):
        return decode_stage(tag, reader, _decode_message)
    return decode_transaction(tag, reader, _decode_work)


def _decode_settle(reader: Reader) -> Settle:
    how, flags = reader.u8(), reader.u8()
    if how > DEFER:
        raise WireError(f"nothing is settled by {how}")
    reason = reader.text() if flags & HAS_FIRST else None
    description = reader.text() if flags & HAS_SECOND else None
    delay_ms = reader.i64() if flags & HAS_THIRD else 0
    modified = reader.data()
    return Settle(
        how,
        _decode_tokens(reader),
        reason=reason,
        description=description,
        modified=modified,
        delay_ms=delay_ms,
    )


def _decode_message(reader: Reader) -> Message:
    flags: int
    ttl_ms: int
    length: int
    start = reader.step(_MESSAGE.size)
    flags, ttl_ms, length = _MESSAGE.unpack_from(reader.buffer, start)
    payload = reader.fixed(length)
    if flags == 0:
        return Message(payload, ttl_ms=ttl_ms)
    message_id = reader.text() if flags & HAS_FIRST else None
    session_id = reader.text() if flags & HAS_SECOND else None
    partition_key = reader.text() if flags & HAS_THIRD else None
    scheduled_at_ms = reader.i64() if flags & HAS_FOURTH else NEVER_MS
    return Message(
        payload,
        message_id=message_id,
        session_id=session_id,
        partition_key=partition_key,
        ttl_ms=ttl_ms,
        scheduled_at_ms=scheduled_at_ms,
    )


def _decode_tokens(reader: Reader) -> list[bytes]:
    return [reader.data() for _ in range(reader.count(LENGTH.size))]


def checked_line(value: int) -> int:
    if value > TRANSFER_DEAD_LETTER_LINE:
        raise WireError(f"there is no line {value}")
    return value
