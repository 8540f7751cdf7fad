"""A model of a shared database: rows, row locks, commits in an order that a failover may cut off.

It does nothing by itself. Whoever plays with it moves each transaction on, step by step, so that
any interleaving can be had: first a transaction locks its row and looks at it, then it commits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from shardbus.core.cluster.rows import MemberRow, SlotRow, Taken, View
from shardbus.core.cluster.statement import (
    UPDATE,
    Beat,
    Commit,
    Give,
    MemberStatement,
    SlotStatement,
    Statement,
    Take,
)

CLUSTER: Final = "c1"
FIRST_TIMELINE: Final = 1

Key = int | str
Answer = View | Taken | bool


class Entry(NamedTuple):
    """What a commit stores: who made it, and after which one."""

    mark: int
    after: int
    what: str
    message: int


class Version(NamedTuple):
    """One change of the database, as its log has it; None deletes the row."""

    key: Key
    row: SlotRow | MemberRow | None
    entry: Entry | None = None
    handover: tuple[int, bytes] | None = None
    keeps_handover: bool = True


class Transaction:
    """A statement on its way through the database."""

    def __init__(self, statement: Statement, entry: Entry | None = None) -> None:
        self.statement = statement
        self.entry = entry
        self.key: Key = statement.slot if isinstance(statement, SlotStatement) else statement.name
        self.is_checked = False
        self.is_done = False
        self.answer: Answer = False
        self.row: SlotRow | MemberRow | None = None

    @property
    def locks(self) -> bool:
        return self.statement.LOCK == UPDATE


class ModelDatabase:
    """The rows of slots and members as they are committed, and who has locked which."""

    def __init__(self, slots: int) -> None:
        self.timeline = FIRST_TIMELINE
        self.cluster_id = CLUSTER
        self.time_ms: Callable[[], int] = lambda: 0
        self.stored: Callable[[Transaction, SlotRow | MemberRow | None], None] = _nothing
        self.slots = {slot: SlotRow(slot, 0, 0, "", 0) for slot in range(slots)}
        self.members: dict[str, MemberRow] = {}
        self.logs: dict[int, list[Entry]] = {slot: [] for slot in range(slots)}
        self.handovers: dict[int, tuple[int, bytes]] = {}
        self.wal: list[Version] = []
        # What was asked of it, by the kind of statement, in vain or not.
        self.asked: Counter[str] = Counter()
        self._locked: dict[Key, Transaction] = {}

    def step(self, transaction: Transaction) -> bool:
        """Move a transaction on; False: it has to wait for another."""
        holder = self._locked.get(transaction.key)
        is_writing = transaction.locks or transaction.is_checked
        if is_writing and holder is not None and holder is not transaction:
            return False
        if transaction.is_checked:
            self._commit(transaction)
        else:
            self._check(transaction)
        return True

    def abort(self, transactions: Iterable[Transaction]) -> None:
        """Nothing of them happens."""
        for transaction in transactions:
            transaction.is_done = True
            self._unlock(transaction)

    def fail_over(self, lost: int) -> list[Version]:
        """Go on with a copy that lacks the last changes; answers those."""
        kept = len(self.wal) - lost
        gone, kept_log = self.wal[kept:], self.wal[:kept]
        fresh = ModelDatabase(len(self.slots))
        for version in kept_log:
            fresh._apply(version)
        self.slots, self.members, self.logs = fresh.slots, fresh.members, fresh.logs
        self.handovers, self.wal = fresh.handovers, fresh.wal
        self._locked.clear()
        self.timeline += 1
        return gone

    def view(self, is_member: bool, mine: MemberRow | None) -> View:
        members = dict(self.members)
        if mine is not None:
            members[mine.name] = mine
        rows, slots = list(members.values()), list(self.slots.values())
        return View(self.cluster_id, self.timeline, self.time_ms(), is_member, rows, slots)

    def _check(self, transaction: Transaction) -> None:
        statement = transaction.statement
        self.asked[type(statement).__name__] += 1
        if isinstance(statement, SlotStatement):
            slot = self.slots[statement.slot]
            transaction.row = slot
            holds = statement.holds(slot)
        else:
            member = self.members.get(statement.name)
            transaction.row = member
            holds = statement.holds(member)
            if isinstance(statement, Beat):
                mine = statement.changed(member, self.time_ms()) if holds else None
                transaction.answer = self.view(holds, mine)
        transaction.is_checked = holds
        transaction.is_done = not holds
        if holds and transaction.locks:
            self._locked[transaction.key] = transaction

    def _commit(self, transaction: Transaction) -> None:
        statement = transaction.statement
        before: SlotRow | MemberRow | None
        if isinstance(statement, SlotStatement):
            # Whoever has not locked the row writes to whatever it is by now.
            before = self.slots[statement.slot]
            version = self._changed(statement, before, transaction)
        else:
            assert isinstance(statement, MemberStatement)
            before = self.members.get(statement.name)
            version = Version(statement.name, statement.changed(before, self.time_ms()))
        if not isinstance(statement, Beat | Take):
            transaction.answer = True
        self._apply(version)
        transaction.is_done = True
        self._unlock(transaction)
        self.stored(transaction, before)

    def _changed(self, statement: SlotStatement, row: SlotRow, transaction: Transaction) -> Version:
        after = statement.changed(row)
        if isinstance(statement, Take):
            epoch, data = self.handovers.get(row.slot, (-1, b""))
            inherits = epoch >= 0 and statement.inherits(row, epoch)
            transaction.answer = Taken(after.epoch, row.commits, data if inherits else None)
            return Version(row.slot, after, keeps_handover=inherits)
        if isinstance(statement, Give):
            return Version(row.slot, after, handover=(after.epoch, statement.data))
        assert isinstance(statement, Commit)
        return Version(row.slot, after, transaction.entry)

    def _apply(self, version: Version) -> None:
        self.wal.append(version)
        row = version.row
        if isinstance(row, SlotRow):
            self.slots[row.slot] = row
            if version.entry is not None:
                self.logs[row.slot].append(version.entry)
            if version.handover is not None:
                self.handovers[row.slot] = version.handover
            elif not version.keeps_handover:
                self.handovers.pop(row.slot, None)
        elif row is not None:
            self.members[row.name] = row
        else:
            assert isinstance(version.key, str)
            self.members.pop(version.key, None)

    def _unlock(self, transaction: Transaction) -> None:
        if self._locked.get(transaction.key) is transaction:
            del self._locked[transaction.key]


def _nothing(transaction: Transaction, before: SlotRow | MemberRow | None) -> None:
    """Nobody wants to know."""
