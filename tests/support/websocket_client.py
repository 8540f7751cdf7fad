"""The AMQP client of the tests inside a WebSocket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from shardbus.amqp.config import ConnectionConfig
from tests.support.amqp_client import TIMEOUT_S, Address, AmqpClient
from tests.support.websocket_frames import BINARY, client_frame, server_frames, upgrade_request


class _Stream(asyncio.WriteTransport):
    """What the client writes leaves in frames."""

    def __init__(self, carrier: asyncio.Transport) -> None:
        super().__init__()
        self._carrier = carrier

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._carrier.write(client_frame(BINARY, bytes(data)))

    def is_closing(self) -> bool:
        return self._carrier.is_closing()

    def close(self) -> None:
        self._carrier.close()


class _Inside(asyncio.Protocol):
    """Opens the WebSocket, then passes what its frames hold to the client."""

    def __init__(self, client: AmqpClient) -> None:
        self.client = client
        self._carrier: asyncio.Transport | None = None
        self._is_open = False
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._carrier = transport
        transport.write(upgrade_request())

    def data_received(self, data: bytes) -> None:
        self._rest += data
        if not self._is_open:
            head, separator, rest = self._rest.partition(b"\r\n\r\n")
            if not separator:
                return
            assert head.startswith(b"HTTP/1.1 101"), head
            assert self._carrier is not None
            self._is_open, self._rest = True, rest
            self.client.connection_made(_Stream(self._carrier))
        frames, self._rest = server_frames(self._rest)
        for frame in frames:
            if frame.opcode == BINARY:
                self.client.data_received(frame.payload)

    def connection_lost(self, error: Exception | None) -> None:
        self.client.connection_lost(error)


@asynccontextmanager
async def connected_over_websocket(address: Address) -> AsyncIterator[AmqpClient]:
    """A client without a key whose open was answered."""
    config = ConnectionConfig(
        container_id="shardbus-test",
        hostname=address.host,
        idle_timeout_ms=120_000,
        sasl_mechanism="ANONYMOUS",
    )
    client = AmqpClient(config)
    loop = asyncio.get_running_loop()
    await loop.create_connection(lambda: _Inside(client), address.host, address.port)
    try:
        async with asyncio.timeout(TIMEOUT_S):
            await client.opened
        yield client
    finally:
        client.close()
