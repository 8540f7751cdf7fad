"""Brokers lease the slots of one shared database, and everything that can go wrong there does."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Final, NamedTuple

from shardbus.core.cluster.decision import COMMITS_LOST, NEW_TIMELINE, Alarm
from shardbus.core.cluster.statement import MemberStatement, Statement
from tests.simulation.lease_checks import LeaseChecks
from tests.simulation.lease_database import FIRST_TIMELINE, ModelDatabase
from tests.simulation.lease_life import Life
from tests.simulation.lease_net import Agenda, Server, Wire
from tests.simulation.sending import Violation
from tests.simulation.tally import befell, passed

LOOK_S: Final = 0.1
# After the last fault every slot is served within the first two, and none moves after the third.
UNSEEN_S: Final = 10.0
SERVED_S_MAX: Final = 20.0
CALM_S_MAX: Final = 60.0
REPLACED_S_MAX: Final = 10.0
QUIET_S: Final = 20.0
# Clients choose slots by chance.
STORED_S_MAX: Final = 120.0
FOREVER_S: Final = 1e9


class Loss(NamedTuple):
    """A slot that lost acknowledged commits while a broker served it."""

    slot: int
    life: Life
    at_s: float


class LeaseTown:
    """What outlives the brokers, and who is alive."""

    def __init__(self, seed: int, brokers: int, slots: int) -> None:
        self.chance = Random(seed)
        self.agenda = Agenda()
        self.database = ModelDatabase(slots)
        self.database.time_ms = self._time_ms
        self.server = Server(self.agenda, self.chance, self.database)
        self.server.slowed = self._slowed
        self.checks = LeaseChecks(self.database)
        self.checks.is_troubled = self._is_troubled
        # As the catalogue has it, which is in another database.
        self.timeline = FIRST_TIMELINE
        self.names = [f"b{number}" for number in range(brokers)]
        self.lives: list[Life] = []
        self.events = self.checks.events
        self.notes: list[str] = []
        self.alarms: Counter[str] = Counter()
        self.losses: list[Loss] = []
        self.is_over = False
        self.wall_ahead_ms = 0
        self._marks = 0
        self._wires: dict[str, Wire] = {}

    # What lives need.

    def note(self, line: str) -> None:
        self.notes.append(f"{self.agenda.now_s:.6f} {line}")

    def digest(self) -> str:
        return hashlib.sha256("\n".join(self.notes).encode()).hexdigest()

    def new_mark(self) -> int:
        self._marks += 1
        return self._marks

    def alarmed(self, life: Life, alarm: Alarm) -> None:
        self.note(f"{life.name}: {alarm.text}")
        self.alarms[alarm.kind] += 1
        if alarm.kind == COMMITS_LOST:
            self.losses = [loss for loss in self.losses if loss.slot != alarm.slot]

    def check_holders(self, slot: int) -> None:
        """No two brokers may hand out messages of a slot, be one of them asleep."""
        serving = [
            life
            for life in self.lives
            if life.keeper.serves(slot, life.now_ms()) and life.doubtful_until_s < self.agenda.now_s
        ]
        names = {life.name for life in serving}
        if len(names) > 1:
            raise Violation(f"slot {slot} is served by {sorted(names)}")

    # Who is there.

    def start(self, name: str) -> Life:
        self.note(f"{name} starts")
        life = Life(name, self, self._wires.setdefault(name, Wire()))
        self.lives.append(life)
        life.start()
        return life

    def alive(self) -> list[Life]:
        self.lives = [life for life in self.lives if not life.is_dead]
        return self.lives

    def life_of(self, name: str) -> Life | None:
        for life in self.alive():
            if life.name == name:
                return life
        return None

    def _is_troubled(self, name: str, incarnation: int) -> bool:
        for life in self.alive():
            if life.keeper.incarnation == incarnation:
                return life.troubled_until_s > self.agenda.now_s or life.is_paused
        return True

    def _slowed(self, statement: Statement, seconds: float) -> None:
        if isinstance(statement, MemberStatement):
            self.trouble(statement.name, seconds)

    def trouble(self, name: str, seconds: float) -> None:
        for life in self.alive():
            if life.name == name:
                life.trouble(seconds)

    def _time_ms(self) -> int:
        return 1_700_000_000_000 + self.wall_ahead_ms + int(self.agenda.now_s * 1000)

    # What is promised.

    def look(self) -> None:
        """Look at everybody, again and again."""
        self.alive()
        for slot in self.database.slots:
            self.check_holders(slot)
        self.agenda.after(LOOK_S, self.look)

    def unserved(self) -> list[int]:
        served = {
            slot
            for life in self.alive()
            for slot in self.database.slots
            if life.keeper.serves(slot, life.now_ms())
        }
        return [slot for slot in self.database.slots if slot not in served]

    def wait_until(self, is_so: Callable[[], bool], seconds: float, what: str) -> float:
        """Let time pass until something is so; answers how long that took."""
        began_s = self.agenda.now_s
        while not is_so():
            if self.agenda.now_s - began_s > seconds:
                raise Violation(f"{what} after {seconds} s")
            self.agenda.run(self.agenda.now_s + LOOK_S)
        return self.agenda.now_s - began_s

    def shares(self) -> list[int]:
        """How many slots each living broker owns."""
        owners = Counter(row.incarnation for row in self.database.slots.values())
        return sorted(owners[life.keeper.incarnation] for life in self.alive())

    def is_even(self) -> bool:
        shares = self.shares()
        return not self.unserved() and shares[-1] - shares[0] <= 1

    def finish(self) -> None:
        """Faults are over: every slot is served soon, evenly, and stays where it is."""
        # What the last fault did is not seen before leases have ended.
        self.agenda.run(self.agenda.now_s + UNSEEN_S)
        self.wait_until(lambda: not self.unserved(), SERVED_S_MAX, "slots are not served")
        self.wait_until(self.is_even, CALM_S_MAX, "shares are not even")
        owners = {slot: row.incarnation for slot, row in self.database.slots.items()}
        logged = {slot: len(log) for slot, log in self.database.logs.items()}
        self.agenda.run(self.agenda.now_s + QUIET_S)
        if owners != {slot: row.incarnation for slot, row in self.database.slots.items()}:
            raise Violation("slots move although nothing happens")
        self.wait_until(lambda: self._all_grew(logged), STORED_S_MAX, "a slot stores nothing")
        self.checks.finish()
        self._check_losses()
        passed(self.agenda.now_s)

    def fail_over(self, seconds: float, lost: int) -> None:
        """A copy of the database goes on without its last changes."""
        gone = self.database.wal[len(self.database.wal) - lost :]
        for slot in self.checks.failed_over(gone):
            self.events["acknowledged and lost"] += 1
            for life in self.alive():
                if life.keeper.serves(slot, life.now_ms()):
                    self.losses.append(Loss(slot, life, self.agenda.now_s))
        self.server.fail_over(seconds, lost)

    def _all_grew(self, before: dict[int, int]) -> bool:
        return all(len(self.database.logs[slot]) > count for slot, count in before.items())

    def _check_losses(self) -> None:
        """Who served a slot says that it lost commits, unless it died or slept before it knew."""
        for loss in self.losses:
            is_well = loss.life in self.lives and loss.life.troubled_until_s <= loss.at_s
            if is_well:
                raise Violation(f"slot {loss.slot} lost commits, and {loss.life.name} is silent")
        if self.timeline > FIRST_TIMELINE and not self.alarms[NEW_TIMELINE]:
            raise Violation("the database has another timeline, and nobody said so")


class Chaos:
    """Plants faults for a while."""

    def __init__(self, town: LeaseTown) -> None:
        self._town = town
        self._chance = town.chance
        faults: list[Callable[[], None]] = [
            self._kill, self._kill, self._pause, self._freeze, self._cut, self._cut, self._break,
            self._set_wall, self._restart_database, self._stall_database, self._fail_over,
            self._lose_tail, self._replace, self._replace, self._join, self._twin,
        ]  # fmt: skip
        # Each history has its own mixture.
        self._faults = [fault for fault in faults if self._chance.random() < 0.7] or faults
        self._each_s = self._chance.uniform(2.0, 15.0)

    def run(self, seconds: float) -> None:
        town = self._town
        end_s = town.agenda.now_s + seconds
        while town.agenda.now_s < end_s:
            town.agenda.run(town.agenda.now_s + self._chance.expovariate(1 / self._each_s))
            self._chance.choice(self._faults)()
        self._calm()

    def _calm(self) -> None:
        town = self._town
        town.note("calm")
        town.is_over = True
        town.server.lay_ghosts()
        town.server.stalls_until_s = 0.0
        for wire in town._wires.values():
            wire.carries_questions = wire.carries_answers = True
        town.wait_until(lambda: town.server.is_up, 60.0, "the database is down")
        sleepers = [life for life in town.alive() if life.is_paused]
        town.wait_until(lambda: not any(each.is_paused for each in sleepers), 130.0, "asleep")
        # Whoever was told to stop is replaced.
        town.agenda.run(town.agenda.now_s + REPLACED_S_MAX)
        if not town.alive():
            town.start(town.names[0])

    # What goes wrong with brokers.

    def _victim(self) -> Life | None:
        alive = self._town.alive()
        return self._chance.choice(alive) if alive else None

    def _befell(self, what: str, name: str = "") -> None:
        befell(what)
        self._town.events[what] += 1
        self._town.note(f"{what} {name}")

    def _kill(self) -> None:
        life = self._victim()
        if life is not None:
            self._befell("killed", life.name)
            life.die()
            self._start_later(life.name)

    def _start_later(self, name: str) -> None:
        if self._chance.random() < 0.8:
            delay_s = self._chance.choice((0.1, 2.0, 8.0, 20.0)) * self._chance.random()
            self._town.agenda.after(delay_s, lambda: self._start(name))

    def _start(self, name: str) -> None:
        if self._town.life_of(name) is None and not self._town.is_over:
            self._town.start(name)

    def _pause(self) -> None:
        life = self._victim()
        if life is not None:
            self._befell("paused", life.name)
            life.pause(self._chance.choice((2.0, 4.0, 8.0, 60.0)), clock_stands=False)

    def _freeze(self) -> None:
        life = self._victim()
        if life is not None:
            self._befell("frozen", life.name)
            life.pause(self._chance.choice((2.0, 8.0, 60.0)), clock_stands=True)

    def _cut(self) -> None:
        life = self._victim()
        if life is None:
            return
        self._befell("cut off", life.name)
        wire, seconds = life.wire, self._chance.uniform(0.2, 15.0)
        way = self._chance.randrange(3)
        wire.carries_questions = way == 0
        wire.carries_answers = way == 1
        self._town.trouble(life.name, seconds)
        self._town.agenda.after(seconds, lambda: self._mend(wire))

    def _mend(self, wire: Wire) -> None:
        wire.carries_questions = wire.carries_answers = True

    def _break(self) -> None:
        for life in self._town.alive():
            if self._chance.random() < 0.5:
                self._befell("broken link", life.name)
                life.break_link()

    def _replace(self) -> None:
        """A rolling restart, of one broker."""
        life = self._victim()
        if life is not None:
            self._befell("stopped", life.name)
            life.stop()
            delay_s = self._chance.uniform(1.0, REPLACED_S_MAX)
            self._town.agenda.after(delay_s, lambda: self._succeed(life))

    def _succeed(self, life: Life) -> None:
        if not life.is_dead:
            # Whoever waits for a process to end kills it some time.
            self._befell("killed", life.name)
            life.die()
        if self._town.life_of(life.name) is None:
            self._town.start(life.name)

    def _join(self) -> None:
        name = self._chance.choice([*self._town.names, f"b{len(self._town.names)}"])
        if self._town.life_of(name) is None:
            self._befell("joined", name)
            if name not in self._town.names:
                self._town.names.append(name)
            self._town.start(name)

    def _twin(self) -> None:
        """A second process with the name of one that sleeps or is cut off."""
        for life in self._town.alive():
            if life.is_paused:
                self._befell("twin", life.name)
                # Names are for one process at a time, and only its commits are fenced.
                for other in self._town.lives:
                    if other.name == life.name:
                        other.doubtful_until_s = FOREVER_S
                self._town.start(life.name)
                return

    # What goes wrong with the database.

    def _set_wall(self) -> None:
        self._befell("clock set")
        self._town.wall_ahead_ms = self._chance.choice((-3_600_000, -5_000, 5_000, 3_600_000))

    def _restart_database(self) -> None:
        if self._town.server.is_up:
            self._befell("database restart")
            self._town.server.go_down(self._chance.choice((0.1, 2.0, 10.0, 20.0)))

    def _stall_database(self) -> None:
        self._befell("database stall")
        server = self._town.server
        server.stalls_until_s = self._town.agenda.now_s + self._chance.uniform(0.5, 12.0)

    def _fail_over(self) -> None:
        if self._town.server.is_up:
            self._befell("failover")
            self._town.server.fail_over(self._chance.choice((0.1, 1.0, 4.0, 15.0)), 0)

    def _lose_tail(self) -> None:
        server = self._town.server
        if server.is_up:
            self._befell("lossy failover")
            lost = min(self._chance.choice((1, 5, 20, 60)), len(self._town.database.wal))
            self._town.fail_over(self._chance.choice((0.1, 1.0, 4.0, 15.0)), lost)


def run_leases(seed: int) -> LeaseTown:
    """Play one seed to its end; a broken promise raises Violation."""
    chance = Random(seed)
    town = LeaseTown(seed, chance.randint(2, 5), chance.choice((1, 4, 8, 12)))
    for name in town.names:
        town.start(name)
    town.look()
    town.agenda.run(chance.uniform(0.0, 15.0))
    Chaos(town).run(chance.uniform(20.0, 90.0))
    town.finish()
    return town
