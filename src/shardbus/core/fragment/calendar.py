"""What time does to messages: they expire, become active on schedule, or reach the end of a
delay.
"""

from __future__ import annotations

from typing import Final, final

from shardbus.core.fragment.change import Remove
from shardbus.core.fragment.counting import count_out
from shardbus.core.fragment.ledger import Ledger
from shardbus.core.lifecycle import rows as events
from shardbus.core.message import (
    ACTIVE,
    AT_ONCE_MS,
    DEFERRED,
    DELAYED,
    MAIN_LINE,
    NEVER_MS,
    SCHEDULED,
    Entry,
)
from shardbus.core.sequence import sequence_number
from shardbus.core.sessions.table import session_of

# Expired messages that are locked stay due in the store. They are read again after this time.
DUE_RETRY_MS: Final = 1_000


@final
class Calendar:
    """Moves the messages that the store found due. Of all others only the next due moment is
    known.
    """

    def __init__(self, fragment_number: int, ledger: Ledger) -> None:
        self._fragment_number = fragment_number
        self._ledger = ledger
        # Due messages that were locked when they were last read: a read must reach past them.
        self._locked = 0
        # By the steady clock, because the wall clock may be set back after this reading.
        self.deadline_ms = NEVER_MS

    def tick(self) -> None:
        """Let the store be asked again if the retry is due by now."""
        if NEVER_MS < self.deadline_ms <= self._ledger.steady_ms:
            self.deadline_ms = NEVER_MS
            self._ledger.note_due(AT_ONCE_MS)

    def count_max(self) -> int:
        """How many due messages to read, so that locked ones do not hide the others."""
        return self._ledger.bounds.due_count_max + self._locked

    def turn(
        self, entries: list[Entry], damaged: list[Entry], next_due_ms: int, now_ms: int
    ) -> None:
        """Move the due messages that were read while no command was applied."""
        ledger = self._ledger
        free = ledger.untaken(entries)
        expired = self._expired(free, now_ms)
        delayed = [e for e in free if e.state == DELAYED and not e.is_expired(now_ms)]
        scheduled = [e for e in free if e.state == SCHEDULED]
        is_stuck = not (expired or delayed or scheduled or damaged)
        self._look_again(len(entries) - len(free), next_due_ms, is_stuck, now_ms)
        if expired:
            ledger.expire(expired)
        ledger.activate(delayed)
        self._enqueue(scheduled, now_ms)
        ledger.set_entries_aside(damaged)

    def _look_again(self, locked: int, next_due_ms: int, is_stuck: bool, now_ms: int) -> None:
        is_late = NEVER_MS < next_due_ms <= now_ms
        is_hidden = locked > self._locked
        self._locked = locked if is_late else 0
        if is_stuck and is_late and not is_hidden:
            self._ledger.next_due_ms = NEVER_MS
            self.deadline_ms = self._ledger.steady_ms + DUE_RETRY_MS
        else:
            self._ledger.next_due_ms = next_due_ms

    def _expired(self, free: list[Entry], now_ms: int) -> list[Entry]:
        """The messages that have expired: those in memory by their state in memory, others by the
        store's.
        """
        ledger = self._ledger
        found = [
            e for e in free if e.state == DEFERRED or (e.state == DELAYED and e.is_expired(now_ms))
        ]
        active = [e for e in free if e.state == ACTIVE and e.line == MAIN_LINE]
        if ledger.sessions is not None:
            return found + self._expired_of_sessions(active)
        line = ledger.lines[MAIN_LINE]
        found += line.take_expired(now_ms)
        if line.has_tail:
            found += [e for e in active if e.sequence_number > line.end]
        return found

    def _expired_of_sessions(self, active: list[Entry]) -> list[Entry]:
        sessions = self._ledger.sessions
        assert sessions is not None
        numbers: dict[str, set[int]] = {}
        for entry in active:
            numbers.setdefault(session_of(entry), set()).add(entry.sequence_number)
        sessions.drop(numbers)
        return active

    def _enqueue(self, scheduled: list[Entry], now_ms: int) -> None:
        """Enqueue scheduled messages now: they get new sequence numbers and a new enqueue time."""
        if not scheduled:
            return
        ledger = self._ledger
        counters = ledger.counters
        entries: list[Entry] = []
        for old in scheduled:
            count_out(counters, old)
            counters.last_counter += 1
            entries.append(self._successor(old, counters.last_counter, now_ms))
        ledger.changes.append(Remove([old.sequence_number for old in scheduled]))
        if ledger.journal is not None:
            ledger.journal.moved(events.DUE, scheduled)
            event = events.PUBLISH if ledger.rules.is_topic else events.ENQUEUE
            ledger.journal.entered(event, entries, None)
        if ledger.rules.is_topic:
            ledger.publish(entries)
        else:
            ledger.enter(entries)

    def _successor(self, old: Entry, counter: int, now_ms: int) -> Entry:
        expires_at_ms = old.expires_at_ms
        if expires_at_ms != NEVER_MS:
            expires_at_ms += now_ms - old.scheduled_at_ms()
            if not self._ledger.rules.is_topic:
                self._ledger.note_due(expires_at_ms)
        return Entry(
            sequence_number(self._fragment_number, counter),
            old.payload,
            old.size_bytes,
            enqueued_at_ms=now_ms,
            expires_at_ms=expires_at_ms,
            modified=old.modified,
            session_id=old.session_id,
        )
