"""The slots that one process serves: each is a separate broker that gateways connect to."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Final, final

from shardbus.broker.broker import Broker
from shardbus.broker.cluster.driver import LeaseDriver
from shardbus.broker.cluster.leased_slot import LeasedSlot
from shardbus.broker.fragment.handing import packed, read_handed
from shardbus.broker.remote.endpoint import Endpoint
from shardbus.broker.remote.served_gateway import Gateway

log = logging.getLogger(__name__)

# How often a slot that is being drained is checked.
LOOK_S: Final = 0.01
# How long to wait before a hand-over that did not succeed is tried again.
AGAIN_S: Final = 0.2
# How long the last answers of a lost slot may take to reach the gateways.
FAREWELL_S: Final = 1.0


@final
@dataclass(frozen=True, slots=True)
class SlotParts:
    """The parts that serve a slot; `close` ends the other objects of the application."""

    broker: Broker
    endpoint: Endpoint
    close: Callable[[], Coroutine[object, object, None]]


@final
class OpenSlot:
    """One slot, from the moment it is taken to its loss.

    `told_version` is the version of the catalogue that it received last; 0: none.
    """

    def __init__(self, lease: LeasedSlot, parts: SlotParts) -> None:
        self.lease = lease
        self.number = lease.slot
        self.told_version = 0
        self.broker = parts.broker
        self.endpoint = parts.endpoint
        self.close = parts.close
        self.is_draining = False
        self.is_open = False
        self.gone = asyncio.Event()


@final
class ServedSlots:
    """A `driver.SlotBoard` for the slots of one database. `on_open` is called for each slot that
    begins to accept gateways.
    """

    def __init__(
        self,
        driver: LeaseDriver,
        make: Callable[[LeasedSlot], SlotParts],
        *,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.on_open: Callable[[], None] = _nothing
        self._driver = driver
        self._make = make
        self._loop = loop
        self._slots: dict[int, OpenSlot] = {}
        # Also those of lost slots, whose stores are being closed.
        self._tasks: set[asyncio.Task[None]] = set()

    def slots(self) -> list[int]:
        return sorted(self._slots)

    def open_slots(self) -> list[OpenSlot]:
        """The slots that accept connections of gateways."""
        return [served for served in self._slots.values() if served.is_open]

    def accept(self, slot: int) -> Gateway | None:
        """A connection of a gateway to a slot; None if it is not served here."""
        served = self._slots.get(slot)
        return served.endpoint.accept() if served is not None and served.is_open else None

    # driver.SlotBoard.

    def open(self, lease: LeasedSlot, data: bytes | None) -> None:
        parts = self._make(lease)
        if data:
            parts.broker.inherit(read_handed(data))
        served = OpenSlot(lease, parts)
        served.endpoint.may_take = lambda: self._may_take(served)
        served.endpoint.may_give = lambda: self._may_give(served)
        self._slots[lease.slot] = served
        self._begin(self._serve(served))

    def drain(self, slot: int) -> None:
        served = self._slots.get(slot)
        if served is not None and not served.is_draining:
            served.is_draining = True
            self._begin(self._drain(served))

    def resume(self, slot: int) -> None:
        served = self._slots.get(slot)
        if served is not None:
            served.is_draining = False

    def drop(self, slot: int) -> None:
        served = self._slots.pop(slot, None)
        if served is not None:
            served.is_draining = False
            served.gone.set()

    async def closed(self) -> None:
        """Wait until the stores of all lost slots are closed."""
        while self._tasks:
            await asyncio.wait(set(self._tasks))

    def _begin(self, work: Coroutine[object, object, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("a slot ended with an internal error", exc_info=task.exception())

    def _may_take(self, served: OpenSlot) -> bool:
        return not served.is_draining and self._driver.serves(served.lease.slot)

    def _may_give(self, served: OpenSlot) -> bool:
        driver = self._driver
        return not served.lease.is_dropped and driver.keeper.is_leased(driver.now_ms())

    async def _serve(self, served: OpenSlot) -> None:
        try:
            async with served.endpoint as endpoint:
                served.is_open = True
                self.on_open()
                await served.gone.wait()
                served.is_open = False
                endpoint.hang_up(f"slot {served.lease.slot} is served by another broker")
                await self._farewell(endpoint)
        finally:
            await served.close()
            served.broker.stop()
            await asyncio.to_thread(served.broker.storage.close)

    async def _farewell(self, endpoint: Endpoint) -> None:
        for _ in range(int(FAREWELL_S / LOOK_S)):
            if not endpoint.is_connected:
                return
            await asyncio.sleep(LOOK_S)

    async def _drain(self, served: OpenSlot) -> None:
        """Hand the slot over; returns when it is given away, or is to be served again."""
        while served.is_draining:
            if served.broker.is_resting and not served.endpoint.is_asked:
                data = packed(served.broker.hand_over())
                self._driver.drained(served.lease.slot, data)
                await asyncio.sleep(AGAIN_S)
            await asyncio.sleep(LOOK_S)


def _nothing() -> None:
    """Ignore the result."""
