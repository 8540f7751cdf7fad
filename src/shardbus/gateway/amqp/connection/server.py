"""All AMQP connections of the gateway: their number, their end, and changes of entities."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final, final

from shardbus.amqp.config import ConnectionConfig
from shardbus.amqp.outcomes import AmqpError
from shardbus.broker.bus import Bus
from shardbus.broker.guarded import guarded
from shardbus.codec.errors import CONNECTION_FORCED
from shardbus.core.errors import ENTITY_DISABLED, Refused, not_found
from shardbus.core.namespace.access import ALL_RIGHTS, LISTEN, SEND
from shardbus.core.namespace.entity import Entity
from shardbus.gateway.admission.amqp import AmqpAdmission
from shardbus.gateway.amqp.connection.protocol import AmqpProtocol
from shardbus.gateway.amqp.connection.throttle import Throttle
from shardbus.gateway.amqp.links.attach import Shared
from shardbus.gateway.amqp.links.receivers import RECEIVERS_MAX, ReceiverCounts
from shardbus.gateway.amqp.transactions.open import TransactionRules
from shardbus.gateway.readings import LINKS, MetricReading

# How long a stop waits for answers to what clients have sent, and until they have left; how long
# for clients to close their side; and how often it looks.
ANSWERING_S: Final = 5.0
GOODBYE_S: Final = 0.5
ANSWERING_LOOK_S: Final = 0.02


@final
class AmqpServer:
    """Makes a protocol for each connection that a listener accepts."""

    def __init__(
        self,
        bus: Bus,
        config: ConnectionConfig,
        *,
        connections_max: int,
        receivers_max: int = RECEIVERS_MAX,
        throttle: Throttle | None = None,
        transaction_rules: TransactionRules | None = None,
    ) -> None:
        """`receivers_max` is for each entity; without a throttle nothing is throttled."""
        self._bus = bus
        rules = TransactionRules() if transaction_rules is None else transaction_rules
        self._shared = Shared(bus, ReceiverCounts(receivers_max), throttle, rules)
        self.totals = self._shared.totals
        self._config = config
        self.admission = AmqpAdmission(bus.loop, connections_max)
        self._protocols: set[AmqpProtocol] = set()
        self.closed_connections = 0
        self._is_stopping = False
        bus.namespace.subscribe(self)
        bus.namespace.watch_access(self.check_access_again)

    def new_protocol(self) -> AmqpProtocol:
        return AmqpProtocol(self._shared, self._config, self)

    def connected(self, protocol: AmqpProtocol) -> None:
        self._protocols.add(protocol)
        if self._is_stopping:
            protocol.read_no_more()

    def disconnected(self, protocol: AmqpProtocol) -> None:
        self._protocols.discard(protocol)
        self.closed_connections += 1

    @property
    def connections(self) -> int:
        return len(self._protocols)

    def readings(self) -> list[MetricReading]:
        """The state and the counters of all connections, for the metrics."""
        by_role = {"sender": 0, "receiver": 0, "other": 0}
        for protocol in self._protocols:
            protocol.count_links(by_role)
        links = [MetricReading(LINKS, count, role=role) for role, count in by_role.items()]
        return [*links, *self._shared.counts.readings()]

    async def stop(self) -> None:
        """Read no more, answer what was read, and close all connections; 5.5 s at most.

        A client whose send is stored and not answered would send it again to another gateway, where
        new clients go, too: the ports are closed by now.
        """
        self._is_stopping = True
        until_s = self._bus.loop.time() + ANSWERING_S
        for protocol in list(self._protocols):
            guarded(protocol.read_no_more)
        await self._answered(until_s)
        self.close()
        await self._answered(until_s)
        for _ in range(round(GOODBYE_S / ANSWERING_LOOK_S)):
            if not self._protocols:
                return
            await asyncio.sleep(ANSWERING_LOOK_S)
        for protocol in list(self._protocols):
            guarded(protocol.cut_off)

    async def _answered(self, until_s: float) -> None:
        while self._bus.loop.time() < until_s:
            if not any(protocol.is_answering for protocol in self._protocols):
                return
            await asyncio.sleep(ANSWERING_LOOK_S)

    def close(self) -> None:
        error = AmqpError(CONNECTION_FORCED, "The server is shutting down.")
        for protocol in list(self._protocols):
            guarded(partial(protocol.close, error, lingers=True))

    def check_access_again(self) -> None:
        """End the links of whoever has lost the right that they live by."""
        for protocol in list(self._protocols):
            guarded(protocol.check_access_again)

    def entity_created(self, entity: Entity) -> None:
        """Nothing to do: no client can have a link to it yet."""

    def entity_updated(self, entity: Entity) -> None:
        refusal = Refused(ENTITY_DISABLED, f"'{entity.name}' is {entity.spec.status}.")
        if not entity.spec.is_sendable():
            self._detach(entity, SEND, refusal)
        if not entity.spec.is_receivable():
            self._detach(entity, LISTEN, refusal)
        if entity.spec.forward_to or entity.spec.forward_dead_letters_to:
            for protocol in list(self._protocols):
                guarded(partial(protocol.detach_forwarding, entity))

    def entity_deleted(self, entity: Entity) -> None:
        """End its links with the error of an attach to a missing entity: SDKs expect that one."""
        self._detach(entity, ALL_RIGHTS, not_found(entity.name))

    def _detach(self, entity: Entity, rights: int, refusal: Refused) -> None:
        for protocol in list(self._protocols):
            guarded(partial(protocol.detach_entity, entity.entity_id, rights, refusal))
