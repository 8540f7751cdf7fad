"""Does what gateways do for all entities, in a broker, while there is no gateway."""

from __future__ import annotations

import asyncio
import logging
from typing import Final, final

from shardbus.app.server.node_broker import NodeBroker
from shardbus.app.server.node_gateway import care_for_cluster
from shardbus.app.server.node_links import NodeLinks
from shardbus.app.server.settings import Settings
from shardbus.broker.clock import TimedClock
from shardbus.core.errors import Refused, Unavailable
from shardbus.stores.base.cluster import SharedStores

log = logging.getLogger(__name__)

# Gateways of a cluster that is just being started have so long to come.
PATIENCE_S: Final = 3.0
# Of all brokers it is the one with this slot; were there two for a moment, nothing happens twice.
CARETAKERS_SLOT: Final = 0


@final
class Caretaker:
    """Use `run` in a node that is no gateway itself."""

    def __init__(
        self,
        name: str,
        cluster: SharedStores,
        links: NodeLinks,
        settings: Settings,
        broker: NodeBroker,
        clock: TimedClock,
    ) -> None:
        self._name = name
        self._cluster = cluster
        self._links = links
        self._settings = settings
        self._broker = broker
        self._clock = clock
        self._reader = broker.reader
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Runs for ever."""
        while True:
            await self._until_needed()
            self._stopping.clear()
            log.info("there is no gateway: %s forwards messages meanwhile", self._name)
            watching = asyncio.ensure_future(self._until_unneeded())
            try:
                await care_for_cluster(
                    self._cluster,
                    self._links,
                    self._settings,
                    self._clock,
                    self._stopping,
                    name=self._name,
                )
            except (Refused, Unavailable) as error:
                log.warning("messages are not forwarded yet: %s", error)
            finally:
                watching.cancel()

    async def _until_needed(self) -> None:
        loop = asyncio.get_running_loop()
        since_s = loop.time()
        while loop.time() < since_s + PATIENCE_S:
            await self._reader.next_look()
            if not self._is_needed():
                since_s = loop.time()

    async def _until_unneeded(self) -> None:
        while self._is_needed():
            await self._reader.next_look()
        self._stopping.set()

    def _is_needed(self) -> bool:
        reader = self._reader
        is_alone = reader.version > 0 and reader.gateways == 0
        return is_alone and self._broker.serves(CARETAKERS_SLOT)
