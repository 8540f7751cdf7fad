"""Commands and answers about transactions as the fields of a frame."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from shardbus.broker.fields import I64, LENGTH, Reader, WireError, Writer
from shardbus.broker.wire_tickets import decode_ticket, encode_ticket
from shardbus.core.command import (
    ROLLED_BACK,
    AskDecision,
    Decide,
    Decided,
    Enlist,
    Finish,
    ForgetDecision,
    Home,
    InDoubt,
    ListTransactions,
    Owed,
    Prepare,
    Promised,
    Transact,
    Work,
)
from shardbus.core.transactions import TransactionCommand

TRANSACT: Final = 20
PREPARE: Final = 21
DECIDE: Final = 22
ASK_DECISION: Final = 23
FINISH: Final = 24
FORGET_DECISION: Final = 25
LIST_TRANSACTIONS: Final = 26
ENLIST: Final = 27

DECIDED: Final = 20
IN_DOUBT: Final = 21

EncodeWork = Callable[[Writer, Work], None]
DecodeWork = Callable[[Reader], Work]


def encode_transaction(writer: Writer, command: TransactionCommand, encode_work: EncodeWork) -> int:
    """Write the fields; the tag that tells which command they are of."""
    if isinstance(command, Transact):
        encode_ticket(writer, command.ticket)
        encode_work(writer, command.work)
        return TRANSACT
    if isinstance(command, Enlist):
        writer.count(command.count)
        encode_work(writer, command.work)
        return ENLIST
    if isinstance(command, ListTransactions):
        return LIST_TRANSACTIONS
    writer.data(command.transaction_id)
    if isinstance(command, Prepare):
        _encode_home(writer, command.decider)
        writer.i64(command.wait_ms)
        writer.u8(command.keeps_reply)
        encode_work(writer, command.work)
        return PREPARE
    if isinstance(command, Decide):
        _encode_homes(writer, command.others)
        encode_ticket(writer, command.ticket)
        encode_work(writer, command.work)
        return DECIDE
    if isinstance(command, AskDecision):
        writer.u8(command.is_over)
        return ASK_DECISION
    if isinstance(command, Finish):
        writer.u8(command.is_commit)
        return FINISH
    return FORGET_DECISION


def decode_transaction(tag: int, reader: Reader, decode_work: DecodeWork) -> TransactionCommand:
    if tag == TRANSACT:
        ticket = decode_ticket(reader)
        return Transact(decode_work(reader), ticket)
    if tag == ENLIST:
        count = reader.u32()
        return Enlist(decode_work(reader), count)
    if tag == LIST_TRANSACTIONS:
        return ListTransactions()
    if not TRANSACT <= tag <= LIST_TRANSACTIONS:
        raise WireError(f"there is no command {tag}")
    transaction_id = reader.data()
    if tag == PREPARE:
        decider, wait_ms, keeps_reply = _decode_home(reader), reader.i64(), reader.flag()
        work = decode_work(reader)
        return Prepare(transaction_id, work, decider, wait_ms, keeps_reply=keeps_reply)
    if tag == DECIDE:
        others, ticket = _decode_homes(reader), decode_ticket(reader)
        return Decide(transaction_id, decode_work(reader), others, ticket)
    if tag == ASK_DECISION:
        return AskDecision(transaction_id, is_over=reader.flag())
    if tag == FINISH:
        return Finish(transaction_id, is_commit=reader.flag())
    return ForgetDecision(transaction_id)


def encode_decided(writer: Writer, answer: Decided | InDoubt) -> int:
    """Write the fields; the tag that tells which answer they are of."""
    if isinstance(answer, Decided):
        writer.u8(answer.how)
        return DECIDED
    writer.count(len(answer.promised))
    for promised in answer.promised:
        writer.data(promised.transaction_id)
        _encode_home(writer, promised.decider)
        writer.u8(promised.is_over)
    writer.count(len(answer.owed))
    for owed in answer.owed:
        writer.data(owed.transaction_id)
        writer.i64(owed.at_ms)
        _encode_homes(writer, owed.others)
    return IN_DOUBT


def decode_decided(tag: int, reader: Reader) -> Decided | InDoubt:
    if tag == DECIDED:
        how = reader.u8()
        if how > ROLLED_BACK:
            raise WireError(f"nothing is decided as {how}")
        return Decided(how)
    promised = [_decode_promised(reader) for _ in range(reader.count(LENGTH.size))]
    owed = [
        Owed(reader.data(), reader.i64(), _decode_homes(reader))
        for _ in range(reader.count(LENGTH.size))
    ]
    return InDoubt(promised, owed)


def _decode_promised(reader: Reader) -> Promised:
    transaction_id, decider = reader.data(), _decode_home(reader)
    return Promised(transaction_id, decider, is_over=reader.flag())


def _encode_home(writer: Writer, home: Home) -> None:
    writer.i64(home[0])
    writer.i64(home[1])


def _decode_home(reader: Reader) -> Home:
    return reader.i64(), reader.i64()


def _encode_homes(writer: Writer, homes: list[Home]) -> None:
    writer.count(len(homes))
    for home in homes:
        _encode_home(writer, home)


def _decode_homes(reader: Reader) -> list[Home]:
    return [_decode_home(reader) for _ in range(reader.count(2 * I64.size))]
