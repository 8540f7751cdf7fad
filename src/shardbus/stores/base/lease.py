"""Slots that brokers lease: the interface of a lease to its store, and of a database to leases.

All of this blocks, and is called from threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from shardbus.core.cluster.keeper import Answer
from shardbus.core.cluster.statement import Commit, Statement


class LeaseTable(Protocol):
    """A connection to the database whose slots are leased. Every method may raise StoreError."""

    def open(self) -> None: ...

    def ask(self, statement: Statement) -> Answer:
        """The answer to a statement. After a StoreError its outcome is unknown, and the connection
        answers no further statement.
        """
        ...

    def settle(self, timeline: int) -> None:
        """Record that no broker can serve any more because of an earlier timeline."""
        ...

    def abandon(self) -> None:
        """End the connection, from any thread: what is being asked raises StoreError."""
        ...

    def close(self) -> None: ...


class SlotLease(Protocol):
    """The right to write one slot, for as long as it lasts."""

    @property
    def slot(self) -> int: ...

    def call_when_lost(self, hang_up: Callable[[], None]) -> None:
        """Call this, from any thread, when another connection of the broker to the database was
        lost: what is under way over ours may hang for ever.
        """
        ...

    def held(self) -> tuple[int, int]:
        """The epoch and the number of commits with which it began."""
        ...

    def begin(self) -> Commit:
        """The fence of the next commit; waits while it is not certain that the slot is ours.

        Fenced when it is not, StoreError when that takes too long. Exactly one of the methods below
        is called for each.
        """
        ...

    def committed(self, commit: Commit) -> bool:
        """The commit is stored. False: a connection was lost meanwhile; ask `outcome`."""
        ...

    def refused(self, commit: Commit) -> bool:
        """The fence found another row: the slot is lost. False: ask `outcome`."""
        ...

    def withdrawn(self, commit: Commit) -> None:
        """The commit was not stored, and never will be."""
        ...

    def lost(self, commit: Commit) -> None:
        """The connection was lost: ask `outcome`."""
        ...

    def outcome(self, commit: Commit) -> bool:
        """Whether the commit is stored; if not, it never will be. Raises as `begin` does."""
        ...
