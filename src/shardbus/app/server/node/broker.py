"""The broker of a node: leases slots of all databases of a cluster, and serves them to gateways."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, final

from shardbus.app.cli.version import describe
from shardbus.app.server.broker_address import BrokerAddress, Listening
from shardbus.app.server.broker_store import new_broker, store_part
from shardbus.app.server.node.joining import TRUSTS, clock_problem
from shardbus.app.server.node.links import NodeLinks
from shardbus.app.server.settings import Settings
from shardbus.broker.backup.call import BackupAnswerer
from shardbus.broker.clock import TimedClock
from shardbus.broker.cluster.driver import LeaseDriver
from shardbus.broker.cluster.leased_slot import LeasedSlot
from shardbus.broker.cluster.reading import CatalogueReader
from shardbus.broker.cluster.served import OpenSlot, ServedSlots, SlotParts
from shardbus.broker.cluster.slot_map import PROTOCOL
from shardbus.broker.fragment.storage import ThreadWorker
from shardbus.broker.remote.endpoint import Endpoint
from shardbus.broker.remote.served_gateway import Gateway
from shardbus.broker.wire.frames import NONCE_BYTES, PROTOCOL_VERSION
from shardbus.core.cluster.keeper import Keeper
from shardbus.stores.base.cluster import SharedStore, SharedStores
from shardbus.stores.base.store import StoreError

log = logging.getLogger(__name__)

# Random bits of an incarnation; with the number of the joining they fit into 63 bits.
_NONCE_BITS: Final = 40
# How long a stopping node may take to hand over its slots.
LEAVE_S: Final = 30.0


def about_node(
    name: str, roles: tuple[str, ...], address: str, clock: TimedClock, trusted: list[str]
) -> str:
    """The document that describes a node to gateways and operators."""
    document = {
        "name": name,
        "roles": list(roles),
        "address": address,
        "version": str(describe()["version"]),
        "started_at_ms": clock.now_ms(),
        PROTOCOL: PROTOCOL_VERSION,
        TRUSTS: trusted,
    }
    return json.dumps(document, separators=(",", ":"))


@final
class NodeBroker:
    """The leases and the slots of one process, in every database."""

    def __init__(
        self,
        name: str,
        cluster: SharedStores,
        links: NodeLinks,
        settings: Settings,
        clock: TimedClock,
    ) -> None:
        self._name = name
        self._cluster = cluster
        self._links = links
        self._settings = settings
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._server: Listening | None = None
        self.drivers: list[LeaseDriver] = []
        self._boards: list[ServedSlots] = []
        self._sight = cluster.catalogue_sight(name)
        self._worker = ThreadWorker("catalogue-sight", self._loop)
        self.reader = CatalogueReader(self._sight, self._open_slots, self._worker, loop=self._loop)
        self._reading: asyncio.Task[None] | None = None

    async def listen(self, address: BrokerAddress) -> BrokerAddress:
        """Accept gateways; returns the address to which they connect."""
        self._server = await self._links.listen(address, self._accept)
        return address.bound(self._server)

    def start(self, about: str) -> None:
        """Join the databases with a new incarnation."""
        nonce = secrets.randbits(_NONCE_BITS) or 1
        self._reading = self._loop.create_task(self.reader.run())
        self._reading.add_done_callback(_read)
        for store in self._cluster.stores:
            self._lead(store, about, nonce, self.reader.wake)

    def serves(self, slot: int) -> bool:
        return bool(self.drivers) and self.drivers[slot % len(self.drivers)].serves(slot)

    def problems(self) -> list[str]:
        found = [
            f"store {index}: {driver.problem}"
            for index, driver in enumerate(self.drivers)
            if driver.problem
        ]
        alarms = [driver.last_alarm for driver in self.drivers if driver.last_alarm]
        return [*found, *alarms, *self._clock_problems()]

    def _clock_problems(self) -> list[str]:
        """The clock problems of databases that answer; the last answers of others are outdated."""
        now_ms = self._clock.now_ms()
        stores = self._cluster.stores
        found = [
            clock_problem(store.shown, driver.view.time_ms, now_ms)
            for store, driver in zip(stores, self.drivers, strict=False)
            if driver.view is not None and not driver.problem
        ]
        return [problem for problem in found if problem]

    async def until_ended(self) -> None:
        """Wait until a database has another process with this name."""
        waits = [asyncio.ensure_future(driver.ended.wait()) for driver in self.drivers]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def leave(self) -> None:
        """Hand over all slots, and leave the databases."""
        for driver in self.drivers:
            driver.stop()
        with suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_S):
                for driver in self.drivers:
                    await driver.ended.wait()

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        await self._end_reading()
        for driver in self.drivers:
            driver.close()
        for board in self._boards:
            await board.closed()

    async def _end_reading(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        self._worker.submit(self._sight.close, _ignored)
        await asyncio.to_thread(self._worker.close)

    def _open_slots(self) -> list[OpenSlot]:
        return [slot for board in self._boards for slot in board.open_slots()]

    def _accept(self, slot: int) -> Gateway | None:
        return self._boards[slot % len(self._boards)].accept(slot) if self._boards else None

    def _lead(self, store: SharedStore, about: str, nonce: int, wake: Callable[[], None]) -> None:
        keeper = Keeper(self._name, nonce, store.cluster_id, store.timeline)
        driver = LeaseDriver(
            keeper,
            lambda: store.leases(self._name, about),
            loop=self._loop,
            name=f"{self._name} in store {store.index}",
        )
        board = ServedSlots(driver, lambda lease: self._parts(store, lease), loop=self._loop)
        board.on_open = wake
        self.drivers.append(driver)
        self._boards.append(board)
        driver.start(board)

    def _parts(self, store: SharedStore, lease: LeasedSlot) -> SlotParts:
        settings = self._settings
        kept = store.slot(lease, settings.durability)
        broker = new_broker(kept, self._clock, self._loop, fragment_mb_max=settings.fragment_mb_max)
        endpoint = Endpoint(
            broker,
            self._links.secret,
            loop=self._loop,
            monotonic_s=time.monotonic,
            new_nonce=lambda: secrets.token_bytes(NONCE_BYTES),
        )
        part = store_part(broker, kept, settings.backup_dir, self._loop)
        endpoint.add_answerer(BackupAnswerer([part]))
        return SlotParts(broker, endpoint, part.close)


def _read(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        log.error("the catalogue is no longer read", exc_info=task.exception())


def _ignored(_: StoreError | None) -> None:
    """Ignore the result."""
