"""The commands about readers and their claims (docs/adr/0022-readers-and-claims.md).

A claim takes messages out of a line as a receive does, but durably, and as runs of numbers instead
of one by one. Claimed messages belong to their reader alone and do not expire. Completing the claim
removes them. Losing the claim returns them to their own places as if nothing had happened.
Completed messages never return. Lost claims are remembered, so that a lost claim is never taken for
an empty one.

Where sessions are required, a reader of the main line holds the sessions of its claims
(`sessions.SessionClaims`).
"""

from __future__ import annotations

from typing import final

from shardbus.core.errors import (
    CLAIM_COMPLETED,
    CLAIM_LOST,
    INVALID_ARGUMENT,
    NOT_ALLOWED,
    QUOTA_EXCEEDED,
    READER_IN_USE,
    READER_LOST,
    READER_NOT_FOUND,
    REPARTITIONING,
    SERVER_BUSY,
    Refused,
)
from shardbus.core.fragment.change import Change, RecordChange, Remove
from shardbus.core.fragment.command import Command
from shardbus.core.fragment.family import Handler
from shardbus.core.fragment.ledger import Ledger
from shardbus.core.fragment.need import Need, NeedHeads
from shardbus.core.fragment.records import CLAIM
from shardbus.core.fragment.supply import Supply
from shardbus.core.lifecycle import rows as events
from shardbus.core.limits import (
    CLAIM_COUNT_MAX,
    CLAIM_PIECE_BYTES_MAX,
    CLAIM_PIECE_COUNT_MAX,
    CLAIM_RUNS_PER_SESSION,
    CLAIMS_MAX,
    LEASE_MS_MAX,
    LEASE_MS_MIN,
    OWNER_BYTES_MAX,
    OWNER_MS_MAX,
    READER_ID_BYTES_MAX,
    READER_NAME_CHARACTERS_MAX,
    READERS_MAX,
)
from shardbus.core.message import AT_ONCE_MS, MAIN_LINE, NEVER_MS, Entry
from shardbus.core.messages.command import Done
from shardbus.core.readers.command import (
    ALL_LINES,
    AboutReaders,
    Claim,
    Claimed,
    ClaimRead,
    ClaimRuns,
    CompleteClaim,
    Completed,
    DescribeClaim,
    DropReader,
    GoneOn,
    GoOn,
    KeepReader,
    ListReaders,
    OpenReader,
    ReadClaim,
    ReaderOpened,
    ReaderReply,
    Readers,
    ReaderStatus,
    ReleaseClaims,
)
from shardbus.core.readers.record import (
    OpenClaim,
    Reader,
    claim_change,
    claim_key,
    reader_change,
    reader_dropped,
    reader_made,
)
from shardbus.core.readers.sessions import SessionClaims
from shardbus.core.runs import runs_of
from shardbus.core.sealing.seal import FragmentSeal


@final
class Claiming(Handler):
    """Decides the commands about readers of one fragment."""

    def __init__(
        self, fragment_number: int, ledger: Ledger, supply: Supply, seal: FragmentSeal
    ) -> None:
        self._fragment_number = fragment_number
        self._seal = seal
        self._ledger = ledger
        self._supply = supply
        self._table = ledger.readers
        # Where sessions are required: finds what to claim of the main line.
        self.sessions: SessionClaims | None = None
        if ledger.sessions is not None:
            self.sessions = SessionClaims(ledger, ledger.sessions)

    def _sessions_of(self, line: int) -> SessionClaims | None:
        return self.sessions if line == MAIN_LINE else None

    def decide(self, command: Command, now_ms: int) -> ReaderReply | Done:
        assert isinstance(command, AboutReaders)
        if isinstance(command, ListReaders):
            return self._list(command.line, now_ms)
        if isinstance(command, OpenReader):
            reply = self._open(command)
            self._table.note_deadline()
            return reply
        reader = self._known(command.line, command.name)
        if isinstance(command, DescribeClaim):
            _check_same(reader, command.reader_id)
            claim = self._open_claim(reader, command.ordinal)
            return ClaimRuns(claim.runs.copy(), claim.size_bytes)
        if isinstance(command, ReadClaim):
            _check_same(reader, command.reader_id)
            return self._read(reader, command, self._supply.entries)
        if isinstance(command, DropReader):
            self._drop(reader)
            return Done()
        _check_owner(reader, command.owner)
        return self._decide_for_owner(reader, command, now_ms)

    def _decide_for_owner(
        self,
        reader: Reader,
        command: KeepReader | Claim | CompleteClaim | ReleaseClaims | GoOn,
        now_ms: int,
    ) -> Claimed | Completed | GoneOn | Done:
        reply: Claimed | Completed | GoneOn | Done
        if isinstance(command, Claim):
            reply = self._claim(reader, command, now_ms)
        elif isinstance(command, CompleteClaim):
            reply = self._complete(reader, command.ordinal)
        elif isinstance(command, GoOn):
            reply = self._go_on(reader)
        else:
            if isinstance(command, ReleaseClaims):
                self._release(reader)
            reply = Done()
        reader.heard_ms = self._ledger.steady_ms
        self._table.note_deadline()
        return reply

    # What must be read first.

    def need(self, command: Command, now_ms: int) -> Need | None:
        if isinstance(command, Claim):
            return self._need_heads(command)
        if isinstance(command, ReadClaim):
            bytes_max = min(command.bytes_max, CLAIM_PIECE_BYTES_MAX)
            unread = self._unread(command)
            return self._supply.need_entries(unread, len(unread), bytes_max=bytes_max)
        return None

    def _need_heads(self, command: Claim) -> NeedHeads | None:
        """The messages to claim that only the store has; None when there are enough, or no more."""
        reader = self._table.readers.get((command.line, command.name))
        if reader is None or reader.owner != command.owner or self._table.ahead_of(reader):
            return None
        if command.ordinal != reader.last() + 1 or self._why_no_claim(reader, command) is not None:
            return None
        room = self._room(reader, command)
        sessions = self._sessions_of(command.line)
        if sessions is not None:
            return sessions.need(reader, room, command.bytes_max)
        line = self._ledger.lines[command.line]
        front = line.front(room)
        count_max = room - len(front)
        bytes_max = command.bytes_max - sum([entry.size_bytes for entry in front])
        if not line.has_tail or count_max <= 0 or bytes_max <= 0:
            return None
        self._ledger.pass_over_claimed(line)
        return NeedHeads(command.line, line.end, count_max=count_max, bytes_max=bytes_max)

    def _unread(self, command: ReadClaim) -> list[int]:
        """The messages to read from the store before a piece of a claim can be given out."""
        reader = self._table.readers.get((command.line, command.name))
        claim = None if reader is None else reader.claims.get(command.ordinal)
        return [] if claim is None else _piece(claim, command.after)

    # Readers.

    def _open(self, command: OpenReader) -> ReaderOpened:
        self._check_new(command)
        steady_ms = self._ledger.steady_ms
        reader = self._table.readers.get((command.line, command.name))
        if reader is None:
            self._check_room()
            reader = Reader(command.line, command.name, command.owner, command.lease_ms, steady_ms)
            reader.reader_id = command.new_id
            self._table.readers[command.line, command.name] = reader
            self._ledger.changes += reader_made(reader)
        elif reader.owner != command.owner or reader.lease_ms != command.lease_ms:
            _check_free(reader, command.owner, steady_ms)
            reader.owner = command.owner
            reader.lease_ms = command.lease_ms
            self._ledger.changes.append(reader_change(reader))
        reader.heard_ms = steady_ms
        claims = [claim.summary() for claim in reader.claims.values()]
        return ReaderOpened(
            reader.reader_id, reader.completed, reader.last(), reader.lost.last(), claims
        )

    def _check_new(self, command: OpenReader) -> None:
        rules = self._ledger.rules
        if rules.is_topic:
            raise Refused(
                NOT_ALLOWED,
                "A topic keeps no messages to claim: claim from one of its subscriptions.",
            )
        name = command.name
        if not 1 <= len(name) <= READER_NAME_CHARACTERS_MAX or not name.isprintable():
            raise Refused(
                INVALID_ARGUMENT,
                f"The name of a reader must have 1 to {READER_NAME_CHARACTERS_MAX} printable "
                "characters.",
            )
        if not 1 <= len(command.owner) <= OWNER_BYTES_MAX:
            raise Refused(
                INVALID_ARGUMENT, f"The owner of a reader must have 1 to {OWNER_BYTES_MAX} bytes."
            )
        if not 1 <= len(command.new_id) <= READER_ID_BYTES_MAX:
            raise Refused(
                INVALID_ARGUMENT, f"The id of a reader must have 1 to {READER_ID_BYTES_MAX} bytes."
            )
        if not LEASE_MS_MIN <= command.lease_ms <= LEASE_MS_MAX:
            raise Refused(
                INVALID_ARGUMENT,
                f"The lease of {command.lease_ms} ms is out of range: use {LEASE_MS_MIN} to "
                f"{LEASE_MS_MAX} ms.",
            )

    def _check_room(self) -> None:
        if len(self._table.readers) >= READERS_MAX:
            raise Refused(
                QUOTA_EXCEEDED,
                f"Fragment {self._fragment_number} has {len(self._table.readers)} readers, "
                "its maximum: drop readers that are no longer used.",
            )

    def _known(self, line: int, name: str) -> Reader:
        reader = self._table.readers.get((line, name))
        if reader is None:
            raise Refused(
                READER_NOT_FOUND,
                f"There is no reader '{name}' here: it was never opened, or it was dropped. "
                "Open it first.",
            )
        return reader

    def _drop(self, reader: Reader) -> None:
        self._give_back(reader)
        sessions = self._sessions_of(reader.line)
        if sessions is not None:
            sessions.drop(reader)
            if self._table.ahead == reader.name:
                self._ledger.changes.append(self._table.put_ahead(""))
        del self._table.readers[reader.line, reader.name]
        self._ledger.changes += reader_dropped(reader)
        self._table.note_deadline()

    def _list(self, line: int, now_ms: int) -> Readers:
        found = [
            reader for reader in self._table.readers.values() if line in (ALL_LINES, reader.line)
        ]
        found.sort(key=_place)
        return Readers([self._status(reader, now_ms) for reader in found])

    def _status(self, reader: Reader, now_ms: int) -> ReaderStatus:
        counters = self._ledger.counters.lines[reader.line]
        others = [each for each in self._table.readers.values() if each.line == reader.line]
        claimed_bytes = sum([each.claimed_bytes() for each in others])
        # The bytes of a line include deferred and scheduled messages, which cannot be claimed.
        return ReaderStatus(
            reader.line,
            reader.name,
            reader_id=reader.reader_id,
            owner=reader.owner,
            lease_ms=reader.lease_ms,
            heard_ms=self._ledger.moment_of(reader.heard_ms, now_ms),
            completed=reader.completed,
            last=reader.last(),
            lost=reader.lost.last(),
            claims=len(reader.claims),
            claimed=reader.claimed(),
            claimed_bytes=reader.claimed_bytes(),
            waiting=counters.count - sum([each.claimed() for each in others]),
            waiting_bytes=max(counters.size_bytes - claimed_bytes, 0),
        )

    # Claiming.

    def _claim(self, reader: Reader, command: Claim, now_ms: int) -> Claimed:
        if command.done >= command.ordinal > 0:
            raise Refused(
                INVALID_ARGUMENT,
                f"The command that makes claim {command.ordinal} cannot complete claim "
                f"{command.done}: complete only ordinals below {command.ordinal}.",
            )
        ending = self._to_complete(reader, command.done)
        known = reader.claims.get(command.ordinal)
        if known is None:
            if command.ordinal != reader.last() + 1:
                raise self._not_open(reader, command.ordinal)
            refusal = self._why_no_claim(reader, command)
            if refusal is not None:
                raise refusal
            known = self._new_claim(reader, command, now_ms)
        if ending is not None:
            self._end(reader, ending)
        summary = None if known is None else known.summary()
        return Claimed(summary, self._is_more(reader), reader.completed)

    def _is_more(self, reader: Reader) -> bool:
        """Whether the next claim may find something."""
        if self._table.ahead_of(reader):
            return False
        sessions = self._sessions_of(reader.line)
        if sessions is not None:
            return sessions.has_more(reader)
        line = self._ledger.lines[reader.line]
        return len(line) > 0 or line.has_tail

    def _new_claim(self, reader: Reader, command: Claim, now_ms: int) -> OpenClaim | None:
        """A new claim of the next waiting messages; None when no message waits for this reader."""
        if self._table.ahead_of(reader):
            return None
        ledger = self._ledger
        sessions = self._sessions_of(command.line)
        room = self._room(reader, command)
        if sessions is None:
            line = ledger.lines[command.line]
            entries = ledger.take_some(line, room, command.bytes_max, now_ms)
        else:
            entries = sessions.take(reader, room, command.bytes_max, now_ms)
        if not entries:
            return None
        runs = runs_of([entry.sequence_number for entry in entries])
        size_bytes = sum([entry.size_bytes for entry in entries])
        claim = OpenClaim(command.ordinal, runs, size_bytes)
        if sessions is not None:
            sessions.hold(reader, claim, entries)
        self._table.add_claim(reader, claim)
        ledger.changes.append(claim_change(reader, claim))
        return claim

    def _go_on(self, reader: Reader) -> GoneOn:
        """Whether a reader may claim of later maps; if it matters who does, note that it is
        ahead.
        """
        if not self._seal.is_sealed:
            raise Refused(
                REPARTITIONING,
                f"Fragment {self._fragment_number} is not one of a former map.",
            )
        ledger = self._ledger
        counters = ledger.counters.lines[reader.line]
        if ledger.sessions is None or reader.line != MAIN_LINE:
            return GoneOn(counters.count, 0, "", counters.count == 0)
        held = ledger.sessions.held_alone(ledger.steady_ms)
        is_final = self._seal.is_final and counters.count + counters.scheduled + held == 0
        ahead = "" if is_final else self._table.ahead_of(reader)
        gone = GoneOn(counters.count, held, ahead, is_final)
        if gone.is_free() and not is_final and self._table.ahead != reader.name:
            ledger.changes.append(self._table.put_ahead(reader.name))
        return gone

    def _why_no_claim(self, reader: Reader, command: Claim) -> Refused | None:
        """Why no new claim can be made, whatever waits."""
        if not 1 <= command.count_max <= CLAIM_COUNT_MAX or command.bytes_max < 1:
            return Refused(
                INVALID_ARGUMENT,
                f"A claim must allow 1 to {CLAIM_COUNT_MAX} messages and at least one byte, "
                f"not {command.count_max} messages and {command.bytes_max} bytes.",
            )
        is_ending = _oldest_up_to(reader, command.done) is not None
        if len(reader.claims) - is_ending >= CLAIMS_MAX:
            return Refused(
                SERVER_BUSY,
                f"Reader '{reader.name}' has {len(reader.claims)} open claims in fragment "
                f"{self._fragment_number}, its maximum: complete some of them first.",
            )
        if self._room(reader, command) < 1:
            return Refused(
                SERVER_BUSY,
                f"The claims in fragment {self._fragment_number} consist of "
                f"{self._table.run_count} runs of numbers and hold {self._table.session_count} "
                "sessions, its maximum of one of them: complete some claims first.",
            )
        return None

    def _room(self, reader: Reader, command: Claim) -> int:
        """How many messages a claim may take if, in the worst case, no two of them are
        consecutive or in one session.
        """
        table, bounds = self._table, self._ledger.bounds
        runs, sessions = table.run_count, table.session_count
        ending = _oldest_up_to(reader, command.done)
        if ending is not None:
            runs -= len(ending.runs)
            sessions -= len(ending.sessions)
        room = min(command.count_max, bounds.claim_runs_max - runs)
        if self._sessions_of(command.line) is None:
            return room
        return min(room, bounds.claim_runs_max // CLAIM_RUNS_PER_SESSION - sessions)

    def _open_claim(self, reader: Reader, ordinal: int) -> OpenClaim:
        claim = reader.claims.get(ordinal)
        if claim is None:
            raise self._not_open(reader, ordinal)
        return claim

    def _not_open(self, reader: Reader, ordinal: int) -> Refused:
        """Why a claim is not open."""
        last = reader.last()
        if ordinal < 1 or ordinal > last:
            return Refused(
                INVALID_ARGUMENT,
                f"Reader '{reader.name}' has no claim {ordinal} in fragment "
                f"{self._fragment_number}: its last claim is {last}, and the next must be "
                f"{last + 1}.",
            )
        if reader.is_lost(ordinal):
            return Refused(
                CLAIM_LOST,
                f"Claim {ordinal} of reader '{reader.name}' in fragment "
                f"{self._fragment_number} is lost: it was released, or not renewed in time. "
                "Its messages returned to the line, where others may have received them.",
            )
        return Refused(
            CLAIM_COMPLETED,
            f"Claim {ordinal} of reader '{reader.name}' in fragment {self._fragment_number} "
            f"is completed, like all claims up to {reader.completed}: its messages were "
            "removed.",
        )

    # Reading claims.

    def _read(self, reader: Reader, command: ReadClaim, read: dict[int, Entry | None]) -> ClaimRead:
        claim = self._open_claim(reader, command.ordinal)
        last = claim.runs.last()
        entries: list[Entry] = []
        damaged: list[int] = []
        after = command.after
        for number in _piece(claim, command.after):
            entry = read.get(number)
            if entry is None:
                damaged.append(number)
            elif entry.payload is None:
                break
            else:
                entries.append(entry)
            after = number
        if damaged:
            self._ledger.set_aside(damaged, reader.line)
        return ClaimRead(entries, after, after >= last)

    # The ends of claims.

    def _complete(self, reader: Reader, ordinal: int) -> Completed:
        claim = self._to_complete(reader, ordinal)
        if claim is not None:
            self._end(reader, claim)
        return Completed(reader.completed)

    def _to_complete(self, reader: Reader, ordinal: int) -> OpenClaim | None:
        """The oldest claim if its ordinal is at most this one; None when all claims up to it are
        completed.
        """
        claim = _oldest_up_to(reader, ordinal)
        is_done = claim is None and ordinal <= reader.completed
        if not is_done and (claim is None or ordinal > reader.last()):
            raise self._not_open(reader, ordinal)
        return claim

    def _end(self, reader: Reader, claim: OpenClaim) -> None:
        """Complete a claim: its messages are removed by the same commit."""
        ledger = self._ledger
        self._table.remove_claim(reader, claim)
        counters = ledger.counters.lines[reader.line]
        counters.count -= claim.runs.count
        ledger.departed += claim.runs.count
        counters.size_bytes -= claim.size_bytes
        reader.completed = claim.ordinal
        sessions = self._sessions_of(reader.line)
        if sessions is not None:
            sessions.complete(claim)
        if claim.runs.count:
            numbers = claim.runs.numbers()
            if ledger.journal is not None:
                ledger.journal.gone(events.CONSUME, numbers)
            ledger.changes.append(Remove(numbers))
        ledger.changes.append(RecordChange(CLAIM, claim_key(reader, claim.ordinal), None))
        ledger.changes.append(reader_change(reader))

    def _release(self, reader: Reader) -> None:
        if not reader.claims:
            return
        reader.lose_claims()
        self._give_back(reader)
        self._ledger.changes.append(reader_change(reader))

    def _give_back(self, reader: Reader) -> None:
        """Return all messages that a reader has claimed to their line; the store still has them."""
        first = 0
        changes: list[Change] = []
        lost = list(reader.claims.values())
        for claim in lost:
            self._table.remove_claim(reader, claim)
            changes.append(RecordChange(CLAIM, claim_key(reader, claim.ordinal), None))
            if claim.runs.count and (first == 0 or claim.runs.first() < first):
                first = claim.runs.first()
        self._ledger.changes += changes
        sessions = self._sessions_of(reader.line)
        if sessions is not None:
            sessions.lose(lost, first)
        if first == 0:
            return
        if sessions is None:
            self._ledger.lines[reader.line].rewind(first)
        if reader.line == MAIN_LINE:
            # Messages that expired in the meantime are found when the store is asked for due ones.
            self._ledger.note_due(AT_ONCE_MS)

    def end_overdue(self) -> None:
        """Lose the claims that were not renewed in time."""
        deadline_ms, steady_ms = self._table.deadline_ms, self._ledger.steady_ms
        if deadline_ms == NEVER_MS or deadline_ms > steady_ms:
            return
        for reader in self._table.readers.values():
            if reader.heard_ms + reader.lease_ms <= steady_ms:
                self._release(reader)
        self._table.note_deadline()


def _check_owner(reader: Reader, owner: bytes) -> None:
    if reader.owner != owner:
        raise Refused(
            READER_LOST,
            f"Reader '{reader.name}' has another owner now: open it again to take it over.",
        )


def _check_same(reader: Reader, reader_id: bytes) -> None:
    if reader_id and reader.reader_id != reader_id:
        raise Refused(
            READER_NOT_FOUND,
            f"Reader '{reader.name}' was dropped, and another reader of the same name was "
            "opened since: the requested claims belong to the dropped one.",
        )


def _check_free(reader: Reader, owner: bytes, steady_ms: int) -> None:
    if reader.owner != owner and steady_ms < reader.heard_ms + OWNER_MS_MAX:
        raise Refused(
            READER_IN_USE,
            f"Reader '{reader.name}' is in use: its owner was active "
            f"{steady_ms - reader.heard_ms} ms ago. Give each reader its own name, or wait "
            f"until the owner has been silent for {OWNER_MS_MAX} ms.",
        )


def _oldest_up_to(reader: Reader, ordinal: int) -> OpenClaim | None:
    claim = reader.oldest()
    return None if claim is None or claim.ordinal > ordinal else claim


def _piece(claim: OpenClaim, after: int) -> list[int]:
    return claim.runs.after(after, CLAIM_PIECE_COUNT_MAX)


def _place(reader: Reader) -> tuple[int, str]:
    return reader.line, reader.name
