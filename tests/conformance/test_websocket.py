"""AMQP over WebSocket: the SDKs dial it with and without TLS; inside it is the AMQP of TCP."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, TransportType
from azure.servicebus.aio import ServiceBusClient as AioClient
from azure.servicebus.exceptions import ServiceBusAuthenticationError, ServiceBusConnectionError

from shardbus.app.cli.sas import Credential
from tests.conformance.conftest import Queue
from tests.conformance.sdk import (
    DEAD_LETTERS,
    AioSdk,
    ReceiverOptions,
    Sdk,
    SyncSdk,
    pair,
    receive_all,
    texts,
)
from tests.support.server import Server
from tests.support.websocket_frames import (
    BINARY,
    CLOSE,
    PING,
    PONG,
    TEXT,
    Frame,
    client_frame,
    close_payload,
    server_frames,
    upgrade_request,
)

# What the asynchronous SDK passes to aiohttp when it dials without TLS.
pytestmark = pytest.mark.filterwarnings("ignore:ssl=None is deprecated:DeprecationWarning")

TIMEOUT_S: Final = 20
SASL_HEADER: Final = b"AMQP\x03\x01\x00\x00"
UNKNOWN_HEADER: Final = b"AMQP\x09\x09\x09\x09"


@dataclass(frozen=True)
class Dialling:
    """Where the Python SDKs find the WebSocket.

    They drop the port of the endpoint for WebSockets; the custom address is their way to name one.
    """

    connection_string: str
    address: str
    authority: str | None


class SyncOverWebSocket(SyncSdk):
    """`azure.servicebus` with websocket-client."""

    def __init__(self, dialling: Dialling) -> None:
        super().__init__(dialling.connection_string)
        self._dialling = dialling

    def _client(self) -> ServiceBusClient:
        return ServiceBusClient.from_connection_string(
            self._dialling.connection_string,
            retry_total=0,
            transport_type=TransportType.AmqpOverWebsocket,
            custom_endpoint_address=self._dialling.address,
            connection_verify=self._dialling.authority,
        )


class AioOverWebSocket(AioSdk):
    """`azure.servicebus.aio` with aiohttp."""

    def __init__(self, dialling: Dialling) -> None:
        super().__init__(dialling.connection_string)
        self._dialling = dialling

    def _client(self) -> AioClient:
        return AioClient.from_connection_string(
            self._dialling.connection_string,
            retry_total=0,
            transport_type=TransportType.AmqpOverWebsocket,
            custom_endpoint_address=self._dialling.address,
            connection_verify=self._dialling.authority,
        )


def dialling(server: Server, credential: Credential, *, is_secure: bool) -> Dialling:
    address = f"sb://{server.host}:{server.amqp_port}"
    connection_string = (
        f"Endpoint={address};SharedAccessKeyName={credential.key_name};"
        f"SharedAccessKey={credential.key};"
    )
    if is_secure:
        return Dialling(connection_string, address, str(server.ca_file))
    return Dialling(connection_string + "UseDevelopmentEmulator=true;", address, None)


@pytest.fixture(params=["ws", "wss"])
def scheme(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["sync", "aio"])
def sdk(request: pytest.FixtureRequest, server: Server, credential: Credential, scheme: str) -> Sdk:
    kind = SyncOverWebSocket if request.param == "sync" else AioOverWebSocket
    return kind(dialling(server, credential, is_secure=scheme == "wss"))


async def test_a_message_arrives_and_a_completed_one_is_gone(sdk: Sdk, queue: Queue) -> None:
    """R32."""
    async with pair(sdk, queue.name) as (sender, receiver):
        await sender.send(ServiceBusMessage("hello"))
        messages = await receiver.receive()
        await receiver.complete(messages[0])

        assert texts(messages) == ["hello"]
        assert await receiver.peek() == []


async def test_a_stream_of_large_and_small_messages_comes_back_whole(
    sdk: Sdk, partitioned_queue: Queue
) -> None:
    """R32: AMQP frames span WebSocket frames, and the other way round."""
    sizes = [0, 1, 100, 65_000, 65_600, 130_000, 250_000, *([2_000] * 100)]
    sent = [f"{number}:" + "x" * size for number, size in enumerate(sizes)]

    options = ReceiverOptions(prefetch=50)
    async with pair(sdk, partitioned_queue.name, options) as (sender, receiver):
        for text in sent[:7]:
            await sender.send(ServiceBusMessage(text))
        await sender.send([ServiceBusMessage(text) for text in sent[7:]])
        messages = await receive_all(receiver, len(sent))

        assert sorted(texts(messages)) == sorted(sent)


async def test_settling_renewing_and_peeking_work(sdk: Sdk, partitioned_queue: Queue) -> None:
    """R32: links to the queue, to its dead letters and to management on one connection."""
    name = partitioned_queue.name
    async with pair(sdk, name) as (sender, receiver), sdk.receiver(name, DEAD_LETTERS) as dead:
        await sender.send(ServiceBusMessage("x"))
        (first,) = await receiver.receive()
        until = first.locked_until_utc
        assert until is not None
        assert await receiver.renew(first) >= until
        await receiver.abandon(first)
        (second,) = await receiver.receive()
        assert second.delivery_count == 1
        assert texts(await receiver.peek()) == ["x"]
        await receiver.dead_letter(second, "why", "because")
        (last,) = await dead.receive()

        assert last.dead_letter_reason == "why"


async def test_a_queue_that_is_not_there_is_an_error_of_the_token(sdk: Sdk) -> None:
    """The SDK has another class for it where the address of the endpoint is one of its own."""
    with pytest.raises((ServiceBusAuthenticationError, ServiceBusConnectionError)):
        async with sdk.sender("no-such-queue") as sender:
            await sender.send(ServiceBusMessage("x"))


@pytest.mark.parametrize("port", ["amqp", "http"])
@pytest.mark.parametrize("header", [SASL_HEADER, UNKNOWN_HEADER], ids=["good", "wrong"])
async def test_the_bytes_inside_are_those_of_tcp(
    server: Server, scheme: str, port: str, header: bytes
) -> None:
    """A wrong header is answered with the right one and the end of the connection."""
    async with asyncio.timeout(TIMEOUT_S):
        over_tcp = await _answer_over_tcp(server, header)
        number = server.amqp_port if port == "amqp" else server.http_port
        async with _websocket(server, number, scheme) as wire:
            for byte in header:
                wire.writer.write(client_frame(BINARY, bytes([byte])))
            over_websocket = b""
            while len(over_websocket) < len(over_tcp):
                frame = await wire.read_frame()
                assert frame.opcode == BINARY
                over_websocket += frame.payload

            assert over_websocket == over_tcp
            if header == UNKNOWN_HEADER:
                assert await wire.read_frame() == Frame(CLOSE, close_payload(1000))


async def test_text_is_refused_and_pings_are_answered(server: Server, scheme: str) -> None:
    async with (
        asyncio.timeout(TIMEOUT_S),
        _websocket(server, server.amqp_port, scheme) as wire,
    ):
        wire.writer.write(client_frame(PING, b"anyone?"))
        assert await wire.read_frame() == Frame(PONG, b"anyone?")
        wire.writer.write(client_frame(TEXT, b"hello"))
        frame = await wire.read_frame()

        assert frame.opcode == CLOSE
        assert frame.payload[:2] == close_payload(1003)


async def test_a_page_of_another_machine_gets_no_websocket(server: Server) -> None:
    """Browsers let every page dial this machine, and everybody knows the development key."""
    async with asyncio.timeout(TIMEOUT_S):
        reader, writer = await asyncio.open_connection(server.host, server.amqp_port)
        writer.write(upgrade_request(Origin="https://example.com"))
        status = await reader.readline()
        writer.close()
        await writer.wait_closed()

    assert status.startswith(b"HTTP/1.1 403 ")


class Wire:
    """A client that sends what it likes and reads frames."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        self._reader = reader
        self._rest = b""
        self._frames: list[Frame] = []

    async def read_frame(self) -> Frame:
        while not self._frames:
            data = await self._reader.read(65_536)
            assert data, "the server closed without a word"
            self._frames, self._rest = server_frames(self._rest + data)
        return self._frames.pop(0)


@asynccontextmanager
async def _websocket(server: Server, port: int, scheme: str) -> AsyncIterator[Wire]:
    tls = ssl.create_default_context(cafile=str(server.ca_file)) if scheme == "wss" else None
    reader, writer = await asyncio.open_connection(server.host, port, ssl=tls)
    try:
        writer.write(upgrade_request())
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101 Switching Protocols\r\n")
        yield Wire(reader, writer)
    finally:
        writer.transport.abort()


async def _answer_over_tcp(server: Server, header: bytes) -> bytes:
    """Everything that is said before the client says more."""
    reader, writer = await asyncio.open_connection(server.host, server.amqp_port)
    try:
        writer.write(header)
        if header == UNKNOWN_HEADER:
            return await reader.read()
        answer = await reader.readexactly(len(header) + 4)
        return answer + await reader.readexactly(int.from_bytes(answer[-4:], "big") - 4)
    finally:
        writer.close()
        await writer.wait_closed()
