"""Commands as the fields of a frame.

The codecs of frequent commands are written by hand, with the same result as the derived ones.
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
    HAS_SIXTH,
    HAS_THIRD,
    LENGTH,
    FieldReader,
    FieldWriter,
    TooNew,
    flags_of,
)
from shardbus.core.fragment.command import ClientCommand
from shardbus.core.message import NEVER_MS, TRANSFER_DEAD_LETTER_LINE, Message
from shardbus.core.messages.command import DEFER, NO_SESSION, Receive, Send, Settle, Ticket
from shardbus.core.sequence import TOKEN_SEED_BYTES

_TICKET: Final = Struct(">qq")
_RECEIVE: Final = Struct(">BBI")
_MESSAGE: Final = Struct(">BqI")
_MESSAGE_FLAGS_11: Final = HAS_FIRST | HAS_SECOND | HAS_THIRD | HAS_FOURTH
_MESSAGE_FLAGS: Final = _MESSAGE_FLAGS_11 | HAS_FIFTH | HAS_SIXTH
_SETTLE_FLAGS_11: Final = HAS_FIRST | HAS_SECOND | HAS_THIRD
_SETTLE_FLAGS: Final = _SETTLE_FLAGS_11 | HAS_FOURTH


@final
class _TicketCodec(Codec):
    def put(self, writer: FieldWriter, value: object) -> None:
        assert isinstance(value, Ticket)
        writer.u8(value.keeps_reply)
        writer.data(value.sender)
        writer.parts.append(_TICKET.pack(value.number, value.front))

    def take(self, reader: FieldReader) -> Ticket:
        keeps_reply, sender = reader.bits(HAS_FIRST, "Ticket") != 0, reader.data()
        return Ticket(sender, reader.i64(), reader.i64(), keeps_reply=keeps_reply)


@final
class _MessageCodec(Codec):
    def put(self, writer: FieldWriter, value: object) -> None:
        assert isinstance(value, Message)
        payload = value.payload
        flags = flags_of(value.message_id, value.session_id, value.partition_key)
        if value.scheduled_at_ms != NEVER_MS:
            flags |= HAS_FOURTH
        if value.subscription_id:
            flags |= HAS_FIFTH
        if value.past_number:
            flags |= HAS_SIXTH
        if flags > _MESSAGE_FLAGS_11 and writer.version < 12:
            raise TooNew("Message with subscription_id", 12)
        writer.parts.append(_MESSAGE.pack(flags, value.ttl_ms, len(payload)))
        writer.parts.append(payload)
        if flags:
            writer.optional_texts(value.message_id, value.session_id)
            writer.optional_texts(value.partition_key, None)
            if flags & HAS_FOURTH:
                writer.i64(value.scheduled_at_ms)
            if flags & HAS_FIFTH:
                writer.i64(value.subscription_id)
            if flags & HAS_SIXTH:
                writer.i64(value.past_number)

    def take(self, reader: FieldReader) -> Message:
        flags: int
        ttl_ms: int
        length: int
        start = reader.step(_MESSAGE.size)
        flags, ttl_ms, length = _MESSAGE.unpack_from(reader.buffer, start)
        payload = reader.fixed(length)
        if flags == 0:
            return Message(payload, ttl_ms=ttl_ms)
        known = _MESSAGE_FLAGS if reader.version >= 12 else _MESSAGE_FLAGS_11
        reader.check_bits(flags, known, "Message")
        message_id = reader.text() if flags & HAS_FIRST else None
        session_id = reader.text() if flags & HAS_SECOND else None
        partition_key = reader.text() if flags & HAS_THIRD else None
        scheduled_at_ms = reader.i64() if flags & HAS_FOURTH else NEVER_MS
        subscription_id = reader.i64() if flags & HAS_FIFTH else 0
        past_number = reader.i64() if flags & HAS_SIXTH else 0
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


@final
class _SendCodec(Codec):
    def put(self, writer: FieldWriter, value: object) -> None:
        assert isinstance(value, Send)
        writer.u8(value.ticket is not None)
        if value.ticket is not None:
            _TICKETS.put(writer, value.ticket)
        writer.count(len(value.messages))
        for message in value.messages:
            _MESSAGES.put(writer, message)

    def take(self, reader: FieldReader) -> Send:
        ticket = _TICKETS.take(reader) if reader.bits(HAS_FIRST, "Send") else None
        count = reader.count(_MESSAGE.size)
        return Send([_MESSAGES.take(reader) for _ in range(count)], ticket)


@final
class _ReceiveCodec(Codec):
    def put(self, writer: FieldWriter, value: object) -> None:
        assert isinstance(value, Receive)
        has_receiver = value.receiver != "" and writer.version >= 12
        flags = (HAS_FIRST if value.is_locking else 0) | (HAS_SECOND if has_receiver else 0)
        writer.parts.append(_RECEIVE.pack(flags, value.line, value.count_max))
        writer.fixed(value.token_seed, TOKEN_SEED_BYTES)
        writer.data(value.session)
        if has_receiver:
            writer.text(value.receiver)

    def take(self, reader: FieldReader) -> Receive:
        known = HAS_FIRST | HAS_SECOND if reader.version >= 12 else HAS_FIRST
        flags = reader.bits(known, "Receive")
        line, count_max = reader.small(TRANSFER_DEAD_LETTER_LINE, "line"), reader.u32()
        token_seed, session = reader.fixed(TOKEN_SEED_BYTES), reader.data()
        receiver = reader.text() if flags & HAS_SECOND else ""
        return Receive(
            line,
            count_max,
            is_locking=flags & HAS_FIRST != 0,
            token_seed=token_seed,
            session=session,
            receiver=receiver,
        )


@final
class _SettleCodec(Codec):
    def put(self, writer: FieldWriter, value: object) -> None:
        assert isinstance(value, Settle)
        flags = flags_of(value.reason, value.description)
        if value.delay_ms:
            flags |= HAS_THIRD
        # Brokers of version 11 have no shared sessions, the only ones for which it is checked.
        has_session = value.session != NO_SESSION and writer.version >= 12
        if has_session:
            flags |= HAS_FOURTH
        writer.parts.append(bytes((flags, value.how)))
        writer.optional_texts(value.reason, value.description)
        if value.delay_ms:
            writer.i64(value.delay_ms)
        if has_session:
            writer.data(value.session)
        writer.data(value.modified)
        writer.count(len(value.tokens))
        for token in value.tokens:
            writer.data(token)

    def take(self, reader: FieldReader) -> Settle:
        known = _SETTLE_FLAGS if reader.version >= 12 else _SETTLE_FLAGS_11
        flags, how = reader.bits(known, "Settle"), reader.small(DEFER, "way to settle")
        reason = reader.text() if flags & HAS_FIRST else None
        description = reader.text() if flags & HAS_SECOND else None
        delay_ms = reader.i64() if flags & HAS_THIRD else 0
        session = reader.data() if flags & HAS_FOURTH else NO_SESSION
        modified = reader.data()
        tokens = [reader.data() for _ in range(reader.count(LENGTH.size))]
        return Settle(
            how,
            tokens,
            reason=reason,
            description=description,
            modified=modified,
            delay_ms=delay_ms,
            session=session,
        )


_TICKETS: Final = _TicketCodec()
_MESSAGES: Final = _MessageCodec(_MESSAGE.size)
_SENDS: Final = _SendCodec()
_RECEIVES: Final = _ReceiveCodec()
_SETTLES: Final = _SettleCodec(2 + 2 * LENGTH.size)

BY_HAND: Final[dict[type[object], Codec]] = {
    Ticket: _TICKETS,
    Message: _MESSAGES,
    Send: _SENDS,
    Receive: _RECEIVES,
    Settle: _SETTLES,
}
COMMANDS: Final = Tagged[ClientCommand]("command", get_args(ClientCommand), Codecs(BY_HAND))
