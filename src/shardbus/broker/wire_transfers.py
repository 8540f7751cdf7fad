"""Commands and answers about transfers as the fields of a frame."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from shardbus.broker.fields import LENGTH, Reader, WireError, Writer
from shardbus.core.command import (
    ForgetSources,
    ListSources,
    ListTransfers,
    Outstanding,
    RefuseTransfers,
    ReturnTransfers,
    Sources,
    TakenOver,
    TakeOver,
    TakeTransfers,
    TransfersDone,
)
from shardbus.core.message import TRANSFER_DEAD_LETTER_LINE, Message
from shardbus.core.transfers import TransferCommand

TAKE_TRANSFERS: Final = 30
TRANSFERS_DONE: Final = 31
REFUSE_TRANSFERS: Final = 32
RETURN_TRANSFERS: Final = 33
LIST_TRANSFERS: Final = 34
TAKE_OVER: Final = 35
LIST_SOURCES: Final = 36
FORGET_SOURCES: Final = 37

TAKEN_OVER: Final = 30
OUTSTANDING: Final = 31
SOURCES: Final = 32

EncodeMessage = Callable[[Writer, Message], None]
DecodeMessage = Callable[[Reader], Message]


def encode_transfer(writer: Writer, command: TransferCommand, encode_message: EncodeMessage) -> int:
    """Write the fields; the tag that tells which command they are of."""
    if isinstance(command, TakeOver):
        for part in command.source:
            writer.i64(part)
        writer.i64(command.front)
        writer.integers(command.numbers)
        writer.integers(command.skipped)
        writer.count(len(command.messages))
        for message in command.messages:
            encode_message(writer, message)
        return TAKE_OVER
    if isinstance(command, ListSources):
        return LIST_SOURCES
    if isinstance(command, ForgetSources):
        writer.integers(command.entity_ids)
        return FORGET_SOURCES
    return _encode_given_out(writer, command)


def _encode_given_out(
    writer: Writer,
    command: TakeTransfers | TransfersDone | RefuseTransfers | ReturnTransfers | ListTransfers,
) -> int:
    writer.u8(command.line)
    if isinstance(command, ListTransfers):
        return LIST_TRANSFERS
    if isinstance(command, TakeTransfers):
        writer.count(command.count_max)
        writer.i64(command.destination_id)
        return TAKE_TRANSFERS
    writer.integers(command.numbers)
    if isinstance(command, RefuseTransfers):
        writer.u8(command.to_line)
        writer.text(command.reason)
        writer.text(command.description)
        return REFUSE_TRANSFERS
    return TRANSFERS_DONE if isinstance(command, TransfersDone) else RETURN_TRANSFERS


def is_transfer(tag: int) -> bool:
    return TAKE_TRANSFERS <= tag <= FORGET_SOURCES


def decode_transfer(tag: int, reader: Reader, decode_message: DecodeMessage) -> TransferCommand:
    """The command of a tag that `is_transfer`."""
    if tag == TAKE_OVER:
        source = reader.i64(), reader.i64(), reader.i64()
        front, numbers, skipped = reader.i64(), reader.integers(), reader.integers()
        messages = [decode_message(reader) for _ in range(reader.count(LENGTH.size))]
        if len(messages) != len(numbers):
            raise WireError(f"{len(messages)} messages have {len(numbers)} numbers")
        return TakeOver(source, messages, numbers, skipped, front)
    if tag == LIST_SOURCES:
        return ListSources()
    if tag == FORGET_SOURCES:
        return ForgetSources(reader.integers())
    return _decode_given_out(tag, reader)


def _decode_given_out(tag: int, reader: Reader) -> TransferCommand:
    line = _line(reader)
    if tag == LIST_TRANSFERS:
        return ListTransfers(line)
    if tag == TAKE_TRANSFERS:
        return TakeTransfers(line, reader.u32(), reader.i64())
    numbers = reader.integers()
    if tag == REFUSE_TRANSFERS:
        to_line = _line(reader)
        return RefuseTransfers(line, numbers, to_line, reader.text(), reader.text())
    if tag == TRANSFERS_DONE:
        return TransfersDone(line, numbers)
    return ReturnTransfers(line, numbers)


def encode_transferred(writer: Writer, answer: TakenOver | Outstanding | Sources) -> int:
    """Write the fields; the tag that tells which answer they are of."""
    if isinstance(answer, Sources):
        writer.integers(answer.entity_ids)
        return SOURCES
    if isinstance(answer, TakenOver):
        writer.integers(answer.skipped)
        return TAKEN_OVER
    writer.i64(answer.destination_id)
    writer.count(answer.count)
    return OUTSTANDING


def decode_transferred(tag: int, reader: Reader) -> TakenOver | Outstanding | Sources:
    if tag == SOURCES:
        return Sources(reader.integers())
    if tag == TAKEN_OVER:
        return TakenOver(reader.integers())
    return Outstanding(reader.i64(), reader.u32())


def _line(reader: Reader) -> int:
    line = reader.u8()
    if line > TRANSFER_DEAD_LETTER_LINE:
        raise WireError(f"there is no line {line}")
    return line
