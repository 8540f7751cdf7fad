"""The messages of a fragment and the moves they can make.

Each move changes the counters, the messages in memory and the list of changes to store together.
The rules about when to make which move are in `fragment`, `calendar` and `sessions.holding`.
"""

from __future__ import annotations

from typing import Final, final

from shardbus.core.fragment.bounds import Bounds
from shardbus.core.fragment.change import Append, Change, Counters, Remove, Update
from shardbus.core.fragment.command import FragmentRules
from shardbus.core.fragment.counting import count_in, count_out
from shardbus.core.fragment.line import Line
from shardbus.core.fragment.lock import LockTable
from shardbus.core.lifecycle import rows as events
from shardbus.core.lifecycle.journal import Journal
from shardbus.core.message import (
    ACTIVE,
    DEAD_LETTER_LINE,
    DEFERRED,
    DELAYED,
    MAIN_LINE,
    NEVER_MS,
    SET_ASIDE,
    Entry,
)
from shardbus.core.properties import merge
from shardbus.core.readers.record import ReaderTable
from shardbus.core.sequence import counter_of
from shardbus.core.sessions.table import SessionTable

EXHAUSTED: Final = "MaxDeliveryCountExceeded"
EXPIRED: Final = "TTLExpiredException"


@final
class Ledger:
    """One fragment's messages: counts of all of them, and in memory those at the front of the
    lines.
    """

    def __init__(
        self, rules: FragmentRules, counters: Counters, next_due_ms: int, bounds: Bounds
    ) -> None:
        # The steady clock's reading for the command that is being decided. Durations are measured
        # by it, moments by the `now_ms` that is passed along (docs/adr/0035-two-clocks.md).
        self.steady_ms = NEVER_MS
        self.rules = rules
        self.counters = counters
        self.next_due_ms = next_due_ms
        self.bounds = bounds
        self.changes: list[Change] = []
        # Where events of messages are noted; None unless the entity asks for it.
        self.journal: Journal | None = None
        # For a topic: the messages that its subscriptions are to get, and the bytes they hold
        # already.
        self.published: list[Entry] = []
        self.subscribed_bytes = 0
        # Why the store accepts no additions; empty while it does.
        self.shortage = ""
        # The bytes that are staged, and the ids of staged messages whose publication is promised.
        self.staged_bytes = 0
        self.promised_ids = 0
        # How many bytes must be read from the store before the pending replies can be given.
        self.lacking_bytes = 0
        self.locks = LockTable()
        self.readers = ReaderTable()
        self.lock_counter = 0
        # How many messages have come and gone since the fragment was loaded: two readings give
        # rates.
        self.arrived = 0
        self.departed = 0
        # Where sessions are required, this table takes the place of the main line.
        self.sessions: SessionTable | None = None
        self.lines: list[Line] = []
        for number, line in enumerate(counters.lines):
            has_tail = line.count > 0
            if number == MAIN_LINE and rules.requires_session:
                self.sessions = SessionTable(bounds, has_tail, self.locks)
                has_tail = False
            self.lines.append(_new_line(has_tail, bounds))

    def note_due(self, at_ms: int) -> None:
        """Note that time changes a message at this moment (NEVER_MS: never)."""
        if at_ms != NEVER_MS and (self.next_due_ms == NEVER_MS or at_ms < self.next_due_ms):
            self.next_due_ms = at_ms

    def moment_of(self, deadline_ms: int, now_ms: int) -> int:
        """A deadline of the steady clock as a moment of the present wall clock."""
        return now_ms + deadline_ms - self.steady_ms

    # Coming and waiting.

    def enter(self, entries: list[Entry]) -> None:
        """Add new messages in the order of their numbers. Scheduled ones wait in the store
        alone.
        """
        self.place(entries)
        if entries:
            self.changes.append(Append(entries))

    def adopt(self, count: int, size_bytes: int) -> None:
        """Add new messages that the store already has. None of them is read before it is asked
        for.
        """
        assert self.sessions is None
        self.lines[MAIN_LINE].leave_newest()
        counters = self.counters.lines[MAIN_LINE]
        counters.count += count
        counters.size_bytes += size_bytes
        self.arrived += count

    def publish(self, entries: list[Entry]) -> None:
        """Add new messages of a topic: the topic keeps the scheduled ones, subscriptions get the
        others.

        That numbers were given out is stored even if no message is.
        """
        self.enter([entry for entry in entries if entry.state != ACTIVE])
        published = [entry for entry in entries if entry.state == ACTIVE]
        self.arrived += len(published)
        self.departed += len(published)
        self.published += published
        self.changes.append(Update([]))

    def place(self, entries: list[Entry]) -> None:
        """Count new messages and let the active ones wait."""
        line = self.lines[MAIN_LINE]
        sessions = self.sessions
        size_bytes = 0
        scheduled = 0
        for entry in entries:
            size_bytes += entry.size_bytes
            if entry.state != ACTIVE:
                scheduled += 1
            elif sessions is None:
                line.append(entry)
            else:
                sessions.append(entry)
        counters = self.counters.lines[MAIN_LINE]
        counters.size_bytes += size_bytes
        counters.scheduled += scheduled
        counters.count += len(entries) - scheduled
        self.arrived += len(entries)

    def take(self, line: Line, count_max: int, now_ms: int) -> list[Entry]:
        """Take the next unexpired messages of a line, in order."""
        taken: list[Entry] = []
        expired: list[Entry] = []
        while len(taken) < count_max:
            entry = line.take()
            if entry is None:
                break
            if entry.expires_at_ms != NEVER_MS and entry.is_expired(now_ms):
                expired.append(entry)
            else:
                taken.append(entry)
        if expired:
            self.expire(expired)
        return taken

    def take_to_lock(self, line: Line, count_max: int, now_ms: int) -> list[Entry]:
        """Like `take`, but only as many messages without payload as one read of the store can
        bring.

        A message that is larger than that is taken alone. The messages that do not fit, and all
        behind them, keep their places.
        """
        taken: list[Entry] = []
        expired: list[Entry] = []
        bytes_left = self.bounds.page_bytes_max
        has_unread = False
        while len(taken) < count_max:
            entry = line.take()
            if entry is None:
                break
            if entry.expires_at_ms != NEVER_MS and entry.is_expired(now_ms):
                expired.append(entry)
                continue
            if entry.payload is None:
                if has_unread and entry.size_bytes > bytes_left:
                    line.put_back(entry)
                    break
                bytes_left -= entry.size_bytes
                has_unread = True
            taken.append(entry)
        if expired:
            self.expire(expired)
        if has_unread:
            self.lacking_bytes += self.bounds.page_bytes_max - bytes_left
        return taken

    def take_some(self, line: Line, count_max: int, bytes_max: int, now_ms: int) -> list[Entry]:
        """Like `take`, but at most `bytes_max` bytes, unless the first message alone is larger."""
        taken: list[Entry] = []
        expired: list[Entry] = []
        size_bytes = 0
        while len(taken) < count_max:
            entry = line.take()
            if entry is None:
                break
            if entry.is_expired(now_ms):
                expired.append(entry)
                continue
            size_bytes += entry.size_bytes
            if taken and size_bytes > bytes_max:
                line.put_back(entry)
                break
            taken.append(entry)
        if expired:
            self.expire(expired)
        return taken

    def is_taken(self, sequence_number: int) -> bool:
        """Whether a message is locked, promised, being transferred, or claimed."""
        return self.locks.is_locked(sequence_number) or self.readers.held.contains(sequence_number)

    def untaken(self, entries: list[Entry]) -> list[Entry]:
        """The messages that are not taken, so that they may wait or be changed by time."""
        locks = self.locks
        free = [entry for entry in entries if not locks.is_locked(entry.sequence_number)]
        held = self.readers.held
        if held.count == 0:
            return free
        return [entry for entry in free if not held.contains(entry.sequence_number)]

    def pass_over_claimed(self, line: Line) -> None:
        """Skip a front of the line that is claimed entirely: the store need not be asked for it."""
        held = self.readers.held
        if held.count > 0:
            line.pass_over(held.end_of(line.end + 1))

    def wait_again(self, entry: Entry) -> None:
        """Let an active message wait again at its own place, and note when it expires."""
        self.note_due(entry.due_ms())
        if self.sessions is not None and entry.line == MAIN_LINE:
            self.sessions.put_back(entry)
        else:
            self.lines[entry.line].put_back(entry)

    def release(self, entries: list[Entry], now_ms: int) -> None:
        """Give back messages whose delivery did not fail."""
        if self.journal is not None:
            self.journal.released(entries, self.steady_ms)
        self.give_back(entries, now_ms)

    def give_back(self, entries: list[Entry], now_ms: int) -> None:
        """Let unlocked messages wait again, deferred ones in the store. Expired ones are
        removed.
        """
        expired: list[Entry] = []
        for entry in entries:
            if entry.is_expired(now_ms):
                expired.append(entry)
            elif entry.state == ACTIVE:
                self.wait_again(entry)
            else:
                self.note_due(entry.due_ms())
        if expired:
            self.expire(expired)

    # Changing.

    def fail(
        self,
        entries: list[Entry],
        now_ms: int,
        modified: bytes,
        delay_ms: int,
        event: int = events.LOCK_LOST,
    ) -> None:
        """Count failed deliveries, and return the messages to the line or dead-letter them at the
        limit.

        Deliveries from the dead-letter line are not counted. `event` is how they failed.
        """
        limit = self.rules.delivery_count_max
        exhausted: list[Entry] = []
        returned: list[Entry] = []
        for entry in entries:
            if modified:
                entry.modified = merge(entry.modified, modified)
            if entry.line == MAIN_LINE:
                entry.delivery_count += 1
                if entry.delivery_count >= limit:
                    exhausted.append(entry)
                    continue
            returned.append(entry)
        if self.journal is not None:
            self.journal.moved(event, entries)
        if returned:
            if delay_ms > 0:
                self._delay(returned, now_ms, now_ms + delay_ms)
            self.changes.append(Update(returned))
            self.give_back(returned, now_ms)
        if exhausted:
            self._exhaust(exhausted)

    def defer(self, entries: list[Entry], now_ms: int, modified: bytes) -> None:
        """Defer messages and count the deliveries that end in this way.

        At the delivery limit only messages that were deferred before are dead-lettered: a message
        that is deferred for the first time can be received at least once more.
        """
        limit = self.rules.delivery_count_max
        exhausted: list[Entry] = []
        deferred: list[Entry] = []
        for entry in entries:
            if modified:
                entry.modified = merge(entry.modified, modified)
            if entry.line == MAIN_LINE:
                entry.delivery_count += 1
                if entry.state == DEFERRED and entry.delivery_count >= limit:
                    exhausted.append(entry)
                    continue
            self._move(entry, DEFERRED)
            deferred.append(entry)
        if deferred:
            if self.journal is not None:
                self.journal.moved(events.DEFER, deferred)
            self.changes.append(Update(deferred))
            self.give_back(deferred, now_ms)
        if exhausted:
            self._exhaust(exhausted)

    def _exhaust(self, entries: list[Entry]) -> None:
        limit = self.rules.delivery_count_max
        text = f"Message could not be consumed after {limit} delivery attempts."
        self.dead_letter(entries, EXHAUSTED, text)

    def activate(self, entries: list[Entry]) -> None:
        """Let delayed messages be delivered again."""
        for entry in entries:
            entry.delayed_until_ms = NEVER_MS
            self._move(entry, ACTIVE)
            self.wait_again(entry)
        if entries:
            if self.journal is not None:
                self.journal.moved(events.ACTIVATE, entries)
            self.changes.append(Update(entries))

    def _delay(self, entries: list[Entry], now_ms: int, until_ms: int) -> None:
        delayed: list[Entry] = []
        for entry in entries:
            if entry.state != ACTIVE or entry.is_expired(now_ms):
                continue
            expires_at_ms = entry.expires_at_ms
            is_sooner = NEVER_MS < expires_at_ms < until_ms
            entry.delayed_until_ms = expires_at_ms if is_sooner else until_ms
            self._move(entry, DELAYED)
            delayed.append(entry)
        if self.journal is not None:
            self.journal.moved(events.DELAY, delayed)

    def _move(self, entry: Entry, state: int) -> None:
        count_out(self.counters, entry)
        entry.state = state
        count_in(self.counters, entry)

    # Going.

    def expire(self, entries: list[Entry]) -> None:
        """End expired messages. Deferred ones are never dead-lettered."""
        if not self.rules.dead_letters_on_expiration:
            self.forget(entries, events.EXPIRE)
            return
        self.forget([entry for entry in entries if entry.state == DEFERRED], events.EXPIRE)
        self.dead_letter(
            [entry for entry in entries if entry.state != DEFERRED],
            EXPIRED,
            "The message expired and was dead lettered.",
        )

    def dead_letter(
        self,
        entries: list[Entry],
        reason: str | None,
        description: str | None,
        line: int = DEAD_LETTER_LINE,
    ) -> None:
        if not entries:
            return
        if self.journal is not None:
            is_dead = line == DEAD_LETTER_LINE
            event = events.DEAD_LETTER if is_dead else events.TRANSFER_DEAD_LETTER
            self.journal.moved(event, entries, reason)
        for entry in entries:
            count_out(self.counters, entry)
            entry.line = line
            entry.state = ACTIVE
            entry.delayed_until_ms = NEVER_MS
            entry.expires_at_ms = NEVER_MS  # Time to live does not apply to dead letters.
            entry.reason = reason
            entry.description = description
            count_in(self.counters, entry)
            self.lines[line].put_back(entry)
        self.changes.append(Update(entries))

    def forget(self, entries: list[Entry], event: int) -> None:
        """Remove messages for good; `event` is the reason."""
        if not entries:
            return
        if self.journal is not None:
            self.journal.moved(event, entries)
        self.departed += len(entries)
        for entry in entries:
            if entry.state == ACTIVE:
                counters = self.counters.lines[entry.line]
                counters.count -= 1
                counters.size_bytes -= entry.size_bytes
            else:
                count_out(self.counters, entry)
        self.changes.append(Remove([entry.sequence_number for entry in entries]))

    # Damage.

    def set_aside(self, sequence_numbers: list[int], line_number: int) -> int:
        """Set damaged messages aside, whether they are waiting or locked."""
        numbers = set(sequence_numbers)
        found = self._drop(numbers)
        self._withdraw(found, sorted(numbers), line_number)
        return len(sequence_numbers)

    def set_taken_aside(self, sequence_numbers: list[int]) -> int:
        """Like `set_aside`, for messages that were taken and then could not be read; returns how
        many.

        A message that is neither in memory nor claimed any more was removed, or will be read later.
        """
        numbers = set(sequence_numbers)
        found = self._drop(numbers)
        claimed = [number for number in sorted(numbers) if self.readers.held.contains(number)]
        if found or claimed:
            self._withdraw(found, claimed, MAIN_LINE)
        return len(found) + len(claimed)

    def _drop(self, numbers: set[int]) -> list[Entry]:
        """Drop messages from memory; `numbers` keeps those that were not in memory."""
        found: list[Entry] = []
        for line in self.lines:
            found += line.drop(numbers)
        if self.sessions is not None:
            found += self.sessions.drop_anywhere(numbers)
        found += self.locks.drop(numbers)
        for entry in found:
            numbers.discard(entry.sequence_number)
        return found

    def _withdraw(self, entries: list[Entry], numbers: list[int], line_number: int) -> None:
        for entry in entries:
            self._move(entry, SET_ASIDE)
        self.changes += self.readers.leave(dict.fromkeys(numbers, 0))
        # The record of a message that was never read into memory is unreadable, so its size is
        # unknown and remains counted.
        unread = [self._unread(number, line_number) for number in numbers]
        if self.journal is not None:
            self.journal.moved(events.SET_ASIDE, entries)
            self.journal.gone(events.SET_ASIDE, numbers)
        self.changes.append(Update(entries + unread))

    def set_entries_aside(self, entries: list[Entry]) -> None:
        """Set damaged messages aside whose line and state the store could tell."""
        if not entries:
            return
        numbers = {entry.sequence_number for entry in entries}
        for line in self.lines:
            line.drop(numbers)
        if self.sessions is not None:
            self.sessions.drop_anywhere(numbers)
        self.locks.drop(numbers)
        self.changes += self.readers.leave(
            {entry.sequence_number: entry.size_bytes for entry in entries}
        )
        for entry in entries:
            self._move(entry, SET_ASIDE)
        if self.journal is not None:
            self.journal.moved(events.SET_ASIDE, entries)
        self.changes.append(Update(entries))

    def _unread(self, number: int, line_number: int) -> Entry:
        assert counter_of(number) <= self.counters.last_counter
        self.counters.lines[line_number].count -= 1
        self.counters.set_aside += 1
        return Entry(number, None, 0, enqueued_at_ms=0, line=line_number, state=SET_ASIDE)


def _new_line(has_tail: bool, bounds: Bounds) -> Line:
    return Line(
        has_tail,
        count_max=bounds.window_count_max,
        bytes_max=bounds.window_bytes_max,
        count_low=bounds.window_count_low,
        page_bytes_max=bounds.page_bytes_max,
    )
