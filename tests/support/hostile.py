"""Peers that mean harm, and an honest client that has to go on working beside them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Final, Self

from shardbus.amqp.frames import AMQP_HEADER, SASL_HEADER, amqp_frame, sasl_frame
from shardbus.amqp.outcomes import ACCEPTED, Accepted
from shardbus.amqp.performatives import Open
from shardbus.amqp.sasl import SaslInit, encode_init, plain_response
from shardbus.app.cli.sas import Credential, parse_connection_string
from shardbus.app.server.descriptors import raise_limit
from shardbus.message.sections import encode_data_message
from tests.support.amqp_client import Address, AmqpClient, Receiver, Sender, connected
from tests.support.server import Server

TIMEOUT_S: Final = 30
ATTACKER: Final = "127.0.0.66"
"""Another address of this machine: what it does must not be counted against others."""
PACE: Final = 250
"""Connections at a time: more than that many fit into the backlog of a listening socket."""
READ_BYTES: Final = 65_536
HEALTH: Final = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


def opening(credential: Credential | None = None) -> bytes:
    """All that a client says up to its `open`, without a key unless it is given."""
    opened = Open()
    opened.container_id = "hostile"
    opened.max_frame_size = 65_536
    return sasl(credential) + AMQP_HEADER + amqp_frame(0, opened.encode())


def sasl(credential: Credential | None = None) -> bytes:
    """SASL, with a key only if it is given."""
    init = SaslInit("ANONYMOUS", b"", "localhost")
    if credential is not None:
        response = plain_response(credential.key_name, credential.key)
        init = SaslInit("PLAIN", response, "localhost")
    return SASL_HEADER + sasl_frame(encode_init(init))


class Honest:
    """A client with a key, on a connection of its own, and what it does all the time."""

    def __init__(self, server: Server, client: AmqpClient, links: tuple[Sender, Receiver]) -> None:
        self._server = server
        self._client = client
        self._sender, self._receiver = links
        self._numbers = 0

    async def works(self) -> None:
        """Send and receive on the old connection, and ask for /health on a new one."""
        await self.exchanges()
        assert await is_healthy(self._server)

    async def exchanges(self) -> None:
        """Send and receive on the old connection."""
        self._numbers += 1
        body = encode_data_message(b"message %d" % self._numbers)
        assert isinstance(await self._sender.send(body), Accepted)
        self._receiver.grant(1)
        [delivery] = await self._receiver.take_many(1)
        assert await self._receiver.settle([delivery], ACCEPTED) == [ACCEPTED]

    async def dials(self) -> None:
        """Open a new AMQP connection with a key and attach to the queue."""
        async with connected(address_of(self._server), credential_of(self._server)) as client:
            await client.sender("honest")


def address_of(server: Server) -> Address:
    return Address(server.host, server.amqp_port)


def credential_of(server: Server) -> Credential:
    return parse_connection_string(server.connection_string).credential


@asynccontextmanager
async def honest_client(server: Server) -> AsyncIterator[Honest]:
    """The client of a queue named `honest`; it has worked once before the block begins."""
    async with connected(address_of(server), credential_of(server)) as client:
        sender = await client.sender("honest")
        honest = Honest(server, client, (sender, await client.receiver("honest")))
        await honest.works()
        yield honest


async def is_healthy(server: Server, port: int = 0) -> bool:
    reader, writer = await asyncio.open_connection(server.host, port or server.http_port)
    try:
        writer.write(HEALTH)
        async with asyncio.timeout(TIMEOUT_S):
            return (await reader.read()).startswith(b"HTTP/1.1 200 ")
    finally:
        writer.close()


class Flood:
    """Many plain sockets that say the same and read nothing; closed at the end of the block."""

    def __init__(self, server: Server, host: str = ATTACKER) -> None:
        self.server = server
        self.sockets: list[socket.socket] = []
        self._host = host

    def __enter__(self) -> Self:
        raise_limit()
        return self

    def __exit__(self, *_: object) -> None:
        for opened in self.sockets:
            opened.close()

    async def open(self, count: int, said: bytes, honest: Honest, port: int = 0) -> None:
        """Open so many more; the honest client works after every few hundred."""
        for start in range(0, count, PACE):
            self.dial(min(PACE, count - start), said, port)
            await honest.works()

    def dial(self, count: int, said: bytes, port: int = 0) -> None:
        """Open so many more at once."""
        address = (self.server.host, port or self.server.amqp_port)
        for _ in range(count):
            opened = socket.create_connection(address, TIMEOUT_S, (self._host, 0))
            self.sockets.append(opened)
            if said:
                opened.sendall(said)


async def answer_to(address: Address, *pieces: bytes) -> bytes:
    """Everything the server says until it hangs up, while it is sent as much as it takes."""
    reader, writer = await asyncio.open_connection(address.host, address.port)
    return await _talk(reader, writer, pieces)


async def answer_after_open(server: Server, frames: Iterable[bytes], *, is_known: bool) -> bytes:
    """The same for a client that has opened its connection, with a key or without."""
    reader, writer = await asyncio.open_connection(server.host, server.amqp_port)
    writer.write(opening(credential_of(server) if is_known else None))
    async with asyncio.timeout(TIMEOUT_S):
        await reader.readuntil(b"shardbus")
    return await _talk(reader, writer, frames)


async def _talk(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pieces: Iterable[bytes]
) -> bytes:
    answer = bytearray()

    async def write() -> None:
        with suppress(ConnectionError):
            for piece in pieces:
                writer.write(piece)
                await writer.drain()

    try:
        async with asyncio.timeout(TIMEOUT_S), asyncio.TaskGroup() as tasks:
            writing = tasks.create_task(write())
            with suppress(ConnectionError):
                while data := await reader.read(READ_BYTES):
                    answer += data
            writing.cancel()
        return bytes(answer)
    finally:
        writer.transport.abort()


@contextmanager
def memory_grows_at_most(server: Server, megabytes: int) -> Iterator[None]:
    """What the block costs the server, measured at its end."""
    before_kb = server.memory_kb()
    yield
    grown_mb = (server.memory_kb() - before_kb) / 1024
    assert grown_mb <= megabytes, f"the server grew by {grown_mb:.0f} MB"
