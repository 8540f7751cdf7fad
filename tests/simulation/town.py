"""The whole bus with its namespace: brokers at sites of their own, and a gateway that dies too."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from random import Random
from typing import Final, TypeVar

from shardbus.broker.access.auth import Authorizer
from shardbus.broker.bus import Bus
from shardbus.broker.fragment.answers import Answer
from shardbus.broker.namespace.namespace import Namespace
from shardbus.broker.namespace.settings import NamespaceSettings
from shardbus.broker.operations.recovering import TransactionRecovery
from shardbus.broker.operations.transactions import Transactor
from shardbus.core.errors import Refused, Unavailable
from shardbus.core.messages.command import Sent
from shardbus.core.namespace.tier import CHOSEN, NEWER, STANDARD, Tier
from shardbus.core.transactions.command import Home
from shardbus.stores.base.store import FragmentCommit
from shardbus.stores.memory.catalogue import MemoryCatalogue
from tests.simulation.faults import Faults
from tests.simulation.sending import Violation
from tests.simulation.sites import Site
from tests.simulation.tally import befell
from tests.simulation.walls import Clockmaker
from tests.simulation.world import EPOCH_MS, VirtualClock, VirtualLoop, VirtualWorker, Wall
from tests.support.entities import development_rule

T = TypeVar("T")

Ended = asyncio.Task[object] | asyncio.Task[Answer] | asyncio.Task[dict[Home, Sent]]

FRAGMENTS: Final = 3
# A broker that is away is waited for in each of several steps.
ANSWER_S_MAX: Final = 400.0
WHOLE_S_MAX: Final = 120.0


class TownFaults(Faults):
    """There is less to do here than with queues alone, so more of it goes wrong."""

    def __init__(self, chance: Random) -> None:
        super().__init__(chance)
        self.is_paused = False
        self.commit_fails_before *= 4
        self.commit_fails_after *= 4
        self.crash_before *= 4
        self.crash_after *= 4

    def happens(self, rate: float) -> bool:
        return not self.is_paused and super().happens(rate)

    def full_s(self) -> float:
        return 0.0 if self.is_paused else super().full_s() / 4


class Gateway:
    """One life of a gateway process."""

    def __init__(self, town: Town) -> None:
        self.is_dead = False
        self.ended = asyncio.Event()
        self._town = town
        self._worker = VirtualWorker(town.loop, town.faults.latency_s, town.crash_gateway)
        self._tasks: set[asyncio.Task[object]] = set()
        clock = town.clock
        settings = NamespaceSettings(Tier(STANDARD, NEWER, CHOSEN, FRAGMENTS), development_rule())
        self.namespace = Namespace(town.catalogue, town.sites, clock, settings, self._worker)
        self.bus = Bus(
            self.namespace,
            town.sites,
            Authorizer(self.namespace, clock),
            clock=clock,
            loop=town.loop,
            new_seed=town.seed,
        )
        self.transactor = Transactor(clock)

    async def open(self) -> None:
        await self.namespace.recover()
        await self.bus.open_timed()
        self.start(TransactionRecovery(self.bus, self._town.clock).run())
        self.start(self._sweep())

    def start(self, work: Coroutine[object, object, T]) -> asyncio.Task[T]:
        """Begin something that dies with the gateway."""
        task = self._town.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def welcome(self) -> None:
        """A broker is there again."""
        self.start(self._welcome())

    def die(self) -> None:
        self.is_dead = True
        self._worker.die()
        # In the order of their beginning: a set has none that is the same every time.
        tasks: list[Ended] = [*self._tasks, *self.transactor.tasks()]
        for handle in self.bus.in_use():
            tasks += handle.staging._transactor.tasks()
            tasks += handle.router.batches.tasks()
        for task in sorted(tasks, key=_number_of):
            task.cancel()
        self.ended.set()

    async def _welcome(self) -> None:
        await self.namespace.introduce()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(5)
            await self.bus.open_timed()
            if self.namespace.has_leftovers():
                try:
                    await self.namespace.sweep()
                except Unavailable:
                    continue


class Town:
    """What outlives the processes, and who is alive."""

    def __init__(self, seed: int, sites: int) -> None:
        self.chance = Random(seed)
        self.loop = VirtualLoop()
        self.clock = VirtualClock(self.loop)
        self.faults = TownFaults(self.chance)
        self.catalogue = MemoryCatalogue(EPOCH_MS)
        self.is_over = False
        self.events: Counter[str] = Counter()
        self.notes: list[str] = []
        self._marks = 0
        self.gateway: Gateway | None = None
        self._is_open = asyncio.Event()
        self.sites = [self.new_site(f"b{number}") for number in range(sites)]
        for site in self.sites:
            site.returned = self._returned
        self.clockmaker = Clockmaker(seed, self.walls(), self.note)

    def walls(self) -> list[Wall]:
        """The wall clocks that are set while clients are at work."""
        return [self.clock.wall, *(site.wall for site in self.sites)]

    def new_site(self, name: str) -> Site:
        return Site(name, self.loop, self.chance, self.faults, self.stored)

    def stored(self, commits: Sequence[FragmentCommit]) -> None:
        """A disk has stored a transaction."""

    def opened(self, gateway: Gateway) -> None:
        """A gateway is ready for clients."""

    def name_of(self, entity_id: int) -> str:
        """The name with which an entity was made, if only half, and whatever became of it."""
        for site in self.sites:
            if entity_id in site.names:
                return site.names[entity_id]
        raise Violation(f"something was stored for entity {entity_id}, which nobody created")

    def seed(self) -> bytes:
        return self.chance.randbytes(8)

    def new_mark(self) -> int:
        self._marks += 1
        return self._marks

    def now_ms(self) -> int:
        """The moment by a clock that is right."""
        return VirtualClock(self.loop).now_ms()

    def note(self, line: str) -> None:
        self.notes.append(f"{self.loop.time():.6f} {line}")

    def digest(self) -> str:
        return hashlib.sha256("\n".join(self.notes).encode()).hexdigest()

    def play(self, story: Coroutine[object, object, None]) -> None:
        """Run the story to its end; the first failure anywhere is its own."""
        self.loop.finish(self.loop.create_task(story))

    # Lives.

    async def open_gateway(self) -> Gateway:
        """The gateway that clients reach, as soon as there is one."""
        while self.gateway is None:
            await self._is_open.wait()
        return self.gateway

    def start_gateway(self) -> None:
        gateway = Gateway(self)
        gateway.start(self._open(gateway))

    async def _open(self, gateway: Gateway) -> None:
        while True:
            try:
                await gateway.open()
                break
            except Unavailable:
                await asyncio.sleep(1)
        self.gateway = gateway
        self.opened(gateway)
        self._is_open.set()

    def crash_gateway(self) -> None:
        dead, self.gateway = self.gateway, None
        if dead is None:
            return
        self.events["gateway crashed"] += 1
        befell("gateway crash")
        self.note("gateway crashed")
        self._is_open.clear()
        dead.die()
        self.loop.call_later(self.chance.uniform(0.05, 2.0), self.start_gateway)

    async def disasters(self) -> None:
        """Now and then a clock is set, or a process is killed, which has nothing to do with
        writing.
        """
        async with asyncio.TaskGroup() as group:
            group.create_task(self.clockmaker.run())
            group.create_task(self._kill())

    async def _kill(self) -> None:
        while self.faults.severity and not self.is_over:
            await asyncio.sleep(self.chance.expovariate(self.faults.severity / 4.0))
            self._disaster()

    def _disaster(self) -> None:
        if not self.is_over and self.chance.random() < 0.4:
            self.crash_gateway()
        elif not self.is_over:
            self.events["broker crashed"] += 1
            self.chance.choice(self.sites).crash()

    def calm(self) -> None:
        self.note("calm")
        self.is_over = True
        self.faults.stop()
        self.clockmaker.put_right()

    async def whole(self) -> Gateway:
        """Everybody is up again, and nothing is left undone."""
        deadline_s = self.loop.time() + WHOLE_S_MAX
        while True:
            gateway = await self.open_gateway()
            namespace = gateway.namespace
            if all(site.is_up for site in self.sites) and not namespace.has_leftovers():
                return gateway
            if self.loop.time() >= deadline_s:
                raise Violation(f"it takes too long until all is well: {namespace.problems()}")
            await asyncio.sleep(0.5)

    def is_empty(self) -> bool:
        """Whether no disk holds a message."""
        return not any(
            line.count or line.deferred or line.scheduled
            for site in self.sites
            for fragment in site.disk.kept.fragments()
            for line in site.disk.kept.load(fragment).counters.lines
        )

    async def attempt(
        self, gateway: Gateway, work: Coroutine[object, object, T]
    ) -> T | Refused | Unavailable:
        """What comes of something; it is unknown if the gateway dies."""
        if gateway.is_dead:
            work.close()
            return Unavailable("the gateway is dead")
        task = gateway.start(work)
        ended = self.loop.create_task(gateway.ended.wait())
        try:
            await asyncio.wait({task, ended}, timeout=ANSWER_S_MAX, return_when="FIRST_COMPLETED")
        except asyncio.CancelledError:
            # Whoever asked has gone: it goes on, and nobody hears what comes of it.
            task.add_done_callback(_pass_over)
            raise
        finally:
            ended.cancel()
        if not task.done() and not gateway.is_dead:
            raise Violation(f"{work} was not answered in time")
        if not task.done() or task.cancelled():
            task.cancel()
            return Unavailable("the gateway died", is_unknown=True)
        try:
            return task.result()
        except (Refused, Unavailable) as failure:
            return failure

    def _returned(self) -> None:
        if self.gateway is not None:
            self.gateway.welcome()


def _pass_over(task: asyncio.Task[T]) -> None:
    if not task.cancelled():
        task.exception()


def _number_of(task: Ended) -> int:
    return int(task.get_name().rpartition("-")[2])


def outcome_of(answer: object) -> str:
    """`accepted`, `refused` or `unknown`."""
    if isinstance(answer, Unavailable) and answer.is_unknown:
        return "unknown"
    return "refused" if isinstance(answer, Refused | Unavailable) else "accepted"


async def sent(send: Callable[[Callable[[Answer], None]], None]) -> Answer:
    """What is answered to a message or a batch; a failure is raised."""
    future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    def told(answer: Answer) -> None:
        if not future.done():
            future.set_result(answer)

    send(told)
    answer = await future
    if isinstance(answer, Refused | Unavailable):
        raise answer
    return answer
