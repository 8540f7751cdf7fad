"""Connections between the nodes of a cluster: only this module makes and accepts them.

A broker has one address for all of its slots. A gateway begins by naming the slot that it wants;
then both speak as a gateway and the broker of that slot.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, cast, final

from shardbus.app.server.broker_address import BrokerAddress, Listening, NewProtocol
from shardbus.app.server.node.name import BROKER, GATEWAY
from shardbus.app.server.node.tls import NodeTls

log = logging.getLogger(__name__)

_MAGIC: Final = b"SBsl"
_CALL_BYTES: Final = 8
CALL_S: Final = 5.0
CALLERS_MAX: Final = 512
TELL_S: Final = 24 * 60 * 60

Accept = Callable[[int], asyncio.Protocol | None]
"""The protocol of a slot that this process serves; None for another slot."""


@final
class NodeLinks:
    """How nodes reach each other: by the secret of their cluster, and with certificates also by
    mutual TLS.

    A node is asked for the role in which it connects or accepts, so it may need two identities.
    """

    def __init__(
        self, secret: bytes, *, as_gateway: NodeTls | None = None, as_broker: NodeTls | None = None
    ) -> None:
        self.secret = secret
        self._as_gateway = as_gateway
        self._as_broker = as_broker
        self._callers = 0

    def problems(self) -> list[str]:
        """Certificates of this node that are to be renewed."""
        ours = [tls.problem() for tls in (self._as_gateway, self._as_broker) if tls is not None]
        return list(dict.fromkeys(filter(None, ours)))

    async def tell_problems(self) -> None:
        """Log them once a day, until cancelled: nobody reads what was logged a year ago."""
        while True:
            await asyncio.sleep(TELL_S)
            for problem in self.problems():
                log.warning("%s", problem)

    async def dial(self, address: BrokerAddress, slot: int, new_protocol: NewProtocol) -> None:
        """Connect to a slot; OSError when its broker does not answer, or another node does."""
        await address.dial(
            lambda: _Calling(slot, new_protocol()), self._as_gateway or self._as_broker
        )

    async def listen(self, address: BrokerAddress, accept: Accept) -> Listening:
        """Usage when that fails."""
        # Brokers too: while the cluster has no gateway, one of them does a gateway's work.
        roles = (GATEWAY, BROKER)
        return await address.listen(lambda: _Caller(self, accept), self._as_broker, roles)

    def called(self) -> bool:
        """Count a connection that has not named a slot yet; False if there are too many."""
        self._callers += 1
        return self._callers <= CALLERS_MAX

    def settled(self) -> None:
        self._callers -= 1


@final
class _Calling(asyncio.Protocol):
    """The gateway's end: names the slot, then hands the connection to the gateway's protocol."""

    def __init__(self, slot: int, protocol: asyncio.Protocol) -> None:
        self._slot = slot
        self._protocol = protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the methods of asyncio.Transport without being one.
        connection = cast(asyncio.Transport, transport)
        connection.set_protocol(self._protocol)
        self._protocol.connection_made(connection)
        connection.write(_MAGIC + self._slot.to_bytes(4, "big"))


@final
class _Caller(asyncio.Protocol):
    """A connection until it has named its slot."""

    def __init__(self, links: NodeLinks, accept: Accept) -> None:
        self._links = links
        self._accept = accept
        self._said = b""
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the methods of asyncio.Transport without being one.
        self._transport = cast(asyncio.Transport, transport)
        self._deadline = asyncio.get_running_loop().call_later(CALL_S, self._transport.abort)
        if not self._links.called():
            self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._settle()

    def data_received(self, data: bytes) -> None:
        self._said += data
        if len(self._said) < _CALL_BYTES or self._transport is None:
            return
        call, rest = self._said[:_CALL_BYTES], self._said[_CALL_BYTES:]
        transport = self._transport
        protocol = None
        if call.startswith(_MAGIC):
            protocol = self._accept(int.from_bytes(call[len(_MAGIC) :], "big"))
        if protocol is None:
            transport.close()
            return
        self._settle()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        if rest:
            protocol.data_received(rest)

    def _settle(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
            self._links.settled()
