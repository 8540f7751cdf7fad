"""How messages come into a fragment: quota, sessions, duplicates, numbers and times."""

from __future__ import annotations

from typing import final

from shardbus.core.change import ForgetIds, Remember, Update
from shardbus.core.command import Send, Sent
from shardbus.core.errors import NOT_ALLOWED, QUOTA_EXCEEDED, Refused
from shardbus.core.history import History
from shardbus.core.ledger import Ledger
from shardbus.core.message import ACTIVE, NEVER_MS, SCHEDULED, Entry, Message
from shardbus.core.sequence import sequence_number


@final
class Entrance:
    """Decides what becomes of messages that are sent to one fragment."""

    def __init__(self, fragment_number: int, ledger: Ledger, history: History) -> None:
        self._fragment_number = fragment_number
        self._ledger = ledger
        self._history = history
        # When to look whether all that is remembered has expired, should nobody send any more.
        self.wake_at_ms = NEVER_MS
        if history.is_stored():
            self.wake_at_ms = history.newest_ms() + max(ledger.rules.duplicate_window_ms, 1)

    def send(self, command: Send, now_ms: int) -> Sent:
        ledger = self._ledger
        counters = ledger.counters
        self._check_size()
        messages = command.messages
        if ledger.sessions is not None:
            _check_sessions(messages)
        duplicates: list[int] | None = None
        if ledger.rules.duplicate_window_ms > 0:
            sifted = self._history.sift(
                messages,
                ledger.rules.is_partitioned,
                now_ms - ledger.rules.duplicate_window_ms,
            )
            messages, duplicates = sifted.messages, sifted.duplicates
            self._remember(sifted.digests, now_ms)
            self._count_duplicates(len(duplicates))
        first = counters.last_counter + 1
        entries = self._entries(messages, first, now_ms)
        counters.last_counter += len(entries)
        ledger.enter(entries)
        return Sent(sequence_number(self._fragment_number, first), len(entries), duplicates)

    def forget_expired_ids(self, now_ms: int) -> None:
        """Give memory and rows back once the last id has expired."""
        if self.wake_at_ms == NEVER_MS or now_ms < self.wake_at_ms:
            return
        window_ms = self._ledger.rules.duplicate_window_ms
        until_ms = now_ms - window_ms
        if not self._history.clear_if_expired(until_ms):
            self.wake_at_ms = self._history.newest_ms() + window_ms
            return
        self.wake_at_ms = NEVER_MS
        if self._history.must_forget(until_ms, now_ms, 0):
            self._ledger.changes.append(ForgetIds(until_ms))

    def _check_size(self) -> None:
        total_bytes = self._ledger.counters.total_bytes()
        if total_bytes >= self._ledger.rules.size_bytes_max:
            raise Refused(
                QUOTA_EXCEEDED,
                f"The maximum entity size has been reached: fragment {self._fragment_number} holds "
                f"{total_bytes} bytes of {self._ledger.rules.size_bytes_max}. "
                "Receive or purge messages, or use a larger entity.",
            )

    def _remember(self, digests: bytes, now_ms: int) -> None:
        """Keep new ids; refused when there are too many of them."""
        history = self._history
        window_ms = self._ledger.rules.duplicate_window_ms
        until_ms = now_ms - window_ms
        if not history.has_room(digests, self._ledger.bounds.remembered_max, until_ms):
            raise Refused(
                QUOTA_EXCEEDED,
                f"Fragment {self._fragment_number} remembers {len(history)} message ids for "
                "duplicate detection, which is the most it takes: shorten the duplicate detection "
                "window, partition the entity, or send more slowly.",
            )
        history.sweep(until_ms)
        if history.must_forget(until_ms, now_ms, window_ms):
            self._ledger.changes.append(ForgetIds(until_ms))
        if digests:
            history.add(now_ms, digests)
            self._ledger.changes.append(Remember(now_ms, digests))
            if self.wake_at_ms == NEVER_MS:
                self.wake_at_ms = now_ms + window_ms

    def _count_duplicates(self, count: int) -> None:
        if count > 0:
            self._ledger.counters.duplicates += count
            # Counters are stored with changes, and nothing else may have changed.
            self._ledger.changes.append(Update([]))

    def _entries(self, messages: list[Message], counter: int, now_ms: int) -> list[Entry]:
        ledger = self._ledger
        default_ttl_ms = ledger.rules.default_ttl_ms
        keeps_session = ledger.sessions is not None
        number = sequence_number(self._fragment_number, counter)
        entries: list[Entry] = []
        for message in messages:
            state = ACTIVE
            enqueued_at_ms = now_ms
            if message.scheduled_at_ms > now_ms:
                state = SCHEDULED
                enqueued_at_ms = message.scheduled_at_ms
                ledger.note_due(enqueued_at_ms)
            ttl_ms = message.ttl_ms
            if ttl_ms < 0 or 0 <= default_ttl_ms < ttl_ms:
                ttl_ms = default_ttl_ms
            expires_at_ms = NEVER_MS if ttl_ms < 0 else enqueued_at_ms + ttl_ms
            if expires_at_ms != NEVER_MS and state == ACTIVE:
                ledger.note_due(expires_at_ms)
            payload = message.payload
            entries.append(
                Entry(
                    number,
                    payload,
                    len(payload),
                    enqueued_at_ms=enqueued_at_ms,
                    expires_at_ms=expires_at_ms,
                    state=state,
                    session_id=message.session_id if keeps_session else None,
                )
            )
            number += 1
        return entries


def _check_sessions(messages: list[Message]) -> None:
    for message in messages:
        if message.session_id is None:
            raise Refused(
                NOT_ALLOWED,
                "Session enabled entity doesn't allow a message whose session identifier is null: "
                "set the SessionId of every message.",
            )
