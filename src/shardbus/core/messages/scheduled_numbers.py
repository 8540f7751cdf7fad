"""The numbers of scheduled messages: reserved ahead, and cancelled at once or in a transaction.

A transaction that schedules messages learns their numbers before it is committed. The numbers are
given out and stored as used before the messages exist (docs/adr/0046-requests-in-transactions.md).
"""

from __future__ import annotations

from typing import final

from shardbus.core.errors import SERVER_BUSY, Refused
from shardbus.core.fragment.change import Update
from shardbus.core.fragment.entrance import Entrance
from shardbus.core.fragment.ledger import Ledger
from shardbus.core.lifecycle import rows as events
from shardbus.core.limits import CANCEL_COUNT_MAX
from shardbus.core.message import SCHEDULED, Entry
from shardbus.core.messages.command import Done, Sent
from shardbus.core.messages.deferred import not_found
from shardbus.core.sequence import check_numbers, counter_of
from shardbus.core.transactions.command import Reserved


@final
class ScheduledNumbers:
    """Decides about the scheduled messages of one fragment."""

    def __init__(self, ledger: Ledger, entrance: Entrance) -> None:
        self._ledger = ledger
        self._entrance = entrance

    def cancel(self, numbers: list[int], read: dict[int, Entry | None]) -> Done:
        """Cancel all of these messages or none; `read` holds them as they are stored."""
        check_numbers(numbers, CANCEL_COUNT_MAX)
        self._ledger.forget(self.found(numbers, read), events.CANCEL)
        return Done()

    def found(self, numbers: list[int], read: dict[int, Entry | None]) -> list[Entry]:
        """The messages of these numbers. Refused unless all are scheduled, and none is taken by a
        transaction.
        """
        entries: list[Entry] = []
        seen: set[int] = set()
        for number in numbers:
            entry = read.get(number)
            if (
                entry is None
                or entry.state != SCHEDULED
                or number in seen
                or self._ledger.is_taken(number)
            ):
                raise not_found(number, "scheduled")
            seen.add(number)
            entries.append(entry)
        return entries

    # Numbers before their messages.

    def reserve(self, count: int) -> Sent:
        """Give out numbers that are never given out again, even after a restart."""
        first = self._entrance.number_copies(count)
        if count > 0:
            # Counters are stored only together with changes, and there is no other change.
            self._ledger.changes.append(Update([]))
        return Sent(first, count)

    def check_reserved(self, reserved: list[Reserved]) -> None:
        """Refused when the fragment never gave out one of these numbers, as far as it knows."""
        for number, _ in reserved:
            if counter_of(number) > self._ledger.counters.last_counter:
                raise Refused(
                    SERVER_BUSY,
                    f"The sequence number {number} was given out before this fragment was "
                    "restored from an older copy. Begin the transaction again.",
                )

    # Promised to a transaction.

    def pin(self, entries: list[Entry]) -> None:
        """Keep these messages from time and from all other commands."""
        for entry in entries:
            entry.payload = None
            self._ledger.locks.pin_entry(entry)

    def load(self, numbers: list[int]) -> None:
        """Pin the messages that were promised before a restart."""
        for number in numbers:
            self._ledger.locks.pin_unread(number)

    def finish(self, numbers: list[int], read: dict[int, Entry | None], *, is_commit: bool) -> None:
        """Cancel the promised messages, or unpin them on rollback; a message found damaged is
        gone.
        """
        locks = self._ledger.locks
        found = [locks.unpin(number, read.get(number)) for number in numbers]
        entries = [entry for entry in found if entry is not None and entry.state == SCHEDULED]
        if is_commit:
            self._ledger.forget(entries, events.CANCEL)
            return
        for entry in entries:
            self._ledger.note_due(entry.due_ms())
