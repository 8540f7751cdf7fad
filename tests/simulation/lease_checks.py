"""What must hold in every history of leases, compared with what really happened."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from shardbus.core.cluster.decision import Serve
from shardbus.core.cluster.rows import MemberRow, SlotRow
from shardbus.core.cluster.statement import Bury, Commit, Give, Take
from tests.simulation.lease_database import Entry, ModelDatabase, Transaction, Version
from tests.simulation.sending import Violation


class Lock(NamedTuple):
    """Who holds a message of a slot, until when by a clock that is right, and who says so."""

    token: int
    until_s: float
    broker: object


class Given(NamedTuple):
    """What was handed over with a slot, and the epoch that it had then."""

    epoch: int
    tokens: frozenset[int]


class LeaseChecks:
    """Knows everything: what is stored, what was acknowledged, who holds which message."""

    def __init__(self, database: ModelDatabase) -> None:
        self.database = database
        database.stored = self.stored
        # Who asks says whether a member has only itself to blame.
        self.is_troubled: Callable[[str, int], bool] = lambda name, incarnation: True
        self.events: Counter[str] = Counter()
        # Who owned each slot, one after another.
        self.owners: dict[int, list[int]] = {slot: [] for slot in database.slots}
        self.most_owned = 0
        self.draining: dict[int, frozenset[int]] = {}
        self._acknowledged: dict[int, int] = {}
        self._given_up: set[int] = set()
        self._gone: set[int] = set()
        self._given: dict[int, Given] = {}
        self._locks: dict[tuple[int, int], Lock] = {}

    # What the database stores.

    def stored(self, transaction: Transaction, before: SlotRow | MemberRow | None) -> None:
        statement = transaction.statement
        if isinstance(statement, Commit):
            assert isinstance(before, SlotRow)
            self._check_commit(statement, transaction, before)
        elif isinstance(statement, Take):
            assert isinstance(before, SlotRow)
            self.events["retaken" if before.incarnation == statement.incarnation else "taken"] += 1
            self._owned(statement.slot, statement.incarnation)
        elif isinstance(statement, Give):
            self.events["given"] += 1
            epoch = self.database.slots[statement.slot].epoch
            self._given[statement.slot] = Given(epoch, self.draining[statement.slot])
        elif isinstance(statement, Bury):
            self.events["buried"] += 1
            if not self.is_troubled(statement.name, statement.incarnation):
                raise Violation(f"{statement.name} was declared dead, and nothing was wrong there")

    def _owned(self, slot: int, incarnation: int) -> None:
        owners = self.owners[slot]
        if not owners or owners[-1] != incarnation:
            owners.append(incarnation)
        held = Counter(row.incarnation for row in self.database.slots.values())
        self.most_owned = max(self.most_owned, held[incarnation])

    def _check_commit(self, commit: Commit, transaction: Transaction, before: SlotRow) -> None:
        log, entry = self.database.logs[commit.slot], transaction.entry
        assert entry is not None and log[-1] is entry
        if commit.epoch != before.epoch or commit.incarnation != before.incarnation:
            raise Violation(
                f"a commit of epoch {commit.epoch} was stored in slot {commit.slot} at epoch "
                f"{before.epoch}"
            )
        if commit.number != len(log):
            raise Violation(f"commit {commit.number} of slot {commit.slot} came as {len(log)}")
        if entry.after != (log[-2].mark if len(log) > 1 else 0):
            raise Violation(f"commit {commit.number} of slot {commit.slot} follows another one")
        if entry.mark in self._given_up:
            raise Violation(f"a commit of slot {commit.slot} was not stored, and then it was")

    def given_up(self, entry: Entry) -> None:
        """A broker concluded that this attempt is not stored."""
        self.events["sent again"] += 1
        self._given_up.add(entry.mark)

    def acknowledged(self, slot: int, entry: Entry) -> None:
        self.events["acknowledged"] += 1
        self._acknowledged[entry.mark] = slot
        if entry.mark in self._gone:
            # It was lost before its answer arrived.
            del self._acknowledged[entry.mark]
        elif entry not in self.database.logs[slot]:
            raise Violation(f"a commit of slot {slot} was acknowledged, and is not stored")

    def failed_over(self, gone: list[Version]) -> set[int]:
        """A copy goes on without these changes; answers the slots that lost acknowledged ones."""
        lost: set[int] = set()
        self._gone.update(version.entry.mark for version in gone if version.entry is not None)
        for version in gone:
            if version.entry is not None and version.entry.mark in self._acknowledged:
                lost.add(self._acknowledged.pop(version.entry.mark))
        if gone:
            self._given.clear()
        return lost

    # Who holds what.

    def served(self, broker: object, serve: Serve, tokens: frozenset[int]) -> None:
        """A broker begins to serve a slot, with these locks."""
        slot = serve.slot
        if serve.commits != len(self.database.logs[slot]):
            raise Violation(f"slot {slot} is served with {serve.commits} commits, and has others")
        given = self._given.pop(slot, None)
        if serve.must_load and given is not None and given.epoch == serve.epoch - 1:
            self.events["handed over"] += len(tokens)
            if given.tokens != tokens:
                raise Violation(f"slot {slot} was handed over without its locks")
        self.has_locks(broker, slot, tokens)

    def has_locks(self, broker: object, slot: int, tokens: frozenset[int]) -> None:
        """A broker that serves a slot alone knows these locks, and all others have ended."""
        for key, lock in list(self._locks.items()):
            if key[0] == slot and lock.token in tokens:
                self._locks[key] = lock._replace(broker=broker)
            elif key[0] == slot:
                del self._locks[key]

    def dropped(self, broker: object, slot: int) -> None:
        """A broker has forgotten a slot, and with it all locks that it did not hand over."""
        given = self._given.get(slot)
        for key, lock in list(self._locks.items()):
            is_given = given is not None and lock.token in given.tokens
            if key[0] == slot and lock.broker is broker and not is_given:
                del self._locks[key]

    def handed_out(self, slot: int, message: int, lock: Lock, now_s: float) -> None:
        self.events["handed out"] += 1
        other = self._locks.get((slot, message))
        if other is not None and other.until_s > now_s:
            raise Violation(f"message {message} of slot {slot} has two holders")
        self._locks[slot, message] = lock

    def settled(self, slot: int, message: int) -> None:
        self._locks.pop((slot, message), None)

    def finish(self) -> None:
        stored = {entry.mark for log in self.database.logs.values() for entry in log}
        for mark, slot in self._acknowledged.items():
            if mark not in stored:
                raise Violation(f"a commit of slot {slot} was acknowledged, and is gone")


def packed(locks: dict[int, tuple[int, int]]) -> bytes:
    """Locks by message, each with its token and the milliseconds that are left."""
    return json.dumps(sorted((message, *lock) for message, lock in locks.items())).encode()


def unpacked(data: bytes | None) -> dict[int, tuple[int, int]]:
    if not data:
        return {}
    return {message: (token, left_ms) for message, token, left_ms in json.loads(data)}
