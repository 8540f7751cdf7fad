"""What a fragment takes along when another broker goes on with it: locks and held sessions.

Both live in memory alone, and clients count on them. Steady readings mean nothing to another
process, so deadlines travel as the time that is left. All else is in the store.
"""

from __future__ import annotations

from typing import Final, final

from shardbus.core.fragment.ledger import Ledger
from shardbus.core.fragment.lock import LockBatch
from shardbus.core.message import MAIN_LINE, Entry
from shardbus.core.packing import Unpacker, packed_count, packed_integer, packed_text
from shardbus.core.sequence import TOKEN_BYTES
from shardbus.core.sessions.table import HeldSession

FORMAT: Final = 1
# With the tokens of sessions that can be taken over; written only where there are some, because the
# release before does not know it.
SHARING_FORMAT: Final = 2


@final
class HandedLocks:
    """Locks that share a deadline; with a session id, all those of a held session, be it none."""

    def __init__(
        self,
        left_ms: int,
        tokens: list[bytes],
        numbers: list[int],
        session_id: str | None = None,
        session: bytes = b"",
        shared: bytes = b"",
    ) -> None:
        self.left_ms = left_ms
        self.tokens = tokens
        self.numbers = numbers
        self.session_id = session_id
        self.session = session
        self.shared = shared

    def pack(self, parts: list[bytes], is_sharing: bool) -> None:
        parts.append(packed_integer(self.left_ms))
        parts.append(packed_text(self.session_id))
        if self.session_id is not None:
            parts.append(self.session)
            if is_sharing:
                parts.append(packed_count(len(self.shared)))
                parts.append(self.shared)
        parts.append(packed_count(len(self.tokens)))
        for token, number in zip(self.tokens, self.numbers, strict=True):
            parts.append(token)
            parts.append(packed_integer(number))


@final
class HandOver:
    """The locks and held sessions of one fragment at one moment."""

    def __init__(self, lock_counter: int, locks: list[HandedLocks]) -> None:
        self.lock_counter = lock_counter
        self.locks = locks

    def numbers(self) -> list[int]:
        """The messages to read from the store before the fragment goes on elsewhere."""
        return [number for handed in self.locks for number in handed.numbers]

    def packed(self) -> bytes:
        is_sharing = any(handed.shared for handed in self.locks)
        parts = [bytes([SHARING_FORMAT if is_sharing else FORMAT])]
        parts += [packed_integer(self.lock_counter), packed_count(len(self.locks))]
        for handed in self.locks:
            handed.pack(parts, is_sharing)
        return b"".join(parts)


def unpacked(data: bytes) -> HandOver:
    """ValueError when it is something else."""
    unpacker = Unpacker(data)
    version = unpacker.byte()
    if version not in (FORMAT, SHARING_FORMAT):
        raise ValueError("what was handed over has a format that this version does not know")
    lock_counter = unpacker.integer()
    is_sharing = version == SHARING_FORMAT
    locks = [_unpacked_locks(unpacker, is_sharing) for _ in range(unpacker.count())]
    unpacker.end()
    return HandOver(lock_counter, locks)


def _unpacked_locks(unpacker: Unpacker, is_sharing: bool) -> HandedLocks:
    left_ms, session_id = unpacker.integer(), unpacker.text()
    session = shared = b""
    if session_id is not None:
        session = unpacker.piece(TOKEN_BYTES)
        shared = unpacker.piece(unpacker.count()) if is_sharing else b""
    tokens: list[bytes] = []
    numbers: list[int] = []
    for _ in range(unpacker.count()):
        tokens.append(unpacker.piece(TOKEN_BYTES))
        numbers.append(unpacker.integer())
    return HandedLocks(left_ms, tokens, numbers, session_id, session, shared)


def handed_over(ledger: Ledger) -> HandOver:
    """What is locked and held now, by the clock that the ledger has read."""
    handed = [_handed(ledger, batch, None) for batch in ledger.locks.batches()]
    if ledger.sessions is not None:
        handed += [_handed(ledger, held.batch, held) for held in ledger.sessions.holds()]
    return HandOver(ledger.lock_counter, handed)


def _handed(ledger: Ledger, batch: LockBatch, held: HeldSession | None) -> HandedLocks:
    tokens = ledger.locks.tokens_of(batch)
    numbers = [ledger.locks.number_of(token) for token in tokens]
    left_ms = batch.deadline_ms - ledger.steady_ms
    if held is None:
        return HandedLocks(left_ms, tokens, numbers)
    return HandedLocks(left_ms, tokens, numbers, held.session_id, held.token, held.shared)


def take_over(ledger: Ledger, handed: HandOver, entries: list[Entry | None]) -> None:
    """Lock and hold what was handed over, as long as is left by the clock of here.

    A message that is gone is locked by nobody.
    """
    found: dict[int, Entry] = {}
    for entry in entries:
        if entry is not None:
            # As of all that is locked, the store has the payload.
            entry.payload = None
            found[entry.sequence_number] = entry
    ledger.lock_counter = handed.lock_counter
    for locks in handed.locks:
        pairs = zip(locks.tokens, locks.numbers, strict=True)
        held = [(token, found[number]) for token, number in pairs if number in found]
        tokens = [token for token, _ in held]
        locked = [entry for _, entry in held]
        deadline_ms = ledger.steady_ms + locks.left_ms
        if locks.session_id is None:
            if held:
                ledger.locks.hold(locked, tokens, deadline_ms)
        else:
            batch = _hold_session(ledger, locks, locks.session_id, deadline_ms)
            ledger.locks.hold_in_session(batch, locked, tokens)
        if ledger.journal is not None:
            # A lock that was renewed twice at once is listed twice.
            ledger.journal.locked(list(dict.fromkeys(locked)), "", ledger.steady_ms)


def _hold_session(
    ledger: Ledger, locks: HandedLocks, session_id: str, deadline_ms: int
) -> LockBatch:
    sessions = ledger.sessions
    if sessions is None:
        raise ValueError(f"session {session_id!r} was handed over, and the entity has none")
    batch = LockBatch(deadline_ms, [], is_session=True)
    line = sessions.new_line(ledger.counters.lines[MAIN_LINE].count > 0)
    sessions.hold(HeldSession(session_id, locks.session, line, batch, locks.shared))
    return batch
