"""Brokers that die and start again on the same disks, as gateways in other processes see them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import TypeVar

from shardbus.broker.broker import Broker
from shardbus.broker.fragment.answers import ReplyTo
from shardbus.broker.fragment.publishing import Publisher
from shardbus.broker.fragment.runner import UNAVAILABLE, Runner
from shardbus.broker.fragment.storage import Storage
from shardbus.broker.namespace.host import FragmentStatistics
from shardbus.broker.survey import Survey
from shardbus.core.errors import Unavailable
from shardbus.core.fragment.bounds import Bounds
from shardbus.core.fragment.command import Command
from shardbus.core.messages.command import NO_SESSION
from shardbus.core.namespace.entity import Entity
from shardbus.stores.base.store import FragmentCommit, FragmentId, StoreError
from tests.simulation.faults import Disk, Faults, Filling, UnfitCommits
from tests.simulation.payloads import FORMAT
from tests.simulation.tally import asked, befell
from tests.simulation.world import Crash, VirtualClock, VirtualLoop, VirtualWorker, Wall
from tests.support.unread import Unread

T = TypeVar("T")

# A publisher does so little at a time that most of what is published takes several turns.
STEPS_MAX = 20

Stored = Callable[[Sequence[FragmentCommit]], None]
"""Hears of every transaction that a disk has stored."""


class WitnessedDisk(Disk):
    """A disk with bad luck; somebody hears what it stores."""

    def __init__(self, faults: Faults, stored: Stored, now_s: Callable[[], float]) -> None:
        super().__init__()
        self._filling = Filling(faults, self.kept, now_s, are_sent=False)
        self._faults = faults
        self._stored = stored
        self.unfit = UnfitCommits(faults, are_alone=False)

    def look(self) -> None:
        self._filling.look()

    def before_commit(self, commits: Sequence[FragmentCommit]) -> None:
        faults = self._faults
        self._filling.meet(commits)
        self.unfit.meet(commits)
        if faults.happens(faults.crash_before):
            raise Crash
        if faults.happens(faults.commit_fails_before):
            befell("failed commit")
            raise StoreError("planted: the commit did not happen")

    def after_commit(self, commits: Sequence[FragmentCommit]) -> None:
        faults = self._faults
        self._stored(commits)
        if faults.happens(faults.crash_after):
            raise Crash
        if faults.happens(faults.commit_fails_after):
            befell("lost commit")
            raise StoreError("planted: the commit happened, but who knows")

    def before_read(self, fragment: FragmentId, what: str) -> None:
        if self._faults.happens(self._faults.reads_fail):
            befell("failed read")
            raise StoreError("planted: the disk does not answer")


class Site:
    """A FragmentHost and a FragmentOpener; nobody is at home while the broker is dead."""

    # Of each fragment; the usual ones.
    bounds: Bounds | None = None

    def __init__(
        self,
        name: str,
        loop: VirtualLoop,
        chance: Random,
        faults: Faults,
        stored: Stored,
    ) -> None:
        self.name = name
        self.faults = faults
        self.disk = self.new_disk(stored, loop)
        self.crashes = 0
        self.wall = Wall()
        # Told when the broker is there again.
        self.returned: Callable[[], None] = lambda: None
        # Commands that are lost on their way to the broker.
        self.lost: tuple[type[Command], ...] = ()
        self.names: dict[int, str] = {}
        self._loop = loop
        self._chance = chance
        self._latency_s = faults.latency_s
        self._workers: list[VirtualWorker] = []
        self._broker: Broker | None = None
        self.start()

    def new_disk(self, stored: Stored, loop: VirtualLoop) -> WitnessedDisk:
        return WitnessedDisk(self.faults, stored, loop.time)

    @property
    def is_up(self) -> bool:
        return self._broker is not None

    def start(self) -> None:
        if self._broker is not None:
            return
        self._workers = [VirtualWorker(self._loop, self._latency_s, self.crash) for _ in range(2)]
        self.disk.unfit.begin()
        storage = Storage(self.disk, self._workers[0], self._workers[1], self._loop)
        self._broker = Broker(
            self.name,
            storage,
            VirtualClock(self._loop, self.wall),
            self._loop,
            new_publisher=lambda: Publisher(
                self._chance.randbytes(8), payloads=FORMAT, steps_max=STEPS_MAX
            ),
            bounds=self.bounds,
        )
        self.returned()

    def crash(self) -> None:
        """Nothing is written any more; who waited for an answer does not know it."""
        dead, self._broker = self._broker, None
        if dead is None:
            return
        self.crashes += 1
        befell("broker crash")
        for worker in self._workers:
            worker.die()
        dead.close()
        self._loop.call_later(self._chance.uniform(0.05, 3.0), self.start)

    def running(self, entity: Entity, number: int) -> Runner | None:
        return None if self._broker is None else self._broker.runner(entity, number)

    # What gateways ask.

    def runner(self, entity: Entity, number: int) -> SitePort:
        return SitePort(self, entity, number)

    async def join(self, namespace_id: str, *, is_empty_expected: bool) -> int:
        return await self._at_home().join(namespace_id, is_empty_expected=is_empty_expected)

    async def create_fragments(self, entity: Entity, numbers: Sequence[int]) -> None:
        self.names[entity.entity_id] = entity.name
        await self._at_home().create_fragments(entity, numbers)

    async def update_fragments(self, entity: Entity, numbers: Sequence[int]) -> None:
        await self._at_home().update_fragments(entity, numbers)

    async def update_topic(
        self, topic: Entity, subscriptions: Sequence[Entity], numbers: Sequence[int]
    ) -> None:
        await self._at_home().update_topic(topic, subscriptions, numbers)

    async def delete_fragments(self, entity_id: int, numbers: Sequence[int]) -> None:
        await self._at_home().delete_fragments(entity_id, numbers)

    async def fragment_ids(self, *, is_timed: bool = False) -> list[FragmentId]:
        return await self._at_home().fragment_ids(is_timed=is_timed)

    async def in_doubt(self) -> list[FragmentId]:
        return await self._at_home().in_doubt()

    async def transferring(self) -> list[FragmentId]:
        return await self._at_home().transferring()

    async def loss(self) -> str:
        return await self._at_home().loss()

    async def survey(self, since: int) -> Survey:
        return await self._at_home().survey(since)

    async def statistics(self, entity_id: int, numbers: Sequence[int]) -> list[FragmentStatistics]:
        return await self._at_home().statistics(entity_id, numbers)

    def _at_home(self) -> Broker:
        if self._broker is None:
            raise Unavailable(f"broker {self.name} is away")
        return self._broker


class SitePort(Unread):
    """A fragment at a site, whichever broker lives there now."""

    def __init__(self, site: Site, entity: Entity, number: int) -> None:
        self.fragment_id = FragmentId(entity.entity_id, number)
        self.site = site
        self._entity = entity
        self._number = number

    @property
    def is_available(self) -> bool:
        runner = self._runner()
        return runner is not None and runner.is_available

    @property
    def state(self) -> str:
        runner = self._runner()
        return UNAVAILABLE if runner is None else runner.state

    @property
    def reason(self) -> str:
        runner = self._runner()
        return f"broker {self.site.name} is away" if runner is None else runner.reason

    def submit(self, command: Command, reply_to: ReplyTo) -> None:
        asked()
        runner = self._runner()
        if runner is None:
            reply_to(Unavailable(self.reason))
        elif isinstance(command, self.site.lost):
            reply_to(Unavailable("the connection was lost", is_unknown=True))
        else:
            runner.submit(command, reply_to)

    def watch(self, line: int, wake: Callable[[], None], session: bytes = NO_SESSION) -> None:
        """Whoever watches a broker that is away, or dies, must look again without being told."""
        runner = self._runner()
        if runner is not None:
            runner.watch(line, wake, session)

    def unwatch(self, line: int, wake: Callable[[], None], session: bytes = NO_SESSION) -> None:
        runner = self._runner()
        if runner is not None:
            runner.unwatch(line, wake, session)

    def _runner(self) -> Runner | None:
        return self.site.running(self._entity, self._number)
