"""Scheduled messages by their numbers: cancelled at once, or when a transaction is committed.

A transaction that schedules is told the numbers before it is committed: they are given out, stored
as used, and wait for their messages (docs/adr/0046-requests-in-transactions.md).
"""

from __future__ import annotations

from typing import final

from shardbus.core.errors import SERVER_BUSY, Refused
from shardbus.core.fragment.change import Update
from shardbus.core.fragment.entrance import Entrance
from shardbus.core.fragment.ledger import Ledger
from shardbus.core.limits import CANCEL_COUNT_MAX
from shardbus.core.message import SCHEDULED, Entry
from shardbus.core.messages.command import Done, Sent
from shardbus.core.messages.deferred import not_found
from shardbus.core.sequence import check_numbers, counter_of
from shardbus.core.transactions.command import Reserved


@final
class Scheduling:
    """Decides about the scheduled messages of one fragment."""

    def __init__(self, ledger: Ledger, entrance: Entrance) -> None:
        self._ledger = ledger
        self._entrance = entrance

    def cancel(self, numbers: list[int], read: dict[int, Entry | None]) -> Done:
        """Cancel all of them or none; `read` holds them as they are stored."""
        check_numbers(numbers, CANCEL_COUNT_MAX)
        self._ledger.forget(self.found(numbers, read))
        return Done()

    def found(self, numbers: list[int], read: dict[int, Entry | None]) -> list[Entry]:
        """The messages of these numbers; Refused unless all are scheduled, and nobody's."""
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
        """Give out numbers that nobody else gets, also after a restart."""
        first = self._entrance.number_copies(count)
        if count > 0:
            # Counters are stored with changes, and nothing else has changed.
            self._ledger.changes.append(Update([]))
        return Sent(first, count)

    def check_reserved(self, reserved: list[Reserved]) -> None:
        """Refused when a number was not given out, as far as this fragment remembers."""
        for number, _ in reserved:
            if counter_of(number) > self._ledger.counters.last_counter:
                raise Refused(
                    SERVER_BUSY,
                    f"The sequence number {number} was given out before the fragment was restored "
                    "from an older copy. Begin the transaction again.",
                )

    # Promised to a transaction.

    def pin(self, entries: list[Entry]) -> None:
        """From now on neither time nor anybody else reaches them."""
        for entry in entries:
            entry.payload = None
            self._ledger.locks.pin_entry(entry)

    def load(self, numbers: list[int]) -> None:
        """What was promised before a restart."""
        for number in numbers:
            self._ledger.locks.pin_unread(number)

    def finish(self, numbers: list[int], read: dict[int, Entry | None], *, is_commit: bool) -> None:
        """Cancel what was promised to be, or leave it to its time; one found damaged is gone."""
        locks = self._ledger.locks
        found = [locks.unpin(number, read.get(number)) for number in numbers]
        entries = [entry for entry in found if entry is not None and entry.state == SCHEDULED]
        if is_commit:
            self._ledger.forget(entries)
            return
        for entry in entries:
            self._ledger.note_due(entry.due_ms())
