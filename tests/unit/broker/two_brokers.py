"""Two brokers, each with a disk of its own, that die together and start again on the same disks."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from itertools import count
from typing import TypeVar

from shardbus.broker.access.auth import Authorizer
from shardbus.broker.broker import Broker
from shardbus.broker.bus import Bus, EntityHandle
from shardbus.broker.fragment.storage import Storage
from shardbus.broker.namespace.namespace import Namespace
from shardbus.broker.namespace.settings import NamespaceSettings
from shardbus.broker.operations.asking import ask
from shardbus.broker.operations.recovering import TransactionRecovery
from shardbus.broker.operations.transactions import TransactionPart, Transactor
from shardbus.core.message import MAIN_LINE, Message
from shardbus.core.messages.command import Delivery, Receive, Received, Send, Settle
from shardbus.core.namespace.entity import EntitySpec
from shardbus.core.namespace.tier import NEWER, STANDARD, tier_named
from shardbus.core.transactions.command import Work
from shardbus.stores.base.store import FragmentCommit, FragmentId, StoreError
from shardbus.stores.memory.catalogue import MemoryCatalogue
from tests.simulation.faults import Disk
from tests.simulation.world import EPOCH_MS, Crash, VirtualClock, VirtualLoop, VirtualWorker
from tests.support.entities import development_rule

T = TypeVar("T")

BEFORE = "before"
AFTER = "after"
LATENCY_S = 0.001


class Fate:
    """When the next thing goes wrong, counted in commits of all disks: a crash, or an error."""

    def __init__(self) -> None:
        self.commits = 0
        self.at = 0
        self.when = BEFORE
        self.is_crash = True

    def plan(self, at: int, when: str, *, is_crash: bool) -> None:
        """The `at`-th commit from now fails, before or after it is stored."""
        self.commits, self.at, self.when, self.is_crash = 0, at, when, is_crash

    def strike(self, when: str) -> None:
        if when == BEFORE:
            self.commits += 1
        if self.at and self.commits == self.at and self.when == when:
            self.at = 0
            if self.is_crash:
                raise Crash
            raise StoreError("bad luck")

    @property
    def has_struck(self) -> bool:
        return self.at == 0


class FatedDisk(Disk):
    def __init__(self, fate: Fate) -> None:
        super().__init__()
        self._fate = fate
        self.is_unreadable = False

    def before_commit(self, commits: Sequence[FragmentCommit]) -> None:
        self._fate.strike(BEFORE)

    def after_commit(self, commits: Sequence[FragmentCommit]) -> None:
        self._fate.strike(AFTER)

    def before_read(self, fragment: FragmentId, what: str) -> None:
        if self.is_unreadable:
            raise StoreError("cannot be read")


class TwoBrokers:
    """The queues `near` and `far` live on different brokers. Time passes while something runs."""

    def __init__(self) -> None:
        self.fate = Fate()
        self.disks = [FatedDisk(self.fate) for _ in range(2)]
        self.catalogue = MemoryCatalogue(EPOCH_MS)
        self._forgotten: dict[int, str] = {}
        self._seeds = count()
        self._time_s = 0.0
        self.has_died = False
        self._start()
        self.near, self.far = self._make_queues()

    def _start(self) -> None:
        self.loop = VirtualLoop()
        self.loop.pass_time(self._time_s)
        self.clock = VirtualClock(self.loop)
        self._workers: list[VirtualWorker] = []
        brokers = [self._broker(f"b{index}", disk) for index, disk in enumerate(self.disks)]
        settings = NamespaceSettings(tier_named(STANDARD, NEWER), development_rule())
        settings.is_partitioned_by_default = False
        self.namespace = Namespace(self.catalogue, brokers, self.clock, settings, self._worker())
        self.bus = Bus(
            self.namespace,
            brokers,
            Authorizer(self.namespace, self.clock),
            clock=self.clock,
            loop=self.loop,
            new_seed=self.seed,
        )
        self.transactor = Transactor(self.clock)
        self.recovery = TransactionRecovery(self.bus, self.clock)
        self.has_died = False
        self.run(self.namespace.recover())

    def _broker(self, name: str, disk: Disk) -> Broker:
        storage = Storage(disk, self._worker(), self._worker(), self.loop)
        return Broker(name, storage, self.clock, self.loop)

    def _worker(self) -> VirtualWorker:
        worker = VirtualWorker(self.loop, lambda: LATENCY_S, self._die)
        self._workers.append(worker)
        return worker

    def _die(self) -> None:
        self.has_died = True
        for worker in self._workers:
            worker.die()

    def _make_queues(self) -> tuple[str, str]:
        """Two queues that are not on the same broker."""
        homes: dict[int, str] = {}
        for number in range(100):
            name = f"queue-{number}"
            entity = self.run(self.namespace.create_queue(name, EntitySpec()))
            homes.setdefault(entity.fragments[0].broker_index, name)
            if len(homes) == 2:
                return homes[0], homes[1]
        raise AssertionError("all queues are on one broker")

    def seed(self) -> bytes:
        return next(self._seeds).to_bytes(8, "big")

    # Life and death.

    def restart(self) -> None:
        """Everything in memory is gone; the disks are as they are."""
        self._die()
        self.close()
        self._start()

    def restart_without(self, name: str) -> None:
        """With a catalogue that is older than a queue; `restart_with_all` brings the other back."""
        known = self.catalogue._documents
        self._forgotten = dict(known)
        del known[self.handle(name).entity.entity_id]
        self.restart()

    def restart_with_all(self) -> None:
        self.catalogue._documents.update(self._forgotten)
        self.restart()

    def close(self) -> None:
        self._time_s = self.loop.time()
        self.loop.set_exception_handler(lambda loop, context: None)
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        if tasks:
            self.loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self.loop.close()

    def run(self, work: Coroutine[object, object, T]) -> T:
        return self.loop.run_until_complete(work)

    def pass_s(self, seconds: float) -> None:
        self.run(asyncio.sleep(seconds))

    def attempt(self, work: Coroutine[object, object, object]) -> BaseException | None:
        """What comes of something that may never end, because everything died.

        None when it succeeded.
        """
        task = self.loop.create_task(work)
        self.run(_wait_for(task))
        if not task.done():
            return TimeoutError()
        return task.exception()

    # What clients do.

    def handle(self, name: str) -> EntityHandle:
        handle = self.bus.find(name)
        assert handle is not None
        return handle

    def send(self, name: str, *payloads: bytes) -> None:
        messages = [Message(payload) for payload in payloads]
        self.run(ask(self.handle(name).runners[0], Send(messages)))

    def receive(self, name: str, count_max: int = 10) -> list[Delivery]:
        command = Receive(MAIN_LINE, count_max, is_locking=True, token_seed=self.seed())
        answer = self.run(ask(self.handle(name).runners[0], command))
        assert isinstance(answer, Received)
        return answer.deliveries

    def part(
        self, name: str, messages: list[bytes] | None = None, settle: Settle | None = None
    ) -> TransactionPart:
        handle = self.handle(name)
        home = (handle.entity.entity_id, handle.router.numbers[0])
        work = Work(
            [Message(payload) for payload in messages or []], [] if settle is None else [settle]
        )
        return TransactionPart(handle.runners[0], home, work, handle.router.outboxes[0])

    # What is there.

    def disk_of(self, name: str) -> FatedDisk:
        return self.disks[self.handle(name).entity.fragments[0].broker_index]

    def contents(self, name: str) -> list[bytes]:
        """What a queue holds on disk, locked or promised or not."""
        handle = self.handle(name)
        fragment = FragmentId(handle.entity.entity_id, handle.router.numbers[0])
        kept = self.disk_of(name).kept._fragments[fragment]
        return [kept.payload(number) or b"" for number in sorted(kept.entries)]

    def unfinished(self) -> list[FragmentId]:
        """Fragments that keep something about a transaction, rollbacks aside."""
        return [
            fragment
            for disk in self.disks
            for fragment, kept in disk.kept._fragments.items()
            if any(kind == 1 or data[:1] == b"\x01" for (kind, _), data in kept.records.items())
        ]


async def _wait_for(task: asyncio.Task[object]) -> None:
    await asyncio.wait([task], timeout=5)
