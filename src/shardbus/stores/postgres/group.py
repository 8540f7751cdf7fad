"""Commits of several slots of a database in one statement, and so in one transaction.

A broker leases many slots, and each has a thread that commits. Commits that come while one is under
way are sent together afterwards, by the thread of one of them. If the statement is refused, or
there is no connection for it, nothing of it is stored, and each commit is sent again separately:
only the faulty one fails (docs/adr/0118-group-commit-over-slots.md).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, final

from shardbus.stores.base.store import NotStored, StoreError
from shardbus.stores.postgres.link import Argument, Link, LinkLost, ServerRefused

# A statement has at most 32,767 parameters, and each number of members needs its own plan.
MEMBERS_MAX: Final = 16
# A larger commit is sent separately, because the server executes several of them in parallel.
MEMBER_BYTES_MAX: Final = 64 * 1024

Answer = tuple[Argument, ...]


@final
class _Member:
    """A waiting commit, and its outcome."""

    def __init__(self, function: str, arguments: tuple[Argument, ...]) -> None:
        self.function = function
        self.arguments = arguments
        self.is_told = threading.Event()
        # Whether its thread is to send the next group.
        self.is_leader = False
        # None: it must be sent separately.
        self.answer: Answer | None = None
        self.error: LinkLost | None = None


@final
class GroupCommit:
    """The commits of one process to one database, over a separate connection."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._lock = threading.Lock()
        self._waiting: list[_Member] = []
        self._is_busy = False
        self._users = 0

    def open(self) -> None:
        """Add a store that uses the group."""
        with self._lock:
            self._users += 1

    def close(self) -> None:
        """Remove a store; the connection ends with the last one."""
        with self._lock:
            self._users -= 1
            is_unused = self._users == 0
        if is_unused:
            self._link.close()

    def call(
        self, function: str, arguments: tuple[Argument, ...], alone: Callable[[], Answer]
    ) -> Answer:
        """The row that a function returns, whose call is one transaction. `alone` calls it over the
        caller's connection.

        Raises what `alone` raises, and LinkLost.
        """
        member = _Member(function, arguments)
        with self._lock:
            is_first = not self._is_busy
            self._is_busy = True
            if not is_first:
                self._waiting.append(member)
        if is_first:
            try:
                return alone()
            finally:
                self._pass_on()
        member.is_told.wait()
        if member.is_leader:
            self._lead(member)
        if member.error is not None:
            raise member.error
        return alone() if member.answer is None else member.answer

    def abandon(self) -> None:
        """End the connection from another thread, as `Link.abandon`."""
        self._link.abandon()

    def _lead(self, first: _Member) -> None:
        """Send the waiting commits, of which `first` is the first."""
        with self._lock:
            group = [first, *self._waiting[: MEMBERS_MAX - 1]]
            del self._waiting[: MEMBERS_MAX - 1]
        error: LinkLost | None = LinkLost("the commit of a group was interrupted")
        try:
            if len(group) > 1 and self._has_connection():
                self._send(group)
            error = None
        except LinkLost as lost:
            error = lost
        finally:
            for member in group:
                member.error = error if error is None else LinkLost(str(error))
                member.is_told.set()
            self._pass_on()

    def _has_connection(self) -> bool:
        """Whether there is one for the group: the server may have none left."""
        try:
            self._link.open()
        except StoreError:
            return False
        return True

    def _send(self, group: list[_Member]) -> None:
        """Give the members of a group their answers; without an answer, nothing was stored."""
        calls: list[str] = []
        arguments: list[Argument] = []
        for member in group:
            first = len(arguments) + 1
            arguments += member.arguments
            places = ", ".join(f"${place}" for place in range(first, len(arguments) + 1))
            calls.append(f"{member.function}({places}) AS c{first}")
        self._link.warnings.clear()
        try:
            row = self._link.fetch(f"SELECT * FROM {', '.join(calls)}", *arguments)[0]
        except (ServerRefused, NotStored):
            return
        if self._link.warnings:
            # As with a single commit, the standby may not have stored it.
            raise LinkLost("; ".join(self._link.warnings))
        width = len(row) // len(group)
        for at, member in enumerate(group):
            member.answer = tuple(row[at * width : (at + 1) * width])

    def _pass_on(self) -> None:
        """Let the next waiting commit send, if there is one."""
        with self._lock:
            if not self._waiting:
                self._is_busy = False
                return
            following = self._waiting.pop(0)
        following.is_leader = True
        following.is_told.set()
