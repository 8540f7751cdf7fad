"""Does the background work of gateways in a broker, while the cluster has no gateway."""

from __future__ import annotations

import asyncio
import logging
from typing import Final, final

from shardbus.app.server.node.broker import NodeBroker
from shardbus.app.server.node.gateway import care_for_cluster
from shardbus.app.server.node.links import NodeLinks
from shardbus.app.server.settings import Settings
from shardbus.broker.clock import TimedClock
from shardbus.core.errors import Refused, Unavailable
from shardbus.stores.base.cluster import SharedStores

log = logging.getLogger(__name__)

# Gateways of a cluster that is being started have this much time to appear.
PATIENCE_S: Final = 3.0
# The broker with this slot does the work. Two brokers may do it for a moment without harm.
CARETAKERS_SLOT: Final = 0


@final
class Caretaker:
    """For a node without a gateway; call `run`."""

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
        """Run until cancelled."""
        while True:
            await self._until_needed()
            self._stopping.clear()
            log.info(
                "the cluster has no gateway: %s forwards messages until one starts", self._name
            )
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
