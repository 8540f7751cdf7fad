"""Every order in which two brokers, one slot and three commits can happen in the model database.

Leases are left out: each broker may think at any moment that the other one is dead. So what is
stored must be right by epochs and numbers of commits alone. A connection may break between any two
steps, and what was sent over it takes effect later, or never.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from shardbus.core.cluster.rows import MemberRow, SlotRow, Taken
from shardbus.core.cluster.statement import Commit, Give, SlotStatement, Take
from shardbus.core.cluster.tenure import (
    FOREIGN,
    LOST,
    NOT_STORED,
    OWNED,
    STORED,
    UNLOADED,
    UNSURE,
    Tenure,
)
from tests.simulation.lease_database import Entry, ModelDatabase, Transaction
from tests.simulation.sending import Violation

COMMITS: Final = 3
# Messages that one broker locks.
LOCKS: Final = 2

Key = tuple[object, ...]


class Bounds(NamedTuple):
    """How often the connection of each broker breaks, how often each takes the slot over, and how
    often each gives it to the other.
    """

    breaks: tuple[int, int]
    takes: tuple[int, int]
    gives: tuple[int, int] = (0, 0)
    commits: int = COMMITS


class Flight:
    """A statement that is under way; `connection` is that of its sender by then."""

    def __init__(self, actor: int, connection: int, transaction: Transaction) -> None:
        self.actor = actor
        self.connection = connection
        self.transaction = transaction

    def key(self) -> Key:
        transaction = self.transaction
        statement, entry = transaction.statement, transaction.entry
        fence = statement.held if isinstance(statement, Give) else statement
        assert isinstance(fence, Commit | Take)
        answer = transaction.answer
        said = answer.commits if isinstance(answer, Taken) else answer
        data = statement.data if isinstance(statement, Give) else b""
        what = (type(statement).__name__, fence.epoch, fence.incarnation, data)
        state = (transaction.is_checked, transaction.is_done, said, entry)
        return (self.actor, self.connection, what, state)


class Actor:
    """A broker: what it holds, what it knows of the log, and what it waits for."""

    def __init__(self) -> None:
        self.tenure: Tenure | None = None
        self.marks: tuple[int, ...] = ()
        self.pending: Entry | None = None
        self.connection = 0
        self.takes = 0
        self.gives = 0
        # How many messages it has locked, in memory alone.
        self.locks = 0

    def clone(self) -> Actor:
        twin = Actor()
        twin.marks, twin.pending = self.marks, self.pending
        twin.connection, twin.takes = self.connection, self.takes
        twin.gives, twin.locks = self.gives, self.locks
        held = self.tenure
        if held is not None:
            twin.tenure = copied(held)
        return twin

    def key(self) -> Key:
        held = self.tenure
        what = None
        if held is not None:
            what = (held.state, held.epoch, held.commits, held.is_committing, held.is_loaded)
        used = (self.connection, self.takes, self.gives, self.locks)
        return (what, self.marks, self.pending, used)


def copied(held: Tenure) -> Tenure:
    twin = Tenure(held.slot, held.owner, held.incarnation)
    twin.state, twin.epoch, twin.commits = held.state, held.epoch, held.commits
    twin.is_committing, twin.is_loaded = held.is_committing, held.is_loaded
    return twin


class Scene:
    """One moment of one history."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.database = ModelDatabase(1)
        self.database.stored = self._stored
        self.actors = [Actor(), Actor()]
        self.flights: list[Flight] = []
        self.begun = 0
        self.marks = 0
        self.given_up: tuple[int, ...] = ()

    def clone(self) -> Scene:
        twin = Scene(self.bounds)
        twin.database.slots = dict(self.database.slots)
        twin.database.logs = {0: list(self.database.logs[0])}
        twin.database.handovers = dict(self.database.handovers)
        twin.actors = [actor.clone() for actor in self.actors]
        for flight in self.flights:
            old = flight.transaction
            new = Transaction(old.statement, old.entry)
            new.is_checked, new.is_done = old.is_checked, old.is_done
            new.answer, new.row = old.answer, old.row
            twin.flights.append(Flight(flight.actor, flight.connection, new))
            if self.database._locked.get(0) is old:
                twin.database._locked[0] = new
        twin.begun, twin.marks = self.begun, self.marks
        twin.given_up = self.given_up
        return twin

    def key(self) -> Key:
        row = self.database.slots[0]
        return (
            (row.epoch, row.commits, row.incarnation, self.database.handovers.get(0)),
            tuple(entry.mark for entry in self.database.logs[0]),
            tuple(actor.key() for actor in self.actors),
            tuple(flight.key() for flight in self.flights),
            (self.begun, self._doomed()),
        )

    def _doomed(self) -> tuple[int, ...]:
        """What was given up and is still under way."""
        flying = {each.transaction.entry.mark for each in self.flights if each.transaction.entry}
        return tuple(mark for mark in self.given_up if mark in flying)

    # What may happen next.

    def moves(self) -> Iterator[tuple[str, int]]:
        """What can happen, and to which flight or actor."""
        holder = self.database._locked.get(0)
        for place, flight in enumerate(self.flights):
            transaction, actor = flight.transaction, self.actors[flight.actor]
            if not transaction.is_done:
                is_writing = transaction.locks or transaction.is_checked
                if not is_writing or holder is None or holder is transaction:
                    yield "step", place
            elif flight.connection == actor.connection:
                yield "answer", place
        for number, actor in enumerate(self.actors):
            held = actor.tenure
            if held is not None and held.state == OWNED and not held.is_committing:
                yield from self._moves_of_owner(number)
            if actor.connection < self.bounds.breaks[number] and self._is_waiting(number):
                yield "break", number
            can_take = held is None and actor.takes < self.bounds.takes[number]
            if can_take or (held is not None and held.state == UNSURE):
                yield "take", number

    def _moves_of_owner(self, number: int) -> Iterator[tuple[str, int]]:
        actor, gives_max = self.actors[number], self.bounds.gives[number]
        if self.begun < self.bounds.commits:
            yield "commit", number
        if gives_max > 0 and actor.locks < LOCKS:
            yield "lock", number
        if actor.gives < gives_max:
            yield "give", number

    def make(self, what: str, which: int) -> None:
        if what == "step":
            assert self.database.step(self.flights[which].transaction)
            self._forget_ghosts()
        elif what == "answer":
            self._answer(which)
        elif what == "commit":
            self._commit(which)
        elif what == "lock":
            self.actors[which].locks += 1
        elif what == "give":
            self._give(which)
        elif what == "break":
            self._break(which)
        else:
            self._take(which)

    def _is_waiting(self, number: int) -> bool:
        """Otherwise nobody could tell whether the connection broke."""
        connection = self.actors[number].connection
        return any(each.actor == number and each.connection == connection for each in self.flights)

    def _forget_ghosts(self) -> None:
        """Of what is done and has nobody to be told."""
        self.flights = [
            flight
            for flight in self.flights
            if not flight.transaction.is_done
            or flight.connection == self.actors[flight.actor].connection
        ]

    def _commit(self, number: int) -> None:
        held = self.actors[number].tenure
        assert held is not None
        self.begun += 1
        held.is_committing = True
        self._send(number, held.fence(), message=self.begun)

    def _send(self, number: int, statement: SlotStatement, message: int = 0) -> None:
        actor, entry = self.actors[number], None
        if isinstance(statement, Commit):
            self.marks += 1
            after = actor.marks[-1] if actor.marks else 0
            entry = actor.pending = Entry(self.marks, after, "sent", message)
        self.flights.append(Flight(number, actor.connection, Transaction(statement, entry)))

    def _give(self, number: int) -> None:
        actor, other = self.actors[number], 1 - number
        assert actor.tenure is not None
        actor.gives += 1
        actor.tenure.to, actor.tenure.to_incarnation = f"b{other}", other + 1
        self._send(number, actor.tenure.give(b"%d" % actor.locks))

    def _break(self, number: int) -> None:
        actor = self.actors[number]
        actor.connection += 1
        if actor.tenure is not None:
            actor.tenure.broke()
            if not actor.tenure.is_loaded:
                actor.tenure = None
        self._forget_ghosts()

    def _take(self, number: int) -> None:
        """Look at the row; take the slot over, or find out what became of one's own commit."""
        actor, row = self.actors[number], self.database.slots[0]
        if actor.tenure is None:
            actor.takes += 1
            actor.tenure = Tenure(0, f"b{number}", number + 1)
        elif row.incarnation != number + 1:
            actor.tenure = actor.pending = None
            return
        self._send(number, actor.tenure.take(row))

    # Answers.

    def _answer(self, place: int) -> None:
        flight = self.flights.pop(place)
        actor, transaction = self.actors[flight.actor], flight.transaction
        held, statement = actor.tenure, transaction.statement
        if held is None:
            return
        if isinstance(statement, Take):
            self._took(flight.actor, held, transaction)
        elif isinstance(statement, Give) and not transaction.answer:
            held.state = UNSURE
        elif isinstance(statement, Give) or not transaction.answer:
            actor.tenure = actor.pending = None
        else:
            held.committed()
            self._acknowledge(actor)

    def _took(self, number: int, held: Tenure, transaction: Transaction) -> None:
        actor = self.actors[number]
        if not isinstance(transaction.answer, Taken):
            held.state = UNSURE
            if not held.is_loaded:
                actor.tenure = None
            return
        verdict = held.taken(transaction.answer.epoch, transaction.answer.commits)
        if verdict in (LOST, FOREIGN):
            raise Violation("commits were lost, or somebody else made some")
        if verdict == UNLOADED:
            actor.marks = tuple(entry.mark for entry in self.database.logs[0])[: held.commits]
            actor.locks = int(transaction.answer.data or b"0")
        elif verdict == STORED:
            self._acknowledge(actor)
        elif verdict == NOT_STORED:
            assert actor.pending is not None
            self.given_up = (*self.given_up, actor.pending.mark)
            self._send(number, held.fence(), actor.pending.message)

    def _acknowledge(self, actor: Actor) -> None:
        assert actor.pending is not None
        mark = actor.pending.mark
        if all(entry.mark != mark for entry in self.database.logs[0]):
            raise Violation("a commit was acknowledged, and is not stored")
        actor.marks = (*actor.marks, mark)
        actor.pending = None

    def _stored(self, transaction: Transaction, before: SlotRow | MemberRow | None) -> None:
        commit, entry, log = transaction.statement, transaction.entry, self.database.logs[0]
        assert isinstance(before, SlotRow)
        if (
            isinstance(commit, Give)
            and int(commit.data) != self.actors[before.incarnation - 1].locks
        ):
            raise Violation("a slot was handed over with locks as they were before")
        if not isinstance(commit, Commit) or entry is None:
            return
        if (commit.epoch, commit.incarnation) != (before.epoch, before.incarnation):
            raise Violation(f"a commit of epoch {commit.epoch} was stored at {before.epoch}")
        if commit.number != len(log) or entry.after != (log[-2].mark if len(log) > 1 else 0):
            raise Violation(f"commit {commit.number} came as {len(log)}, or follows another one")
        if entry.mark in self.given_up:
            raise Violation("a commit was not stored, and then it was")
        if [each.message for each in log].count(entry.message) > 1:
            raise Violation("a commit was stored twice")


def search(bounds: Bounds) -> tuple[int, int]:
    """Go through all moments there are; how many, and in how many nothing more can happen."""
    first = Scene(bounds)
    seen = {first.key()}
    left = [first]
    ends = 0
    while left:
        scene = left.pop()
        moves = list(scene.moves())
        ends += not moves
        for what, which in moves:
            following = scene.clone()
            following.make(what, which)
            key = following.key()
            if key not in seen:
                seen.add(key)
                left.append(following)
    return len(seen), ends
