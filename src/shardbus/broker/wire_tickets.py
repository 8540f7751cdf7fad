"""Tickets, and what fragments are asked about them, as the fields of a frame."""

from __future__ import annotations

from typing import Final

from shardbus.broker.fields import LENGTH, Reader, Writer
from shardbus.core.command import AskTickets, Judged, Sent, Ticket

ASK_TICKETS: Final = 13
JUDGED: Final = 12


def encode_ticket(writer: Writer, ticket: Ticket | None) -> None:
    if ticket is None:
        writer.data(b"")
        return
    writer.data(ticket.sender)
    writer.i64(ticket.number)
    writer.i64(ticket.front)
    writer.u8(ticket.keeps_reply)


def decode_ticket(reader: Reader) -> Ticket | None:
    sender = reader.data()
    if not sender:
        return None
    number, front = reader.i64(), reader.i64()
    return Ticket(sender, number, front, keeps_reply=reader.flag())


def encode_question(writer: Writer, command: AskTickets) -> int:
    """Write the fields; the tag that tells which command they are of."""
    writer.data(command.sender)
    writer.i64(command.front)
    writer.integers(command.numbers)
    return ASK_TICKETS


def decode_question(reader: Reader) -> AskTickets:
    sender, front = reader.data(), reader.i64()
    return AskTickets(sender, reader.integers(), front)


def encode_judged(writer: Writer, answer: Judged) -> int:
    """Write the fields; the tag that tells which answer they are of."""
    writer.data(bytes(answer.stored))
    writer.count(len(answer.replies))
    for number, reply in answer.replies.items():
        writer.i64(number)
        writer.i64(reply.first)
        writer.count(reply.count)
        writer.integers(reply.duplicates)
    return JUDGED


def decode_judged(reader: Reader) -> Judged:
    stored = [is_stored != 0 for is_stored in reader.data()]
    replies: dict[int, Sent] = {}
    for _ in range(reader.count(LENGTH.size)):
        number, first, count = reader.i64(), reader.i64(), reader.u32()
        replies[number] = Sent(first, count, reader.integers())
    return Judged(stored, replies)
