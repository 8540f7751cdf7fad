"""Sends the entities of the catalogue to the slots of one process, even without a gateway.

A gateway that changes subscriptions sends the new list to the brokers of the topic. A broker that
has just taken a slot knows no subscriptions, and would publish nothing until a gateway connects. So
it reads the catalogue. It reads only while no gateway has the turn. Otherwise it could use an old
list after the gateway had sent a newer one to the former owner of the slot
(docs/adr/0103-brokers-read-the-catalogue.md).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final, TypeVar, final

from shardbus.broker.cluster.served import OpenSlot
from shardbus.broker.fragment.asking import asked
from shardbus.broker.fragment.storage import Worker
from shardbus.core.errors import Refused, Unavailable
from shardbus.core.namespace.entity import Entity
from shardbus.stores.base.cluster import CatalogueSight, SettledCatalogue
from shardbus.stores.base.store import StoreError

log = logging.getLogger(__name__)

T = TypeVar("T")

LOOK_S: Final = 1.0
# The pause while a gateway is changing the namespace, or after a failure.
AGAIN_S: Final = 0.1
# Gateways send their changes to brokers. A change that could not be sent is read from the
# catalogue when no gateway has changed it for this long.
CALM_S: Final = 3.0
# How long gateways may have to wait for this reader.
HOLD_S: Final = 4.0
# A gateway that has not reported for this long does not count.
GATEWAY_AGE_MS: Final = 15_000


@final
class CatalogueReader:
    """Call `run`, and `wake` when a slot was opened.

    `version` is the version of the namespace, 0 until the catalogue was read; `gateways` is the
    number of gateways, -1 until then.
    """

    def __init__(
        self,
        sight: CatalogueSight,
        open_slots: Callable[[], Sequence[OpenSlot]],
        worker: Worker,
        *,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.version = 0
        self.gateways = -1
        self.problem = ""
        self._sight = sight
        self._open_slots = open_slots
        self._worker = worker
        self._loop = loop
        self._changed_at_s = 0.0
        self._woken = asyncio.Event()
        self._looked = asyncio.Event()

    async def next_look(self) -> None:
        """Wait for the next attempt to read the catalogue."""
        await self._looked.wait()

    def wake(self) -> None:
        self._woken.set()

    async def run(self) -> None:
        """Runs for ever."""
        while True:
            self._woken.clear()
            try:
                pause_s = LOOK_S if await self._look() else AGAIN_S
                self.problem = ""
            except (Refused, Unavailable) as error:
                if not self.problem:
                    log.warning("%s", error)
                self.problem = str(error)
                pause_s = LOOK_S
            looked, self._looked = self._looked, asyncio.Event()
            looked.set()
            try:
                async with asyncio.timeout(pause_s):
                    await self._woken.wait()
            except TimeoutError:
                continue

    async def _look(self) -> bool:
        """Whether all slots know the present catalogue."""
        version, self.gateways = await self._ask(lambda: self._sight.glance(GATEWAY_AGE_MS))
        if version != self.version:
            self.version = version
            self._changed_at_s = self._loop.time()
        is_calm = self._loop.time() >= self._changed_at_s + CALM_S
        behind = [
            slot
            for slot in self._open_slots()
            if slot.told_version == 0 or (is_calm and slot.told_version != version)
        ]
        return version == 0 or not behind or await self._read(behind)

    async def _read(self, slots: Sequence[OpenSlot]) -> bool:
        """Send the catalogue to slots; False while a gateway is changing it."""
        settled = await self._ask(self._sight.hold)
        if settled is None:
            return False
        try:
            async with asyncio.timeout(HOLD_S):
                for slot in slots:
                    await _tell(slot, settled)
        except TimeoutError as error:
            raise Unavailable("the catalogue could not be told to all slots in time") from error
        finally:
            await self._ask(self._sight.let_go)
        # Only now it is certain that no gateway has sent a newer list meanwhile.
        for slot in slots:
            slot.told_version = settled.version
        return True

    async def _ask(self, work: Callable[[], T]) -> T:
        try:
            return await asked(self._worker, work)
        except StoreError as error:
            raise Unavailable(f"The catalogue: {error}") from error


async def _tell(slot: OpenSlot, settled: SettledCatalogue) -> None:
    """Send the topics to a slot, as a gateway does when it reconnects."""
    if not slot.endpoint.may_take():
        # The slot is being given away, or its ownership is not verified yet.
        raise Unavailable(f"the catalogue cannot be sent to slot {slot.number} now")
    slot.endpoint.end_turns(settled.turn)
    here = [entity for entity in settled.entities if entity.numbers_at(slot.number)]
    for topic in here:
        if topic.is_topic():
            subscriptions = [each for each in here if each.topic_id == topic.entity_id]
            if not slot.broker.publishes_as(topic, subscriptions):
                numbers = topic.numbers_at(slot.number)
                await slot.broker.update_topic(topic, subscriptions, numbers)
    for entity in here:
        slot.endpoint.learn(entity, entity.numbers_at(slot.number))
    if slot.told_version == 0:
        await _start_timed(slot, here)


async def _start_timed(slot: OpenSlot, entities: Sequence[Entity]) -> None:
    """Run the fragments in which messages are or will be due, even without a request from a
    gateway.
    """
    known = {entity.entity_id: entity for entity in entities}
    for fragment in await slot.broker.fragment_ids(is_timed=True):
        entity = known.get(fragment.entity_id)
        if entity is not None:
            slot.broker.runner(entity, fragment.number).start()
