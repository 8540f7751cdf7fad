"""Two brokers on real files in virtual time, one of them slow, and backups of both."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Coroutine
from itertools import count
from pathlib import Path
from typing import TypeVar

from shardbus.app.server.broker_store import CatalogueStill, StoreStill
from shardbus.broker.access.auth import Authorizer
from shardbus.broker.backup.backup import Backup, BackupOrder, BackupPart, BackupRoom, FileCopy
from shardbus.broker.backup.part import LocalPart, Still
from shardbus.broker.broker import Broker
from shardbus.broker.bus import Bus, EntityHandle
from shardbus.broker.fragment.storage import Storage
from shardbus.broker.namespace.namespace import Namespace
from shardbus.broker.namespace.settings import NamespaceSettings
from shardbus.broker.operations.asking import ask
from shardbus.broker.operations.recovering import TransactionRecovery
from shardbus.broker.operations.transactions import DECIDE_MS, TransactionPart, Transactor
from shardbus.core.message import MAIN_LINE, Message
from shardbus.core.messages.command import COMPLETE, Delivery, Receive, Received, Send, Settle
from shardbus.core.namespace.entity import EntitySpec
from shardbus.core.namespace.tier import NEWER, STANDARD, tier_named
from shardbus.core.transactions.command import Work
from shardbus.stores.base.backup import Snapshot
from shardbus.stores.base.store import FragmentId
from shardbus.stores.sqlite.catalogue import SqliteCatalogue
from shardbus.stores.sqlite.snapshot import database_bytes, open_snapshot
from shardbus.stores.sqlite.store import SqliteStore
from tests.simulation.world import VirtualClock, VirtualLoop, VirtualWorker
from tests.support.entities import development_rule

T = TypeVar("T")

# Queues are named by the index of their broker.
NEAR, FAR = 0, 1
TXN = bytes(16)
# Longer than a transaction over both stores takes.
LATE_S = 0.05


class OpenFile:
    """The file of a store that is open here."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def size_bytes(self) -> int:
        return database_bytes(self._path)

    def snapshot(self) -> Snapshot:
        return open_snapshot(self._path)


class BackupWorld:
    """A queue is on the first broker and another on the second; `slowness_s` is of their disks."""

    def __init__(self, directory: Path, slowness_s: tuple[float, float] = (0.001, 0.004)) -> None:
        self.directory = directory
        directory.mkdir(exist_ok=True)
        self.backups = directory / "backups"
        self.slowness_s = list(slowness_s)
        self.loop = VirtualLoop()
        self.clock = VirtualClock(self.loop)
        self._seeds = count()
        self.stores = [
            SqliteStore(directory / f"broker-{index}.db", durability="relaxed")
            for index in range(2)
        ]
        self.catalogue = SqliteCatalogue(directory / "catalogue.db", now_ms=self.clock.now_ms())
        self.storages = [
            Storage(store, self.worker(index), self.worker(index), self.loop)
            for index, store in enumerate(self.stores)
        ]
        self.brokers = [
            Broker(f"broker-{index}", storage, self.clock, self.loop)
            for index, storage in enumerate(self.storages)
        ]
        self._serve()
        self.parts = self._parts()
        self.late: int | None = None
        """The broker that hears last that it is to stand still, and how much later."""
        self.late_s = LATE_S

    def _serve(self) -> None:
        settings = NamespaceSettings(tier_named(STANDARD, NEWER), development_rule())
        settings.is_partitioned_by_default = False
        self._catalogue_worker = self.worker(0)
        self.namespace = Namespace(
            self.catalogue, self.brokers, self.clock, settings, self._catalogue_worker
        )
        self.bus = Bus(
            self.namespace,
            self.brokers,
            Authorizer(self.namespace, self.clock),
            clock=self.clock,
            loop=self.loop,
            new_seed=self.seed,
        )
        self.recovery = TransactionRecovery(self.bus, self.clock)
        self.run(self.namespace.recover())

    def _parts(self) -> list[LocalPart]:
        parts = [
            self.part(broker.name, StoreStill(storage, OpenFile(store.path)))
            for broker, storage, store in zip(self.brokers, self.storages, self.stores, strict=True)
        ]
        still = CatalogueStill(self.catalogue, self._catalogue_worker)
        return [*parts, self.part("catalogue", still)]

    def part(self, name: str, still: Still) -> LocalPart:
        return LocalPart(
            name, still, self.backups, loop=self.loop, new_worker=lambda: self.worker(0)
        )

    def worker(self, index: int) -> VirtualWorker:
        return VirtualWorker(self.loop, lambda: self.slowness_s[index], _nobody_dies)

    def seed(self) -> bytes:
        return next(self._seeds).to_bytes(8, "big")

    def run(self, work: Coroutine[object, object, T]) -> T:
        return self.loop.run_until_complete(work)

    def pass_s(self, seconds: float) -> None:
        self.run(asyncio.sleep(seconds))

    def close(self) -> None:
        for part in self.parts:
            self.run(part.close())
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        if tasks:
            self.run(_gathered(tasks))
        self.loop.close()
        for store in self.stores:
            store.close()
        self.catalogue.close()

    # What clients do.

    def make_queues(self) -> None:
        """One on each broker at least."""
        for number in range(100):
            self.run(self.namespace.create_queue(f"queue-{number}", EntitySpec()))
            if {home for home, _ in self._homes()} == {0, 1}:
                return
        raise AssertionError("all queues are on one broker")

    def _homes(self) -> list[tuple[int, str]]:
        entities = self.catalogue.entities()
        return [(entity.fragments[0].broker_index, entity.name) for entity in entities]

    def _name(self, broker_index: int) -> str:
        return next(name for home, name in self._homes() if home == broker_index)

    def handle(self, which: int) -> EntityHandle:
        handle = self.bus.find(self._name(which))
        assert handle is not None
        return handle

    def send(self, which: int, *payloads: bytes) -> None:
        self.run(self.sending(which, *payloads))

    async def sending(self, which: int, *payloads: bytes) -> None:
        messages = [Message(payload) for payload in payloads]
        await ask(self.handle(which).runners[0], Send(messages))

    async def receiving(self, which: int) -> list[Delivery]:
        command = Receive(MAIN_LINE, 10, is_locking=True, token_seed=self.seed())
        answer = await ask(self.handle(which).runners[0], command)
        assert isinstance(answer, Received)
        return answer.deliveries

    async def move(self) -> None:
        """Move what is in the near queue to the far one, in one transaction."""
        deliveries = await self.receiving(NEAR)
        settle = Settle(COMPLETE, [delivery.token for delivery in deliveries])
        messages = [Message(delivery.payload or b"") for delivery in deliveries]
        parts = [self._work(NEAR, Work([], [settle])), self._work(FAR, Work(messages, []))]
        await Transactor(self.clock).commit(TXN, parts)

    def _work(self, which: int, work: Work) -> TransactionPart:
        handle = self.handle(which)
        home = (handle.entity.entity_id, handle.router.numbers[0])
        return TransactionPart(handle.runners[0], home, work)

    # What operators do.

    def backup(self, backup_id: str = "1") -> Backup:
        stores: list[BackupPart] = list(self.parts[:-1])
        if self.late is not None:
            stores[self.late] = LatePart(self.parts[self.late], self.late_s)
        return Backup(BackupOrder(backup_id, "copy"), stores, self.parts[-1], self.clock)

    async def back_up(self, meanwhile: Callable[[], None] = lambda: None) -> list[FileCopy]:
        backup = self.backup()
        await backup.prepare()
        await backup.cut(meanwhile)
        copies = await backup.copy(lambda _: None)
        await backup.keep()
        return copies

    def restored(self) -> BackupWorld:
        """Another world that begins with the files of the backup."""
        directory = self.directory.with_name(f"{self.directory.name}-restored")
        directory.mkdir()
        for file in (self.backups / "copy").iterdir():
            shutil.copy(file, directory / file.name)
        return BackupWorld(directory)

    def settle_down(self) -> None:
        """Let everything be decided that was promised."""
        self.pass_s(DECIDE_MS / 1000 + 61)
        for _ in range(3):
            self.run(self.recovery.recover())
            self.pass_s(1)

    # What is there.

    def contents(self, which: int) -> list[bytes]:
        """What a queue holds on disk, locked or promised or not."""
        handle = self.handle(which)
        home = handle.entity.fragments[0]
        fragment = FragmentId(handle.entity.entity_id, home.number)
        page = self.stores[home.broker_index].browse(
            fragment, MAIN_LINE, start=0, count_max=100, bytes_max=1_000_000
        )
        return [entry.payload or b"" for entry in page.entries]


class LatePart:
    """A `BackupPart` of a broker that is far away."""

    def __init__(self, part: LocalPart, late_s: float) -> None:
        self.name = part.name
        self._part = part
        self._late_s = late_s

    async def prepare(self, order: BackupOrder) -> BackupRoom:
        return await self._part.prepare(order)

    async def hold(self, backup_id: str) -> None:
        await asyncio.sleep(self._late_s)
        await self._part.hold(backup_id)

    async def let_go(self, backup_id: str) -> None:
        await self._part.let_go(backup_id)

    async def copy(self, backup_id: str) -> None:
        await self._part.copy(backup_id)

    async def look(self, backup_id: str) -> FileCopy:
        return await self._part.look(backup_id)

    async def end(self, backup_id: str, *, is_kept: bool) -> None:
        await self._part.end(backup_id, is_kept=is_kept)


def _nobody_dies() -> None:
    raise AssertionError("nothing crashes here")


async def _gathered(tasks: set[asyncio.Task[object]]) -> None:
    await asyncio.gather(*tasks, return_exceptions=True)
