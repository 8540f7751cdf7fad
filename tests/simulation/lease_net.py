"""Time, and connections to the model database: slow, cut one way or both, and survived by ghosts.

A *ghost* is a statement of a connection that is gone: it may take effect much later.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from random import Random
from typing import Final

from shardbus.core.cluster.statement import Statement
from tests.simulation.lease_database import Answer, Entry, ModelDatabase, Transaction
from tests.simulation.tally import befell

GHOST_S_MAX: Final = 60.0


class Agenda:
    """What happens when; time passes from one thing to the next."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._things: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    def at(self, at_s: float, thing: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._things, (max(at_s, self.now_s), self._count, thing))

    def after(self, seconds: float, thing: Callable[[], None]) -> None:
        self.at(self.now_s + seconds, thing)

    def run(self, until_s: float) -> None:
        while self._things and self._things[0][0] <= until_s:
            self.now_s, _, thing = heapq.heappop(self._things)
            thing()
        self.now_s = until_s


class Wire:
    """What a broker's machine has to the database; each direction may be cut."""

    def __init__(self) -> None:
        self.carries_questions = True
        self.carries_answers = True


class Server:
    """The process of the database: up or not, and in how many lives."""

    def __init__(self, agenda: Agenda, chance: Random, database: ModelDatabase) -> None:
        self.agenda = agenda
        self.chance = chance
        self.database = database
        self.is_up = True
        self.stalls_until_s = 0.0
        self.is_calm = False
        # How long statements of a kind take, wherever they are.
        self.late_s: dict[type[Statement], float] = {}
        # Told which statements take long.
        self.slowed: Callable[[Statement, float], None] = lambda statement, seconds: None
        self._life = 0
        self._links: list[Link] = []
        self._running: list[Transaction] = []
        self._waiting: list[tuple[Transaction, Callable[[Answer], None]]] = []
        self._ghosts: list[Callable[[], None]] = []

    def open(self, link: Link) -> None:
        self._links.append(link)

    def execute(self, transaction: Transaction, then: Callable[[Answer], None]) -> None:
        """Run a transaction to its end, and tell its answer."""
        self._running.append(transaction)
        self._later(self._step_s(transaction), self._life, transaction, then)

    def haunt(self, transaction: Transaction) -> None:
        """A statement arrives whose connection is gone."""
        if self.chance.random() < 0.5 or not self.is_up:
            return
        life = self._life

        def appear() -> None:
            if self.is_up and self._life == life and appear in self._ghosts:
                self._ghosts.remove(appear)
                befell("ghost")
                self.execute(transaction, lambda answer: None)

        self._ghosts.append(appear)
        delay_s = 0.0 if self.is_calm else self.chance.uniform(0, GHOST_S_MAX)
        self.agenda.after(delay_s, appear)

    def lay_ghosts(self) -> None:
        """Faults are over: what is to take effect does so now."""
        self.is_calm = True
        for appear in list(self._ghosts):
            appear()

    def go_down(self, seconds: float) -> None:
        self.is_up = False
        self._life += 1
        self.database.abort(self._running)
        self._running, self._waiting, self._ghosts = [], [], []
        links, self._links = self._links, []
        for link in links:
            link.server_died()
        self.agenda.after(seconds, self._come_up)

    def fail_over(self, seconds: float, lost: int) -> None:
        """Another machine goes on, with all commits or without the last of them."""
        self.go_down(seconds)
        self.database.fail_over(lost)

    def _come_up(self) -> None:
        self.is_up = True

    def _later(
        self, seconds: float, life: int, transaction: Transaction, then: Callable[[Answer], None]
    ) -> None:
        at_s = max(self.agenda.now_s + seconds, self.stalls_until_s)
        self.agenda.at(at_s, lambda: self._move_on(life, transaction, then))

    def _move_on(self, life: int, transaction: Transaction, then: Callable[[Answer], None]) -> None:
        if life != self._life:
            return
        if self.agenda.now_s < self.stalls_until_s:
            self._later(0.0, life, transaction, then)
        elif not self.database.step(transaction):
            self._waiting.append((transaction, then))
        elif not transaction.is_done:
            self._later(self._step_s(transaction), life, transaction, then)
        else:
            self._running.remove(transaction)
            waiting, self._waiting = self._waiting, []
            for blocked, then_blocked in waiting:
                self._later(0.0, life, blocked, then_blocked)
            then(transaction.answer)

    def _step_s(self, transaction: Transaction) -> float:
        return self.slow_s(transaction, 6.0) or self.chance.uniform(0.0002, 0.004)

    def slow_s(self, transaction: Transaction, most_s: float) -> float:
        """Now and then something takes long."""
        if type(transaction.statement) in self.late_s:
            return self.late_s[type(transaction.statement)]
        if self.is_calm or self.chance.random() >= 0.01:
            return 0.0
        seconds = self.chance.uniform(0.05, most_s)
        self.slowed(transaction.statement, seconds)
        return seconds


class Link:
    """One connection of a broker to the database."""

    def __init__(self, server: Server, wire: Wire, broke: Callable[[Link], None]) -> None:
        self.server = server
        self.wire = wire
        self.is_open = True
        self._broke = broke
        server.open(self)

    def ask(
        self,
        statement: Statement,
        entry: Entry | None,
        then: Callable[[Transaction, Answer], None],
    ) -> Transaction:
        transaction = Transaction(statement, entry)
        delay_s = self._delay_s(transaction)
        self.server.agenda.after(delay_s, lambda: self._arrive(transaction, then))
        return transaction

    def close(self) -> None:
        self.is_open = False

    def server_died(self) -> None:
        """Mostly the other end hears of it."""
        if self.is_open and self.server.chance.random() < 0.8:
            self.reset()
        else:
            self.wire_goes_silent()

    def reset(self) -> None:
        """The connection breaks, and the broker learns of it."""
        was_open, self.is_open = self.is_open, False
        if was_open:
            self.server.agenda.after(0.002, lambda: self._broke(self))

    def wire_goes_silent(self) -> None:
        """Nothing of this connection arrives any more, and nobody is told: what is lost is not
        followed by anything.
        """
        self.wire = Wire()
        self.wire.carries_questions = False
        self.wire.carries_answers = False

    def _arrive(
        self, transaction: Transaction, then: Callable[[Transaction, Answer], None]
    ) -> None:
        if not self.wire.carries_questions or not self.server.is_up:
            befell("lost question")
            self.wire_goes_silent()
        elif not self.is_open:
            self.server.haunt(transaction)
        else:
            self.server.execute(transaction, lambda answer: self._reply(transaction, answer, then))

    def _reply(
        self,
        transaction: Transaction,
        answer: Answer,
        then: Callable[[Transaction, Answer], None],
    ) -> None:
        def arrive() -> None:
            if self.is_open and self.wire.carries_answers:
                then(transaction, answer)
            else:
                befell("lost answer")
                self.wire_goes_silent()

        self.server.agenda.after(self._delay_s(transaction), arrive)

    def _delay_s(self, transaction: Transaction) -> float:
        slow_s = self.server.slow_s(transaction, 4.0)
        return slow_s or self.server.chance.uniform(0.0001, 0.003)
