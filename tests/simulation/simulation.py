"""One seed, one history: the world of a simulation and the lives of the processes in it."""

import asyncio
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from random import Random

from shardbus.core.fragment.command import FragmentRules
from tests.simulation.bus import Bus, Gate, Plan, Tap, store_of
from tests.simulation.census import check_conservation
from tests.simulation.checkers import Checker
from tests.simulation.faults import Faults, FaultyStore
from tests.simulation.journal import Journal
from tests.simulation.tally import befell
from tests.simulation.walls import Clockmaker
from tests.simulation.world import VirtualClock, VirtualLoop, Wall

GATEWAYS = 2


class Simulation(ABC):
    """Holds what outlives a process: the stores, the clock, the dice and the checker."""

    def __init__(
        self, seed: int, plans: list[Plan], chance: Random, store_counts: list[int]
    ) -> None:
        self.seed = seed
        self.chance = chance
        self.plans = plans
        self.loop = VirtualLoop()
        self.journal = Journal(self.rules_of())
        self.checker = Checker(self.journal)
        self.faults = Faults(chance)
        self.is_over = False
        self.crashes = 0
        self.notes: list[str] = []
        self._marks = 0
        self._batches = 0
        self.stores = [self._store() for _ in range(chance.choice(store_counts))]
        # One for each broker, and one for each gateway.
        self.walls = [Wall() for _ in range(len(self.stores) + GATEWAYS)]
        self.clockmaker = Clockmaker(seed, self.walls, self.note)
        for plan in plans:
            for fragment in plan.fragment_ids():
                self.store_of(plan, fragment.number).create([fragment])

    @abstractmethod
    async def bus_up(self, plan: Plan) -> Gate:
        """Where a client of this entity connects, as soon as it can."""

    @abstractmethod
    def gate_beside(self, gate: Gate) -> Gate:
        """Where a lock that was taken at `gate` may be settled too."""

    @abstractmethod
    def gates(self) -> list[Gate]:
        """Every way to reach the bus that there is now."""

    @abstractmethod
    def taps_of(self, plan: Plan) -> list[Tap]:
        """The fragments of an entity as they run now."""

    def opened_of(self, plan: Plan) -> list[Tap]:
        """Those of them that somebody has opened."""
        return self.taps_of(plan)

    @abstractmethod
    def is_whole(self) -> bool:
        """Whether everybody knows that every fragment is available."""

    @abstractmethod
    def start_disasters(self, chaos_s: float, clients: asyncio.TaskGroup) -> None:
        """Let go wrong what has nothing to do with writing."""

    def keep(self, story: Coroutine[object, object, None]) -> asyncio.Task[None]:
        """Run something to the end of the history; its failure is the history's."""
        task = self.loop.create_task(story)
        task.add_done_callback(lambda done: None if done.cancelled() else done.result())
        return task

    def calm(self) -> None:
        """End everything that goes wrong."""
        self.note("calm")
        self.is_over = True
        self.faults.stop()
        self.clockmaker.put_right()

    def now_ms(self) -> int:
        return VirtualClock(self.loop).now_ms()

    def note(self, line: str) -> None:
        self.notes.append(f"{self.loop.time():.6f} {line}")

    def digest(self) -> str:
        return hashlib.sha256("\n".join(self.notes).encode()).hexdigest()

    def new_mark(self) -> int:
        self._marks += 1
        return self._marks

    def new_batch(self) -> int:
        self._batches += 1
        return self._batches

    def store_of(self, plan: Plan, number: int) -> FaultyStore:
        return self.stores[store_of(plan.fragment_ids()[number], len(self.stores))]

    def rules_of(self) -> dict[int, FragmentRules]:
        return {plan.entity_id: plan.rules for plan in self.plans}

    def check_conservation(self) -> None:
        for plan in self.plans:
            for fragment in plan.fragment_ids():
                kept = self.store_of(plan, fragment.number).kept
                check_conservation(kept, fragment, self.journal)

    def check_duplicates(self) -> None:
        for plan in self.plans:
            for fragment in plan.fragment_ids():
                counters = self.store_of(plan, fragment.number).kept.load(fragment).counters
                self.checker.check_duplicates(fragment, counters.duplicates)

    def _store(self) -> FaultyStore:
        return FaultyStore(self.faults, self.journal, self.loop.time, self.checker.loaded)


class OneProcess(Simulation):
    """Brokers and gateway live in one process, and die with it."""

    def __init__(self, seed: int, plans: list[Plan], chance: Random) -> None:
        super().__init__(seed, plans, chance, [1, 3])
        self._bus: Bus | None = None
        self._is_up = asyncio.Event()
        self._start()

    async def bus_up(self, plan: Plan) -> Bus:
        while self._bus is None:
            await self._is_up.wait()
        return self._bus

    def gate_beside(self, gate: Gate) -> Gate:
        return gate

    def gates(self) -> list[Gate]:
        return [] if self._bus is None else [self._bus]

    def taps_of(self, plan: Plan) -> list[Tap]:
        return [] if self._bus is None else self._bus.taps[plan.entity_id]

    def is_whole(self) -> bool:
        return self._bus is not None and self._bus.is_available()

    def start_disasters(self, chaos_s: float, clients: asyncio.TaskGroup) -> None:
        clients.create_task(self._disaster())

    def crash(self) -> None:
        """The process dies, now; another one starts after a while."""
        if self._bus is None:
            return
        dead, self._bus = self._bus, None
        self._is_up.clear()
        self.crashes += 1
        befell("process crash")
        self.note("crash")
        dead.die()
        self.check_conservation()
        self.loop.call_later(self.chance.uniform(0.05, 2.0), self._start)

    async def _disaster(self) -> None:
        """Now and then the process is killed at a moment that has nothing to do with writing."""
        while self.faults.severity and not self.is_over:
            await asyncio.sleep(self.chance.expovariate(self.faults.severity / 60.0))
            if not self.is_over:
                self.crash()

    def _start(self) -> None:
        clock = VirtualClock(self.loop, self.walls[0])
        self._bus = Bus(self.plans, self.stores, self.checker, clock, self.chance, self.crash)
        self._is_up.set()
        self.note("start")
