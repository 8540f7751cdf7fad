"""The fragment: one ordered slice of an entity, as a pure state machine (D1, D2).

`apply` decides; the caller makes the changes durable and only then passes the reply on. Locks and
the windows of waiting messages live in memory alone. A Fragment whose changes could not be
committed must be thrown away and made anew from the store.
"""

from __future__ import annotations

from typing import Final, final

from shardbus.core.change import Append, Change, Counters, Remove, Update
from shardbus.core.command import (
    ABANDON,
    COMPLETE,
    DEAD_LETTER,
    RELEASE,
    Command,
    Configure,
    Delivery,
    Done,
    FragmentRules,
    Purge,
    Purged,
    Receive,
    Received,
    Renew,
    Renewed,
    Reply,
    Send,
    Sent,
    SetAside,
    Settle,
    Settled,
    Tick,
)
from shardbus.core.errors import (
    MESSAGE_LOCK_LOST,
    NOT_ALLOWED,
    QUOTA_EXCEEDED,
    Refused,
)
from shardbus.core.limits import LOCKS_MAX, PAGE_BYTES_MAX
from shardbus.core.line import Line
from shardbus.core.lock import LockTable
from shardbus.core.message import (
    ACTIVE,
    DEAD_LETTER_LINE,
    MAIN_LINE,
    NEVER_MS,
    SET_ASIDE,
    Entry,
    Message,
)
from shardbus.core.sequence import counter_of, lock_token, sequence_number

LOCK_LOST_TEXT: Final = (
    "The lock supplied is invalid. Either the lock expired, or the message has already been "
    "removed from the queue, or was received by a different receiver instance."
)
# Expired messages that are locked stay due in the store; this is when to look at them again.
DUE_RETRY_MS: Final = 1_000


@final
class Outcome:
    """What a command led to: changes to commit, then the reply to give, then when to come back."""

    def __init__(self, changes: list[Change], reply: Reply, wake_at_ms: int) -> None:
        self.changes = changes
        self.reply = reply
        self.wake_at_ms = wake_at_ms


@final
class Fragment:
    """One fragment with its lines: main, dead-letter and transfer dead-letter."""

    def __init__(
        self, number: int, rules: FragmentRules, counters: Counters, next_due_ms: int
    ) -> None:
        self.number = number
        self.rules = rules
        self.counters = counters
        self._lines = [Line(has_tail=line.count > 0) for line in counters.lines]
        self._locks = LockTable()
        self._lock_counter = 0
        self._next_due_ms = next_due_ms
        self._wanted_line = -1
        self._delivered: list[Entry] = []
        self._changes: list[Change] = []

    def apply(self, command: Command, now_ms: int) -> Outcome:
        """Decide. `Refused` means that nothing has changed."""
        self._changes = []
        reply = self._decide(command, now_ms)
        return Outcome(self._changes, reply, self.wake_at_ms())

    def _decide(self, command: Command, now_ms: int) -> Reply:
        if isinstance(command, Send):
            return self._send(command, now_ms)
        if isinstance(command, Receive):
            return self._receive(command, now_ms)
        if isinstance(command, Settle):
            return self._settle(command, now_ms)
        if isinstance(command, Renew):
            return self._renew(command, now_ms)
        if isinstance(command, Purge):
            return self._purge(command, now_ms)
        if isinstance(command, SetAside):
            return Purged(self._set_aside(command.sequence_numbers, MAIN_LINE))
        if isinstance(command, Configure):
            self.rules = command.rules
            return Done()
        assert isinstance(command, Tick)
        return self._tick(now_ms)

    def receive_beside(self, command: Receive, now_ms: int) -> Received | None:
        """Answer a locking receive while removals are being stored; None: it must wait its turn.

        It changes nothing that is stored, so it may run beside a commit, unless it would come upon
        a message that is expired or whose payload the store alone has.
        """
        if not command.is_locking:
            return None
        count_max = min(command.count_max, LOCKS_MAX - len(self._locks))
        front = self._lines[command.line].front(count_max) if count_max > 0 else []
        for entry in front:
            if entry.payload is None or entry.is_expired(now_ms):
                return None
        return self._receive(command, now_ms) if front else None

    # What the runner asks between commands.

    def wake_at_ms(self) -> int:
        """When `Tick` (or `due_in`) has something to do; NEVER_MS if nothing is pending."""
        deadline_ms = self._locks.next_deadline_ms()
        if deadline_ms == NEVER_MS or NEVER_MS < self._next_due_ms < deadline_ms:
            return self._next_due_ms
        return deadline_ms

    def is_ready(self, line: int) -> bool:
        """Whether a receive on this line would find something, in memory or in the store."""
        waiting = self._lines[line]
        return (len(waiting) > 0 or waiting.has_tail) and len(self._locks) < LOCKS_MAX

    def must_page(self, line: int) -> bool:
        """Whether messages wait in the store alone, so that a page must be read before a receive.

        If so, `wanted_page` will say so too.
        """
        waiting = self._lines[line]
        if len(waiting) > 0 or not waiting.has_tail:
            return False
        self._wanted_line = line
        return True

    def unread(self, line: int, count_max: int) -> list[int]:
        """Messages to read from the store before they can be received and deleted.

        None unless the very next one lacks its payload: once removed, it cannot be read any more.
        """
        numbers: list[int] = []
        size_bytes = 0
        for entry in self._lines[line].front(count_max):
            if entry.payload is not None and not numbers:
                break
            size_bytes += entry.size_bytes
            if numbers and size_bytes > PAGE_BYTES_MAX:
                break
            if entry.payload is None:
                numbers.append(entry.sequence_number)
        return numbers

    def payloads_in(self, line: int, payloads: dict[int, bytes | None]) -> list[Change]:
        """Take over payloads that were read while no command was applied; None is damaged."""
        self._changes = []
        self._lines[line].fill(payloads)
        damaged = [number for number, payload in payloads.items() if payload is None]
        if damaged:
            self._set_aside(damaged, line)
        return self._changes

    def locked(self) -> int:
        return len(self._locks)

    def after_commit(self) -> None:
        """Forget the payloads of delivered messages: the store has them, should they come back."""
        for entry in self._delivered:
            if self._locks.is_locked(entry.sequence_number):
                entry.payload = None
        self._delivered = []

    def wanted_page(self) -> int:
        """The line of which the next page should be read from the store, -1 for none."""
        line, self._wanted_line = self._wanted_line, -1
        return line if line >= 0 and self._lines[line].is_low() else -1

    def page_start(self, line: int) -> int:
        """The sequence number after which the next page of a line begins."""
        return self._lines[line].end

    def page_in(
        self, line: int, entries: list[Entry], damaged: list[int], is_end: bool
    ) -> list[Change]:
        """Take over a page that was read while no command was applied."""
        self._changes = []
        covered_to = max(
            entries[-1].sequence_number if entries else 0, damaged[-1] if damaged else 0
        )
        fresh = [e for e in entries if not self._locks.is_locked(e.sequence_number)]
        self._lines[line].page_in(fresh, is_end, covered_to)
        if damaged:
            self._set_aside(damaged, line)
        return self._changes

    def wants_due(self, now_ms: int) -> bool:
        """Whether expired messages should be read from the store."""
        return NEVER_MS < self._next_due_ms <= now_ms

    def due_in(self, entries: list[Entry], next_due_ms: int, now_ms: int) -> list[Change]:
        """Expire messages that the store found due while no command was applied."""
        self._changes = []
        line = self._lines[MAIN_LINE]
        expired = line.take_expired(now_ms)
        if line.has_tail:
            expired += [
                e
                for e in entries
                if e.sequence_number > line.end
                and e.state == ACTIVE
                and not self._locks.is_locked(e.sequence_number)
            ]
        self._expire(expired)
        is_stuck = not expired and NEVER_MS < next_due_ms <= now_ms
        self._next_due_ms = now_ms + DUE_RETRY_MS if is_stuck else next_due_ms
        return self._changes

    # Commands.

    def _send(self, command: Send, now_ms: int) -> Sent:
        if self.counters.total_bytes() >= self.rules.size_bytes_max:
            raise Refused(
                QUOTA_EXCEEDED,
                f"The maximum entity size has been reached: fragment {self.number} holds "
                f"{self.counters.total_bytes()} bytes of {self.rules.size_bytes_max}. "
                "Receive or purge messages, or use a larger entity.",
            )
        first = self.counters.last_counter + 1
        entries = self._entries(command.messages, first, now_ms)
        self.counters.last_counter += len(entries)
        counters = self.counters.lines[MAIN_LINE]
        line = self._lines[MAIN_LINE]
        for entry in entries:
            counters.size_bytes += entry.size_bytes
            line.append(entry)
        counters.count += len(entries)
        if entries:
            self._changes.append(Append(entries))
        return Sent(sequence_number(self.number, first), len(entries))

    def _entries(self, messages: list[Message], counter: int, now_ms: int) -> list[Entry]:
        default_ttl_ms = self.rules.default_ttl_ms
        number = sequence_number(self.number, counter)
        entries: list[Entry] = []
        for message in messages:
            ttl_ms = message.ttl_ms
            if ttl_ms < 0 or 0 <= default_ttl_ms < ttl_ms:
                ttl_ms = default_ttl_ms
            expires_at_ms = NEVER_MS if ttl_ms < 0 else now_ms + ttl_ms
            if expires_at_ms != NEVER_MS and (
                self._next_due_ms == NEVER_MS or expires_at_ms < self._next_due_ms
            ):
                self._next_due_ms = expires_at_ms
            payload = message.payload
            entries.append(
                Entry(
                    number,
                    payload,
                    len(payload),
                    enqueued_at_ms=now_ms,
                    expires_at_ms=expires_at_ms,
                )
            )
            number += 1
        return entries

    def _receive(self, command: Receive, now_ms: int) -> Received:
        room = LOCKS_MAX - len(self._locks) if command.is_locking else command.count_max
        entries = self._take(command.line, min(command.count_max, room), now_ms)
        deliveries: list[Delivery] = []
        if not command.is_locking:
            entries = self._with_payload(entries)
            for entry in entries:
                deliveries.append(Delivery(entry, entry.payload, entry.delivery_count, b"", 0))
            self._forget(entries)
            return Received(deliveries, self.is_ready(command.line))
        tokens: list[bytes] = []
        deadline_ms = now_ms + self.rules.lock_ms
        counter = self._lock_counter
        for entry in entries:
            counter += 1
            token = lock_token(self.number, counter, command.token_seed)
            tokens.append(token)
            deliveries.append(
                Delivery(entry, entry.payload, entry.delivery_count, token, deadline_ms)
            )
        self._lock_counter = counter
        if entries:
            self._locks.hold(entries, tokens, deadline_ms)
            self._delivered += entries
        return Received(deliveries, self.is_ready(command.line))

    def _with_payload(self, entries: list[Entry]) -> list[Entry]:
        """The first of these that can be handed out and removed; the others wait on."""
        for position, entry in enumerate(entries):
            if entry.payload is None:
                for unread in entries[position:]:
                    self._lines[unread.line].put_back(unread)
                return entries[:position]
        return entries

    def _settle(self, command: Settle, now_ms: int) -> Settled:
        how = command.how
        if how == DEAD_LETTER and self._holds_dead_letter(command.tokens, now_ms):
            raise Refused(
                NOT_ALLOWED,
                "A message of a dead-letter queue cannot be dead-lettered again: "
                "complete it, abandon it, or send it to the entity anew.",
            )
        lost: list[bool] = []
        entries: list[Entry] = []
        for token in command.tokens:
            entry = self._locks.release(token, now_ms)
            lost.append(entry is None)
            if entry is not None:
                entries.append(entry)
        if how == COMPLETE:
            self._forget(entries)
        elif how == ABANDON:
            self._fail(entries, now_ms, command.modified)
        elif how == DEAD_LETTER:
            for entry in entries:
                if command.modified:
                    entry.modified = command.modified
            self._dead_letter(entries, command.reason, command.description)
        else:
            assert how == RELEASE
            self._return(entries, now_ms)
        return Settled(lost)

    def _holds_dead_letter(self, tokens: list[bytes], now_ms: int) -> bool:
        for token in tokens:
            entry = self._locks.held(token, now_ms)
            if entry is not None and entry.line != MAIN_LINE:
                return True
        return False

    def _renew(self, command: Renew, now_ms: int) -> Renewed:
        for token in command.tokens:
            if self._locks.held(token, now_ms) is None:
                raise Refused(MESSAGE_LOCK_LOST, LOCK_LOST_TEXT)
        deadline_ms = now_ms + self.rules.lock_ms
        self._locks.renew(command.tokens, deadline_ms)
        return Renewed(deadline_ms)

    def _purge(self, command: Purge, now_ms: int) -> Purged:
        entries = self._take(command.line, command.count_max, now_ms)
        self._forget(entries)
        return Purged(len(entries))

    def _tick(self, now_ms: int) -> Done:
        expired = self._locks.expire(now_ms)
        if expired:
            self._fail(expired, now_ms, b"")
        return Done()

    # The moves that commands are made of.

    def _take(self, line_number: int, count_max: int, now_ms: int) -> list[Entry]:
        """The next unexpired messages of a line, in order; asks for a page when it runs low."""
        line = self._lines[line_number]
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
            self._expire(expired)
        if line.is_low():
            self._wanted_line = line_number
        return taken

    def _return(self, entries: list[Entry], now_ms: int) -> None:
        """Let messages wait again, except those that expired while they were locked."""
        expired: list[Entry] = []
        for entry in entries:
            if entry.is_expired(now_ms):
                expired.append(entry)
            else:
                self._lines[entry.line].put_back(entry)
        if expired:
            self._expire(expired)

    def _fail(self, entries: list[Entry], now_ms: int, modified: bytes) -> None:
        """Count failed deliveries: back to the line, or to the dead letters after the last."""
        limit = self.rules.max_delivery_count
        exhausted: list[Entry] = []
        returned: list[Entry] = []
        for entry in entries:
            entry.delivery_count += 1
            if modified:
                entry.modified = modified
            if entry.line == MAIN_LINE and entry.delivery_count >= limit:
                exhausted.append(entry)
            else:
                returned.append(entry)
        if returned:
            self._changes.append(Update(returned))
            self._return(returned, now_ms)
        if exhausted:
            self._dead_letter(
                exhausted,
                "MaxDeliveryCountExceeded",
                f"Message could not be consumed after {limit} delivery attempts.",
            )

    def _expire(self, entries: list[Entry]) -> None:
        if self.rules.dead_letters_on_expiry:
            self._dead_letter(
                entries, "TTLExpiredException", "The message expired and was dead lettered."
            )
        else:
            self._forget(entries)

    def _dead_letter(
        self, entries: list[Entry], reason: str | None, description: str | None
    ) -> None:
        if not entries:
            return
        target = self.counters.lines[DEAD_LETTER_LINE]
        for entry in entries:
            source = self.counters.lines[entry.line]
            source.count -= 1
            source.size_bytes -= entry.size_bytes
            target.count += 1
            target.size_bytes += entry.size_bytes
            entry.line = DEAD_LETTER_LINE
            entry.expires_at_ms = NEVER_MS  # Time to live is not observed among dead letters.
            entry.reason = reason
            entry.description = description
            self._lines[DEAD_LETTER_LINE].put_back(entry)
        self._changes.append(Update(entries))

    def _forget(self, entries: list[Entry]) -> None:
        if not entries:
            return
        for entry in entries:
            counters = self.counters.lines[entry.line]
            counters.count -= 1
            counters.size_bytes -= entry.size_bytes
        self._changes.append(Remove([entry.sequence_number for entry in entries]))

    def _set_aside(self, sequence_numbers: list[int], line_number: int) -> int:
        """Take damaged messages out of service, wherever they are waiting or locked."""
        numbers = set(sequence_numbers)
        found: list[Entry] = []
        for line in self._lines:
            found += line.drop(numbers)
        found += self._locks.drop(numbers)
        for entry in found:
            numbers.discard(entry.sequence_number)
            self._count_aside(entry)
        # A message known by its number alone was never read into memory: its record is unreadable,
        # so its size is not known and stays counted.
        unread = [self._unread(number, line_number) for number in sorted(numbers)]
        self._changes.append(Update(found + unread))
        return len(sequence_numbers)

    def _count_aside(self, entry: Entry) -> None:
        counters = self.counters.lines[entry.line]
        counters.count -= 1
        counters.size_bytes -= entry.size_bytes
        self.counters.set_aside += 1
        entry.state = SET_ASIDE

    def _unread(self, number: int, line_number: int) -> Entry:
        assert counter_of(number) <= self.counters.last_counter
        self.counters.lines[line_number].count -= 1
        self.counters.set_aside += 1
        return Entry(number, None, 0, enqueued_at_ms=0, line=line_number, state=SET_ASIDE)
