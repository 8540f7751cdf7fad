"""Commands and answers about readers and their claims as the fields of a frame."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from shardbus.broker.fields import I64, LENGTH, Reader, WireError, Writer
from shardbus.core.command import (
    ALL_LINES,
    Claim,
    Claimed,
    ClaimRead,
    ClaimRuns,
    ClaimSummary,
    CompleteClaim,
    Completed,
    DescribeClaim,
    DropReader,
    KeepReader,
    ListReaders,
    OpenReader,
    ReadClaim,
    ReaderCommand,
    ReaderOpened,
    ReaderReply,
    Readers,
    ReaderStatus,
    ReleaseClaims,
)
from shardbus.core.message import TRANSFER_DEAD_LETTER_LINE, Entry
from shardbus.core.runs import unpack_runs

OPEN_READER: Final = 40
KEEP_READER: Final = 41
CLAIM: Final = 42
DESCRIBE_CLAIM: Final = 43
READ_CLAIM: Final = 44
COMPLETE_CLAIM: Final = 45
RELEASE_CLAIMS: Final = 46
DROP_READER: Final = 47
LIST_READERS: Final = 48

READER_OPENED: Final = 40
CLAIMED: Final = 41
CLAIM_RUNS: Final = 42
CLAIM_READ: Final = 43
COMPLETED: Final = 44
READERS: Final = 45

EncodeEntry = Callable[[Writer, Entry, bytes | None], None]
DecodeEntry = Callable[[Reader], Entry]

_SUMMARY_BYTES: Final = 5 * I64.size


def is_reader(tag: int) -> bool:
    """Whether a command with this tag is one of these."""
    return OPEN_READER <= tag <= LIST_READERS


def is_read(tag: int) -> bool:
    """Whether an answer with this tag is one of these."""
    return READER_OPENED <= tag <= READERS


def encode_reader(writer: Writer, command: ReaderCommand) -> int:
    """Write the fields; the tag that tells which command they are of."""
    if isinstance(command, ListReaders):
        writer.i64(command.line)
        return LIST_READERS
    writer.u8(command.line)
    writer.text(command.name)
    if isinstance(command, DropReader):
        return DROP_READER
    if isinstance(command, DescribeClaim):
        writer.i64(command.ordinal)
        writer.data(command.reader_id)
        return DESCRIBE_CLAIM
    if isinstance(command, ReadClaim):
        writer.i64(command.ordinal)
        writer.i64(command.after)
        writer.i64(command.bytes_max)
        writer.data(command.reader_id)
        return READ_CLAIM
    writer.data(command.owner)
    return _encode_owned(writer, command)


def _encode_owned(
    writer: Writer, command: OpenReader | KeepReader | Claim | CompleteClaim | ReleaseClaims
) -> int:
    if isinstance(command, Claim):
        writer.i64(command.ordinal)
        writer.count(command.count_max)
        writer.i64(command.bytes_max)
        writer.i64(command.done)
        return CLAIM
    if isinstance(command, CompleteClaim):
        writer.i64(command.ordinal)
        return COMPLETE_CLAIM
    if isinstance(command, OpenReader):
        writer.i64(command.lease_ms)
        writer.data(command.new_id)
        return OPEN_READER
    return KEEP_READER if isinstance(command, KeepReader) else RELEASE_CLAIMS


def decode_reader(tag: int, reader: Reader) -> ReaderCommand:
    if tag == LIST_READERS:
        line = reader.i64()
        return ListReaders(line if line == ALL_LINES else _checked_line(line))
    line, name = _checked_line(reader.u8()), reader.text()
    if tag == DROP_READER:
        return DropReader(line, name)
    if tag == DESCRIBE_CLAIM:
        return DescribeClaim(line, name, reader.i64(), reader.data())
    if tag == READ_CLAIM:
        ordinal, after, bytes_max = reader.i64(), reader.i64(), reader.i64()
        return ReadClaim(line, name, ordinal, after, bytes_max, reader.data())
    owner = reader.data()
    if tag == CLAIM:
        ordinal, count_max, bytes_max = reader.i64(), reader.u32(), reader.i64()
        return Claim(line, name, owner, ordinal, count_max, bytes_max, reader.i64())
    if tag == COMPLETE_CLAIM:
        return CompleteClaim(line, name, owner, reader.i64())
    if tag == OPEN_READER:
        return OpenReader(line, name, owner, reader.i64(), reader.data())
    if tag == KEEP_READER:
        return KeepReader(line, name, owner)
    return ReleaseClaims(line, name, owner)


def encode_read(writer: Writer, answer: ReaderReply, encode_entry: EncodeEntry) -> int:
    """Write the fields; the tag that tells which answer they are of."""
    if isinstance(answer, ReaderOpened):
        writer.data(answer.reader_id)
        for value in (answer.completed, answer.last, answer.lost):
            writer.i64(value)
        writer.count(len(answer.claims))
        for claim in answer.claims:
            _encode_summary(writer, claim)
        return READER_OPENED
    if isinstance(answer, Claimed):
        writer.i64(answer.completed)
        writer.u8(answer.is_more)
        writer.u8(answer.claim is not None)
        if answer.claim is not None:
            _encode_summary(writer, answer.claim)
        return CLAIMED
    if isinstance(answer, ClaimRuns):
        writer.i64(answer.size_bytes)
        writer.data(answer.runs.pack())
        return CLAIM_RUNS
    if isinstance(answer, ClaimRead):
        writer.i64(answer.after)
        writer.u8(answer.is_end)
        writer.count(len(answer.entries))
        for entry in answer.entries:
            encode_entry(writer, entry, entry.payload)
        return CLAIM_READ
    if isinstance(answer, Completed):
        writer.i64(answer.completed)
        return COMPLETED
    writer.count(len(answer.readers))
    for status in answer.readers:
        _encode_status(writer, status)
    return READERS


def decode_read(tag: int, reader: Reader, decode_entry: DecodeEntry) -> ReaderReply:
    if tag == READER_OPENED:
        reader_id = reader.data()
        completed, last, lost = reader.i64(), reader.i64(), reader.i64()
        claims = [_decode_summary(reader) for _ in range(reader.count(_SUMMARY_BYTES))]
        return ReaderOpened(reader_id, completed, last, lost, claims)
    if tag == CLAIMED:
        completed, is_more = reader.i64(), reader.flag()
        return Claimed(_decode_summary(reader) if reader.flag() else None, is_more, completed)
    if tag == CLAIM_RUNS:
        size_bytes, packed = reader.i64(), reader.data()
        try:
            return ClaimRuns(unpack_runs(packed), size_bytes)
        except ValueError as error:
            raise WireError(str(error)) from error
    if tag == CLAIM_READ:
        after, is_end = reader.i64(), reader.flag()
        entries = [decode_entry(reader) for _ in range(reader.count(I64.size))]
        return ClaimRead(entries, after, is_end)
    if tag == COMPLETED:
        return Completed(reader.i64())
    return Readers([_decode_status(reader) for _ in range(reader.count(LENGTH.size))])


def _encode_summary(writer: Writer, claim: ClaimSummary) -> None:
    for value in (claim.ordinal, claim.count, claim.size_bytes, claim.first, claim.last):
        writer.i64(value)


def _decode_summary(reader: Reader) -> ClaimSummary:
    ordinal, count, size_bytes = reader.i64(), reader.i64(), reader.i64()
    return ClaimSummary(ordinal, count, size_bytes, reader.i64(), reader.i64())


def _encode_status(writer: Writer, status: ReaderStatus) -> None:
    writer.u8(status.line)
    writer.text(status.name)
    writer.data(status.reader_id)
    writer.data(status.owner)
    for value in (
        status.lease_ms,
        status.heard_ms,
        status.completed,
        status.last,
        status.lost,
        status.claims,
        status.claimed,
        status.claimed_bytes,
        status.waiting,
        status.waiting_bytes,
    ):
        writer.i64(value)


def _decode_status(reader: Reader) -> ReaderStatus:
    line, name = _checked_line(reader.u8()), reader.text()
    return ReaderStatus(
        line,
        name,
        reader_id=reader.data(),
        owner=reader.data(),
        lease_ms=reader.i64(),
        heard_ms=reader.i64(),
        completed=reader.i64(),
        last=reader.i64(),
        lost=reader.i64(),
        claims=reader.i64(),
        claimed=reader.i64(),
        claimed_bytes=reader.i64(),
        waiting=reader.i64(),
        waiting_bytes=reader.i64(),
    )


def _checked_line(value: int) -> int:
    if not 0 <= value <= TRANSFER_DEAD_LETTER_LINE:
        raise WireError(f"there is no line {value}")
    return value
