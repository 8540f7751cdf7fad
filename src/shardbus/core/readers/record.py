"""The readers of a fragment and their claims, and the records that store them.

The key of a READER record is the line (1 byte) and the name; it holds the lease, the last completed
ordinal, the length of the owner, the owner, and the lost ordinals as runs. The key of a CLAIM
record is the line, the ordinal and the name; it holds the bytes of the messages and their runs. The
record of a claim of sessions begins with the byte 128; its runs stand between their length and the
keys of the sessions, packed as in `packing`. A READER_ID record has the key of its READER and holds
the id that the reader was created with. The AHEAD record is the name of a reader. Integers are
big-endian, of 8 bytes. When a reader was last active is in memory alone, as a reading of the steady
clock.
"""

from __future__ import annotations

from typing import Final, final

from shardbus.core.fragment.change import Change, Counters, RecordChange
from shardbus.core.fragment.records import AHEAD, CLAIM, READER, READER_ID
from shardbus.core.limits import LEASE_MS_DEFAULT, LOST_RUNS_MAX
from shardbus.core.message import MAIN_LINE, NEVER_MS
from shardbus.core.packing import Unpacker, packed_count, packed_text
from shardbus.core.readers.command import ClaimSummary
from shardbus.core.runs import Runs, runs_of, unpack_runs

_INTEGER_BYTES: Final = 8
_READER_INTEGERS: Final = 3
# No size in bytes begins with it.
_WITH_SESSIONS: Final = b"\x80"


@final
class OpenClaim:
    """The messages claimed under one ordinal; `size_bytes` is what they count for in their line.

    `sessions` has the keys of their sessions, in the order of their first messages.
    """

    def __init__(
        self, ordinal: int, runs: Runs, size_bytes: int, sessions: list[str] | None = None
    ) -> None:
        self.ordinal = ordinal
        self.runs = runs
        self.size_bytes = size_bytes
        self.sessions: list[str] = [] if sessions is None else sessions

    def summary(self) -> ClaimSummary:
        runs = self.runs
        return ClaimSummary(self.ordinal, runs.count, self.size_bytes, runs.first(), runs.last())


@final
class Reader:
    """A reader of a line, and how far it is.

    Claims up to `completed` are completed, except for those that were `lost`.
    """

    def __init__(self, line: int, name: str, owner: bytes, lease_ms: int, heard_ms: int) -> None:
        self.line = line
        self.name = name
        self.owner = owner
        self.lease_ms = lease_ms
        self.heard_ms = heard_ms
        # Empty for a reader whose record was given up by a repair.
        self.reader_id = b""
        self.completed = 0
        self.lost = Runs()
        # By ascending ordinal.
        self.claims: dict[int, OpenClaim] = {}

    def last(self) -> int:
        """The highest ordinal that was ever used."""
        last = max(self.completed, self.lost.last())
        return max(last, next(reversed(self.claims))) if self.claims else last

    def oldest(self) -> OpenClaim | None:
        for claim in self.claims.values():
            return claim
        return None

    def is_lost(self, ordinal: int) -> bool:
        """Whether a claim that was made was lost and not completed."""
        if ordinal > self.completed:
            return ordinal <= self.last() and ordinal not in self.claims
        return self.lost.contains(ordinal)

    def lose_claims(self) -> None:
        """Lose all open claims. Only the latest losses are remembered if there are very many."""
        for ordinal in self.claims:
            self.lost.add(ordinal, ordinal)
        if len(self.lost) > LOST_RUNS_MAX:
            recent = Runs()
            for first, last in self.lost.pairs()[-LOST_RUNS_MAX:]:
                recent.add(first, last)
            self.lost = recent

    def claimed(self) -> int:
        return sum([claim.runs.count for claim in self.claims.values()])

    def claimed_bytes(self) -> int:
        return sum([claim.size_bytes for claim in self.claims.values()])


@final
class ReaderStanding:
    """How far a reader of a line is behind in one fragment.

    `waiting` messages are in nobody's claim; `claimed` ones are in this reader's open claims.
    """

    def __init__(self, line: int, name: str, waiting: int, claimed: int) -> None:
        self.line = line
        self.name = name
        self.waiting = waiting
        self.claimed = claimed


@final
class ReaderTable:
    """The readers of one fragment.

    `held` has the numbers of all claimed messages, whichever reader claimed them. `run_count` is
    how many runs the claims have together, `session_count` how many sessions, and `deadline_ms` is
    when the first lease ends (NEVER_MS: no lease is running). `ahead` is the reader of sessions
    that claims of later maps already, "" if there is none (see `GoOn`).
    """

    def __init__(self) -> None:
        self.readers: dict[tuple[int, str], Reader] = {}
        self.held = Runs()
        self.run_count = 0
        self.session_count = 0
        self.deadline_ms = NEVER_MS
        self.ahead = ""

    def load(self, records: dict[tuple[int, bytes], bytes], steady_ms: int) -> None:
        """Take over stored readers. Readers with claims count as active now."""
        claims: list[tuple[int, int, str, bytes]] = []
        for (kind, key), data in records.items():
            if kind == READER:
                reader = unpack_reader(key, data, steady_ms)
                self.readers[reader.line, reader.name] = reader
            elif kind == CLAIM:
                ordinal = int.from_bytes(key[1 : 1 + _INTEGER_BYTES], "big")
                claims.append((ordinal, key[0], key[1 + _INTEGER_BYTES :].decode(), data))
        for ordinal, line, name, data in sorted(claims):
            self.add_claim(
                self._owning(line, name, ordinal, steady_ms), unpack_claim(ordinal, data)
            )
        for reader in self.readers.values():
            reader.reader_id = records.get((READER_ID, reader_key(reader)), b"")
        self.ahead = records.get((AHEAD, b""), b"").decode()
        self.note_deadline()

    def _owning(self, line: int, name: str, ordinal: int, steady_ms: int) -> Reader:
        """The reader of a claim. A reader whose own record was given up is created without an
        owner.
        """
        reader = self.readers.get((line, name))
        if reader is None:
            reader = Reader(line, name, b"", LEASE_MS_DEFAULT, steady_ms)
            reader.completed = ordinal - 1
            self.readers[line, name] = reader
        return reader

    def ahead_of(self, reader: Reader) -> str:
        """The name of another reader of sessions that is ahead; "" if there is none."""
        is_other = reader.line == MAIN_LINE and self.ahead not in ("", reader.name)
        return self.ahead if is_other and (MAIN_LINE, self.ahead) in self.readers else ""

    def put_ahead(self, name: str) -> RecordChange:
        """Let a reader, or with "" none, be ahead; returns the change to store."""
        self.ahead = name
        return RecordChange(AHEAD, b"", name.encode() if name else None)

    def standings(self, counters: Counters) -> list[ReaderStanding]:
        """How far each reader is behind, by line and name; `counters` are the fragment's."""
        claimed = [0] * len(counters.lines)
        for reader in self.readers.values():
            claimed[reader.line] += reader.claimed()
        return [
            ReaderStanding(
                reader.line,
                reader.name,
                counters.lines[reader.line].count - claimed[reader.line],
                reader.claimed(),
            )
            for _, reader in sorted(self.readers.items())
        ]

    def note_deadline(self) -> None:
        """Recompute when the first lease ends, after a change."""
        deadline_ms = NEVER_MS
        for reader in self.readers.values():
            if reader.claims:
                ends_at_ms = reader.heard_ms + reader.lease_ms
                if deadline_ms == NEVER_MS or ends_at_ms < deadline_ms:
                    deadline_ms = ends_at_ms
        self.deadline_ms = deadline_ms

    def add_claim(self, reader: Reader, claim: OpenClaim) -> None:
        reader.claims[claim.ordinal] = claim
        self.held.include(claim.runs)
        self.run_count += len(claim.runs)
        self.session_count += len(claim.sessions)

    def remove_claim(self, reader: Reader, claim: OpenClaim) -> None:
        del reader.claims[claim.ordinal]
        self.held.exclude(claim.runs)
        self.run_count -= len(claim.runs)
        self.session_count -= len(claim.sessions)

    def leave(self, sizes_bytes: dict[int, int]) -> list[Change]:
        """Remove damaged messages, given by number and size, from their claims."""
        changes: list[Change] = []
        leaving = sorted([number for number in sizes_bytes if self.held.contains(number)])
        if not leaving:
            return changes
        for reader in self.readers.values():
            for claim in reader.claims.values():
                gone = [number for number in leaving if claim.runs.contains(number)]
                if gone:
                    self._shrink(claim, gone)
                    claim.size_bytes -= sum([sizes_bytes[number] for number in gone])
                    changes.append(claim_change(reader, claim))
        return changes

    def _shrink(self, claim: OpenClaim, gone: list[int]) -> None:
        numbers = runs_of(gone)
        self.held.exclude(numbers)
        self.run_count -= len(claim.runs)
        claim.runs.exclude(numbers)
        self.run_count += len(claim.runs)


def standings_in(
    records: dict[tuple[int, bytes], bytes], counters: Counters
) -> list[ReaderStanding]:
    """How far the readers in a fragment's records are behind."""
    table = ReaderTable()
    table.load(records, NEVER_MS)
    return table.standings(counters)


def reader_change(reader: Reader) -> RecordChange:
    return RecordChange(READER, reader_key(reader), pack_reader(reader))


def reader_made(reader: Reader) -> list[Change]:
    """The changes that store a new reader."""
    key = reader_key(reader)
    return [reader_change(reader), RecordChange(READER_ID, key, reader.reader_id)]


def reader_dropped(reader: Reader) -> list[Change]:
    key = reader_key(reader)
    return [RecordChange(READER, key, None), RecordChange(READER_ID, key, None)]


def claim_change(reader: Reader, claim: OpenClaim) -> RecordChange:
    return RecordChange(CLAIM, claim_key(reader, claim.ordinal), pack_claim(claim))


def reader_key(reader: Reader) -> bytes:
    return bytes([reader.line]) + reader.name.encode()


def claim_key(reader: Reader, ordinal: int) -> bytes:
    return bytes([reader.line]) + _integer(ordinal) + reader.name.encode()


def pack_reader(reader: Reader) -> bytes:
    numbers = [reader.lease_ms, reader.completed, len(reader.owner)]
    return b"".join([_integer(number) for number in numbers]) + reader.owner + reader.lost.pack()


def unpack_reader(key: bytes, data: bytes, heard_ms: int) -> Reader:
    """Read the record of a reader; ValueError when it is damaged."""
    end = _READER_INTEGERS * _INTEGER_BYTES
    if not key or len(data) < end:
        raise ValueError("the record of a reader is damaged")
    starts = range(0, end, _INTEGER_BYTES)
    numbers = [int.from_bytes(data[at : at + _INTEGER_BYTES], "big") for at in starts]
    owner_end = end + numbers[2]
    reader = Reader(key[0], key[1:].decode(), data[end:owner_end], numbers[0], heard_ms)
    reader.completed = numbers[1]
    reader.lost = unpack_runs(data[owner_end:])
    return reader


def pack_claim(claim: OpenClaim) -> bytes:
    size_bytes, runs = _integer(claim.size_bytes), claim.runs.pack()
    if not claim.sessions:
        return size_bytes + runs
    parts = [_WITH_SESSIONS, size_bytes, packed_count(len(runs)), runs]
    parts.append(packed_count(len(claim.sessions)))
    parts += [packed_text(key) for key in claim.sessions]
    return b"".join(parts)


def unpack_claim(ordinal: int, data: bytes) -> OpenClaim:
    """Read the record of a claim; ValueError when it is damaged."""
    if data[:1] == _WITH_SESSIONS:
        return _unpack_with_sessions(ordinal, data)
    size_bytes = int.from_bytes(data[:_INTEGER_BYTES], "big")
    return OpenClaim(ordinal, unpack_runs(data[_INTEGER_BYTES:]), size_bytes)


def _unpack_with_sessions(ordinal: int, data: bytes) -> OpenClaim:
    unpacker = Unpacker(data[len(_WITH_SESSIONS) :])
    size_bytes, runs = unpacker.integer(), unpack_runs(unpacker.piece(unpacker.count()))
    keys = [unpacker.text() for _ in range(unpacker.count())]
    unpacker.end()
    sessions = [key for key in keys if key is not None]
    if len(sessions) != len(keys) or size_bytes < 0:
        raise ValueError("the record of a claim is damaged")
    return OpenClaim(ordinal, runs, size_bytes, sessions)


def _integer(value: int) -> bytes:
    return value.to_bytes(_INTEGER_BYTES, "big")
