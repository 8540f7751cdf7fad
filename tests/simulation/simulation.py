"""One seed, one history: the world of a simulation and the lives of the process in it."""

import asyncio
import hashlib
from random import Random

from shardbus.core.command import FragmentRules
from tests.simulation.bus import Bus, Plan, store_of
from tests.simulation.checkers import Checker
from tests.simulation.faults import Faults, FaultyStore
from tests.simulation.journal import Journal, check_conservation
from tests.simulation.world import VirtualLoop


class Simulation:
    """Holds what outlives a process: the stores, the clock, the dice and the checker."""

    def __init__(self, seed: int, plans: list[Plan], chance: Random) -> None:
        self.seed = seed
        self.chance = chance
        self.plans = plans
        self.loop = VirtualLoop()
        self.journal = Journal()
        self.checker = Checker(self.journal)
        self.faults = Faults(chance)
        self.is_over = False
        self.crashes = 0
        self.notes: list[str] = []
        self._marks = 0
        self._batches = 0
        self._bus: Bus | None = None
        self._is_up = asyncio.Event()
        self.stores = [self._store() for _ in range(chance.choice([1, 3]))]
        for plan in plans:
            for fragment in plan.fragment_ids():
                self.store_of(plan, fragment.number).create([fragment])
        self._start()

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

    async def bus_up(self) -> Bus:
        """The process, as soon as one is running."""
        while self._bus is None:
            await self._is_up.wait()
        return self._bus

    def crash(self) -> None:
        """The process dies, now; another one starts after a while."""
        if self._bus is None:
            return
        dead, self._bus = self._bus, None
        self._is_up.clear()
        self.crashes += 1
        self.note("crash")
        dead.die()
        self.check_conservation()
        self.loop.call_later(self.chance.uniform(0.05, 2.0), self._start)

    def check_conservation(self) -> None:
        for plan in self.plans:
            for fragment in plan.fragment_ids():
                check_conservation(self.store_of(plan, fragment.number).kept, fragment)

    def _store(self) -> FaultyStore:
        return FaultyStore(self.faults, self.journal, self.loop.time, self.checker.loaded)

    def _start(self) -> None:
        self._bus = Bus(self.plans, self.stores, self.checker, self.loop, self.chance, self.crash)
        self._is_up.set()
        self.note("start")
