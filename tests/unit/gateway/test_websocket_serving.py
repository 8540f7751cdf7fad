"""WebSockets over real connections, on both event loops, plain and inside TLS."""

import asyncio
import contextlib
import ssl
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import cast

import pytest
import uvloop

from shardbus.core.errors import Refused
from shardbus.gateway.http.server.connection import HttpGateway
from shardbus.gateway.http.server.message import TEXT, HttpRequest, HttpResponse
from shardbus.gateway.listening.listener import Listener, Protocols
from shardbus.gateway.listening.tls import development_certificate, server_context
from shardbus.gateway.listening.websocket import WebSockets
from tests.support.websocket_frames import (
    BINARY,
    CLOSE,
    Frame,
    client_frame,
    close_payload,
    server_frames,
    upgrade_request,
)
from tests.support.websocket_frames import TEXT as TEXT_FRAME

LOOPS = [asyncio.SelectorEventLoop, uvloop.new_event_loop]
HIGH_BYTES = 256 * 1024
MEGABYTE = 1024 * 1024
QUIET_S = 0.2
"""Long enough that whatever could still flow has flowed."""

LoopFactory = Callable[[], asyncio.AbstractEventLoop]


@pytest.fixture(scope="module", autouse=True)
def libuv_has_its_pipe() -> None:
    """libuv opens a pipe for signals with its first loop and keeps it: no test leaks it."""
    uvloop.new_event_loop().close()


class Echo(asyncio.Protocol):
    """Gives back what it gets; counts, pauses and resumes as it is told."""

    def __init__(self) -> None:
        self.received_bytes = 0
        self.writable = asyncio.Event()
        self.writable.set()
        self.lost = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=HIGH_BYTES)

    def data_received(self, data: bytes) -> None:
        self.received_bytes += len(data)
        self.transport.write(data)

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()

    def connection_lost(self, error: Exception | None) -> None:
        self.lost.set()


class Wire:
    """A client's end: bytes to a real socket, frames from it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._rest = b""

    async def frames_until_close(self) -> list[Frame]:
        """All frames up to the Close, after which the server must end the connection itself."""
        data = await self.reader.read()
        frames, rest = server_frames(data)
        assert rest == b""
        return frames

    async def read_payload(self, size: int) -> bytes:
        parts: list[bytes] = []
        while sum(map(len, parts)) < size:
            data = await self.reader.read(MEGABYTE)
            assert data, "the server closed"
            frames, self._rest = server_frames(self._rest + data)
            assert all(frame.opcode == BINARY for frame in frames)
            parts += [frame.payload for frame in frames]
        return b"".join(parts)


Scenario = Callable[[Wire, Echo], Awaitable[None]]


def serve(loop_factory: LoopFactory, directory: Path | None, scenario: Scenario) -> None:
    """Run a scenario over one WebSocket; with a directory for its certificate, inside TLS."""
    server, client = _contexts(directory) if directory is not None else (None, None)
    echoes: list[Echo] = []

    def new_echo() -> Echo:
        echoes.append(Echo())
        return echoes[-1]

    async def main() -> None:
        websockets = WebSockets(new_echo, is_any_origin_welcome=False)
        async with (
            HttpGateway(_respond, _refuse, websockets=websockets) as gateway,
            Listener(Protocols(http=gateway.connection, tls=server)) as listener,
        ):
            wire = await _dial(await listener.listen("127.0.0.1", 0), client)
            try:
                await scenario(wire, echoes[0])
            finally:
                wire.writer.transport.abort()
                await echoes[0].lost.wait()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main())


@pytest.mark.parametrize("loop_factory", LOOPS)
@pytest.mark.parametrize("is_secure", [False, True])
def test_a_stream_comes_back_as_it_was_sent(
    tmp_path: Path, loop_factory: LoopFactory, is_secure: bool
) -> None:
    """R32: over plain connections and inside TLS."""
    payload = bytes(index * 13 & 0xFF for index in range(300_000))
    sizes = [0, 1, 7, 125, 126, 600, 65_535, 65_536, 100_000]

    async def scenario(wire: Wire, echo: Echo) -> None:
        sent = b""
        for size in sizes:
            wire.writer.write(client_frame(BINARY, payload[:size]))
            sent += payload[:size]
        assert await wire.read_payload(len(sent)) == sent
        wire.writer.write(client_frame(CLOSE, close_payload(1000)))
        assert await wire.frames_until_close() == [Frame(CLOSE, close_payload(1000))]

    serve(loop_factory, tmp_path if is_secure else None, scenario)


@pytest.mark.parametrize("loop_factory", LOOPS)
@pytest.mark.parametrize("is_secure", [False, True])
def test_a_broken_rule_is_told_although_more_was_on_its_way(
    tmp_path: Path, loop_factory: LoopFactory, is_secure: bool
) -> None:
    async def scenario(wire: Wire, echo: Echo) -> None:
        wire.writer.write(client_frame(TEXT_FRAME, b"hello") + bytes(2 * MEGABYTE))
        head = await wire.reader.readexactly(4)
        assert head[0] == 0x80 | CLOSE
        assert head[2:] == close_payload(1003)

    serve(loop_factory, tmp_path if is_secure else None, scenario)


@pytest.mark.parametrize("loop_factory", LOOPS)
@pytest.mark.parametrize("is_secure", [False, True])
def test_a_client_that_does_not_read_stops_the_writer_and_costs_no_memory(
    tmp_path: Path, loop_factory: LoopFactory, is_secure: bool
) -> None:
    async def scenario(wire: Wire, echo: Echo) -> None:
        written = 0
        while echo.writable.is_set():
            echo.transport.write(bytes(100_000))
            written += 100_000
            assert written < 100 * MEGABYTE
            await asyncio.sleep(0)
        assert echo.transport.get_write_buffer_size() <= HIGH_BYTES + 200_000
        await wire.read_payload(written)
        async with asyncio.timeout(10):
            await echo.writable.wait()

    serve(loop_factory, tmp_path if is_secure else None, scenario)


@pytest.mark.parametrize("loop_factory", LOOPS)
@pytest.mark.parametrize("is_secure", [False, True])
def test_a_protocol_that_does_not_read_stops_the_client_and_misses_nothing(
    tmp_path: Path, loop_factory: LoopFactory, is_secure: bool
) -> None:
    count = 12

    async def scenario(wire: Wire, echo: Echo) -> None:
        echo.transport.pause_reading()
        frame = client_frame(BINARY, bytes(MEGABYTE))
        for _ in range(count):
            wire.writer.write(frame)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(wire.writer.drain(), QUIET_S)
        # A piece that was on its way may still come after the pause.
        assert echo.received_bytes <= 2 * MEGABYTE
        echo.transport.resume_reading()
        await wire.read_payload(count * MEGABYTE)
        assert echo.received_bytes == count * MEGABYTE

    serve(loop_factory, tmp_path if is_secure else None, scenario)


async def _dial(port: int, tls: ssl.SSLContext | None) -> Wire:
    host = "localhost" if tls is not None else None
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls, server_hostname=host)
    writer.write(upgrade_request())
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 101 ")
    return Wire(reader, writer)


def _contexts(directory: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    files = development_certificate(directory / "tls", now_ms=time.time_ns() // 1_000_000)
    client = ssl.create_default_context(cafile=str(files.authority))
    return server_context(files.certificate, files.key), client


async def _respond(request: HttpRequest) -> HttpResponse:
    return HttpResponse(200, TEXT, request.path)


def _refuse(refusal: Refused, target: str, peer: str) -> HttpResponse:
    return HttpResponse(refusal.kind.status, TEXT, refusal.message)
