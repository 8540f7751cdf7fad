"""Which receiver holds which message until when. Locks live in memory only: a restart ends them.

Deadlines are readings of the steady clock: setting the wall clock neither ends nor prolongs a lock.
"""

from __future__ import annotations

import heapq
from typing import final

from shardbus.core.limits import LOCKS_ENDED_MAX, SESSION_GRACE_MS
from shardbus.core.message import NEVER_MS, Entry
from shardbus.core.sequence import TOKEN_SEED_BYTES


@final
class LockBatch:
    """The locks that one receive or renewal made, or all locks of a session; they share a deadline.

    A session moves the deadline of its batch, so that deadline is not in the table's heap.
    """

    def __init__(self, deadline_ms: int, tokens: list[bytes], is_session: bool = False) -> None:
        self.deadline_ms = deadline_ms
        self.tokens = tokens
        self.held = len(tokens)
        self.is_session = is_session

    def told_ms(self) -> int:
        """The end of the locks for their receiver; sessions are held a little longer."""
        return self.deadline_ms - (SESSION_GRACE_MS if self.is_session else 0)


@final
class Lock:
    def __init__(self, entry: Entry, batch: LockBatch) -> None:
        self.entry = entry
        self.batch = batch


@final
class LockTable:
    """The locks of one fragment, by token and by deadline."""

    def __init__(self) -> None:
        self._locks: dict[bytes, Lock] = {}
        self._locked: set[int] = set()
        # Batches by deadline. Batches without held locks are dropped in bulk, so that the heap
        # grows with the number of held locks and not with the traffic of the last lock duration.
        self._deadlines: list[tuple[int, int, LockBatch]] = []
        self._batch_number = 0
        self._empty_batches = 0
        # Messages that transactions and transfers keep from everybody; None: not in memory.
        self._pinned: dict[int, Entry | None] = {}

    def __len__(self) -> int:
        return len(self._locks)

    def is_locked(self, sequence_number: int) -> bool:
        return sequence_number in self._locked

    def hold(self, entries: list[Entry], tokens: list[bytes], deadline_ms: int) -> None:
        batch = self._new_batch(tokens, deadline_ms)
        for entry, token in zip(entries, tokens, strict=True):
            self._locks[token] = Lock(entry, batch)
            self._locked.add(entry.sequence_number)

    def hold_in_session(self, batch: LockBatch, entries: list[Entry], tokens: list[bytes]) -> None:
        """Lock messages for as long as a session is held."""
        for entry, token in zip(entries, tokens, strict=True):
            self._locks[token] = Lock(entry, batch)
            self._locked.add(entry.sequence_number)
        batch.tokens += tokens
        batch.held += len(tokens)
        if len(batch.tokens) > 2 * batch.held + 64:
            batch.tokens = [token for token in batch.tokens if self._is_in(token, batch)]

    def end_session(self, batch: LockBatch) -> list[Entry]:
        """End every lock of a session; returns the messages in the order in which they were
        locked.
        """
        ended = self._end(batch)
        batch.tokens = []
        batch.held = 0
        return ended

    def deadline_ms(self, token: bytes) -> int:
        """When a lock that is held ends."""
        return self._locks[token].batch.deadline_ms

    def held(self, token: bytes, steady_ms: int) -> Entry | None:
        """The message that this token locks; None from the deadline on, even before `expire`
        ran.
        """
        lock = self._locks.get(token)
        if lock is None or lock.batch.deadline_ms <= steady_ms:
            return None
        return lock.entry

    def release(self, token: bytes, steady_ms: int) -> Entry | None:
        """End a lock that is still held; None if it is not held."""
        lock = self._locks.get(token)
        if lock is None or lock.batch.deadline_ms <= steady_ms:
            return None
        del self._locks[token]
        self._locked.discard(lock.entry.sequence_number)
        self._leave(lock.batch)
        return lock.entry

    def of_seed(self, token: bytes) -> list[bytes]:
        """The tokens of all locks with this token's seed, in the order in which they were made."""
        seed = token[-TOKEN_SEED_BYTES:]
        return [each for each in self._locks if each.endswith(seed)]

    def renew(self, tokens: list[bytes], deadline_ms: int) -> None:
        """Move the deadline of held locks; locks in a session keep the session's deadline."""
        moved = [token for token in tokens if not self._locks[token].batch.is_session]
        if not moved:
            return
        batch = self._new_batch(moved, deadline_ms)
        for token in moved:
            lock = self._locks[token]
            self._leave(lock.batch)
            lock.batch = batch

    def batch_of(self, token: bytes) -> LockBatch:
        """The batch of a held lock."""
        return self._locks[token].batch

    def batches(self) -> list[LockBatch]:
        """Locks that share a deadline, the soonest first, without those of sessions."""
        return [item[2] for item in sorted(self._deadlines, key=_due) if item[2].held > 0]

    def tokens_of(self, batch: LockBatch) -> list[bytes]:
        """The locks of a batch that are held, be it overdue."""
        return [token for token in batch.tokens if self._is_in(token, batch)]

    def number_of(self, token: bytes) -> int:
        """The message of a lock that is held."""
        return self._locks[token].entry.sequence_number

    def pin(self, token: bytes) -> Entry:
        """Turn a held lock into a pin, which has neither deadline nor holder."""
        lock = self._locks.pop(token)
        self._leave(lock.batch)
        self._pinned[lock.entry.sequence_number] = lock.entry
        return lock.entry

    @property
    def has_pinned(self) -> bool:
        return len(self._pinned) > 0

    def pin_unread(self, sequence_number: int) -> None:
        """Pin a message that only the store has."""
        self._pinned[sequence_number] = None
        self._locked.add(sequence_number)

    def pin_entry(self, entry: Entry) -> None:
        """Pin a message that nobody has locked."""
        self._pinned[entry.sequence_number] = entry
        self._locked.add(entry.sequence_number)

    def pinned(self, sequence_number: int) -> Entry | None:
        """A pinned message; None if it is not pinned, or if only the store has it."""
        return self._pinned.get(sequence_number)

    def is_unread(self, sequence_number: int) -> bool:
        """Whether a message is pinned and only the store has it."""
        return sequence_number in self._pinned and self._pinned[sequence_number] is None

    def unpin(self, sequence_number: int, read: Entry | None) -> Entry | None:
        """Unpin a message and return it; `read` if only the store had it. None: the message is
        gone.
        """
        if sequence_number not in self._pinned:
            return None
        entry = self._pinned.pop(sequence_number)
        self._locked.discard(sequence_number)
        return read if entry is None else entry

    def expire(self, steady_ms: int) -> list[Entry]:
        """End locks whose deadline has come; returns the messages in the order they were locked.

        It ends as many as one step may; `next_deadline_ms` says whether there are more.
        """
        expired: list[Entry] = []
        while (
            self._deadlines
            and len(expired) < LOCKS_ENDED_MAX
            and (self._deadlines[0][0] <= steady_ms or self._deadlines[0][2].held == 0)
        ):
            batch = heapq.heappop(self._deadlines)[2]
            if batch.held == 0:
                self._empty_batches -= 1
                continue
            expired += self._end(batch)
        return expired

    def next_deadline_ms(self) -> int:
        while self._deadlines and self._deadlines[0][2].held == 0:
            heapq.heappop(self._deadlines)
            self._empty_batches -= 1
        return self._deadlines[0][0] if self._deadlines else NEVER_MS

    def _new_batch(self, tokens: list[bytes], deadline_ms: int) -> LockBatch:
        batch = LockBatch(deadline_ms, tokens)
        self._batch_number += 1
        heapq.heappush(self._deadlines, (deadline_ms, self._batch_number, batch))
        return batch

    def _end(self, batch: LockBatch) -> list[Entry]:
        ended: list[Entry] = []
        for token in batch.tokens:
            lock = self._locks.get(token)
            if lock is not None and lock.batch is batch:
                del self._locks[token]
                self._locked.discard(lock.entry.sequence_number)
                ended.append(lock.entry)
        return ended

    def _is_in(self, token: bytes, batch: LockBatch) -> bool:
        lock = self._locks.get(token)
        return lock is not None and lock.batch is batch

    def _leave(self, batch: LockBatch) -> None:
        batch.held -= 1
        if batch.held > 0:
            return
        batch.tokens = []
        if batch.is_session:
            return
        self._empty_batches += 1
        if self._empty_batches > 64 and self._empty_batches * 2 > len(self._deadlines):
            self._deadlines = [item for item in self._deadlines if item[2].held > 0]
            heapq.heapify(self._deadlines)
            self._empty_batches = 0

    def drop(self, sequence_numbers: set[int]) -> list[Entry]:
        """End the locks on these messages, whoever holds them."""
        tokens = [
            token
            for token, lock in self._locks.items()
            if lock.entry.sequence_number in sequence_numbers
        ]
        dropped: list[Entry] = []
        for token in tokens:
            lock = self._locks.pop(token)
            self._locked.discard(lock.entry.sequence_number)
            self._leave(lock.batch)
            dropped.append(lock.entry)
        if self._pinned:
            for number in sequence_numbers:
                entry = self.unpin(number, None)
                if entry is not None:
                    dropped.append(entry)
        return dropped


def _due(item: tuple[int, int, LockBatch]) -> tuple[int, int]:
    return item[0], item[1]
