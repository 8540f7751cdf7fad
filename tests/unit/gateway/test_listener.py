"""One port for AMQP, HTTP and TLS, on both event loops."""

import asyncio
import contextlib
import socket
import ssl
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import cast

import pytest
import uvloop

from shardbus.core.errors import Unavailable
from shardbus.gateway.admission.newcomers import Newcomers
from shardbus.gateway.listening.listener import TLS_HEADER, Listener, Protocols
from shardbus.gateway.listening.tls import development_certificate, server_context
from tests.support.refusals import check_named, unavailability

LOOPS = [asyncio.SelectorEventLoop, uvloop.new_event_loop]
Scenario = Callable[[int], Awaitable[None]]


@pytest.fixture(scope="module", autouse=True)
def libuv_has_its_pipe() -> None:
    """libuv opens a pipe for signals with its first loop and keeps it: no test leaks it."""
    uvloop.new_event_loop().close()


class Named(asyncio.Protocol):
    """Answers with its name, then what it was sent."""

    name = b"?"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.transport.write(self.name + b":" + data)


class Amqp(Named):
    name = b"amqp"


class Http(Named):
    name = b"http"


class BufferedAmqp(asyncio.BufferedProtocol):
    """The same with a buffer of three bytes."""

    def __init__(self) -> None:
        self.buffer = bytearray(3)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.transport.write(bytes(self.buffer[:nbytes]))


def certificate(tmp_path: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    files = development_certificate(tmp_path / "tls", now_ms=time.time_ns() // 1_000_000)
    client = ssl.create_default_context(cafile=str(files.authority))
    return server_context(files.certificate, files.key), client


async def ask(port: int, data: bytes, count: int, tls: ssl.SSLContext | None = None) -> bytes:
    """Send bytes and read the first `count` of the answer; fewer when the server closes."""
    host = "localhost" if tls is not None else None
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls, server_hostname=host)
    try:
        writer.write(data)
        return await reader.readexactly(count)
    except asyncio.IncompleteReadError as error:
        return error.partial
    except ConnectionResetError:
        return b""
    finally:
        writer.close()
        with contextlib.suppress(ConnectionResetError):
            await writer.wait_closed()


def serve(
    loop_factory: Callable[[], asyncio.AbstractEventLoop], protocols: Protocols, scenario: Scenario
) -> None:
    async def main() -> None:
        async with Listener(protocols) as listener:
            await scenario(await listener.listen("127.0.0.1", 0))

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main())


FIRST_BYTES = [
    (b"AMQP\x00\x01\x00\x00", b"amqp"),
    (b"A", b"amqp"),
    (b"GET / HTTP/1.1\r\n", b"http"),
    (b"PUT /q HTTP/1.1\r\n", b"http"),
    (b"DELETE /q HTTP/1.1\r\n", b"http"),
    (b"\x00\x01\x02", b"amqp"),
    (b"hello", b"amqp"),
]


@pytest.mark.parametrize("loop_factory", LOOPS)
@pytest.mark.parametrize("is_secure", [False, True])
def test_the_first_byte_tells_whom_a_connection_is_for_inside_tls_too(
    tmp_path: Path, loop_factory: Callable[[], asyncio.AbstractEventLoop], is_secure: bool
) -> None:
    """D9."""
    server, client = certificate(tmp_path)

    async def scenario(port: int) -> None:
        for data, name in FIRST_BYTES:
            expected = name + b":" + data
            answer = await ask(port, data, len(expected), client if is_secure else None)
            assert answer == expected

    serve(loop_factory, Protocols(amqp=Amqp, http=Http, tls=server), scenario)


@pytest.mark.parametrize("loop_factory", LOOPS)
@pytest.mark.parametrize("is_secure", [False, True])
def test_a_buffered_protocol_gets_every_byte(
    tmp_path: Path, loop_factory: Callable[[], asyncio.AbstractEventLoop], is_secure: bool
) -> None:
    server, client = certificate(tmp_path)
    data = b"AMQP" + bytes(range(256))

    async def scenario(port: int) -> None:
        assert await ask(port, data, len(data), client if is_secure else None) == data

    serve(loop_factory, Protocols(amqp=BufferedAmqp, tls=server), scenario)


@pytest.mark.parametrize("loop_factory", LOOPS)
def test_after_the_handover_nothing_stands_between_transport_and_protocol(
    loop_factory: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """D9: no cost per byte."""
    seen: list[asyncio.BaseProtocol] = []

    class Watched(Amqp):
        def data_received(self, data: bytes) -> None:
            seen.append(self.transport.get_protocol())
            super().data_received(data)

    async def scenario(port: int) -> None:
        await ask(port, b"AMQP", 9)

    serve(loop_factory, Protocols(amqp=Watched), scenario)

    assert [type(protocol) for protocol in seen] == [Watched]


@pytest.mark.parametrize("loop_factory", LOOPS)
def test_a_port_for_tls_only_serves_nothing_in_clear(
    tmp_path: Path, loop_factory: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    server, client = certificate(tmp_path)

    async def scenario(port: int) -> None:
        assert await ask(port, b"AMQP", 9) == b""
        assert await ask(port, b"AMQP", 9, client) == b"amqp:AMQP"

    serve(loop_factory, Protocols(amqp=Amqp, tls=server, is_tls_required=True), scenario)


async def upgrade(port: int, tls: ssl.SSLContext, data: bytes, count: int) -> bytes:
    """Ask for TLS by AMQP's header, then send bytes inside and read the answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(TLS_HEADER)
        assert await reader.readexactly(8) == TLS_HEADER
        await writer.start_tls(tls, server_hostname="localhost")
        writer.write(data)
        return await reader.readexactly(count)
    finally:
        writer.close()
        with contextlib.suppress(ConnectionResetError):
            await writer.wait_closed()


@pytest.mark.parametrize("loop_factory", LOOPS)
@pytest.mark.parametrize("is_required", [False, True])
def test_a_client_may_ask_for_tls_by_the_header_of_amqp(
    tmp_path: Path, loop_factory: Callable[[], asyncio.AbstractEventLoop], is_required: bool
) -> None:
    server, client = certificate(tmp_path)

    async def scenario(port: int) -> None:
        assert await upgrade(port, client, b"AMQP\x03\x01\x00\x00", 13) == b"amqp:AMQP\x03\x01\0\0"

    serve(loop_factory, Protocols(amqp=Amqp, tls=server, is_tls_required=is_required), scenario)


@pytest.mark.parametrize("loop_factory", LOOPS)
def test_without_tls_its_header_is_answered_by_amqp(
    loop_factory: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """And so is one that comes in pieces, or of a version that nobody knows."""

    async def scenario(port: int) -> None:
        assert await ask(port, TLS_HEADER, 13) == b"amqp:" + TLS_HEADER
        assert await ask(port, b"AMQP\x02\x09\x00\x00", 13) == b"amqp:AMQP\x02\x09\0\0"

    serve(loop_factory, Protocols(amqp=Amqp), scenario)


@pytest.mark.parametrize("loop_factory", LOOPS)
def test_a_failed_handshake_and_a_silent_client_disturb_nobody(
    tmp_path: Path, loop_factory: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    server, _ = certificate(tmp_path)

    async def scenario(port: int) -> None:
        _, silent = await asyncio.open_connection("127.0.0.1", port)
        with pytest.raises(ssl.SSLCertVerificationError):
            await ask(port, b"AMQP", 9, ssl.create_default_context())
        await ask(port, b"\x16garbage that is no handshake", 100)
        _, gone = await asyncio.open_connection("127.0.0.1", port)
        gone.close()
        assert await ask(port, b"AMQP", 9) == b"amqp:AMQP"
        silent.close()
        await silent.wait_closed()

    serve(loop_factory, Protocols(amqp=Amqp, http=Http, tls=server), scenario)


@pytest.mark.parametrize("loop_factory", LOOPS)
@pytest.mark.parametrize("is_secure", [False, True])
def test_a_client_that_never_says_anything_is_closed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    loop_factory: Callable[[], asyncio.AbstractEventLoop],
    is_secure: bool,
) -> None:
    for name in ("SILENT_MS_MAX", "SECURED_MS_MAX", "SWEEP_MS"):
        monkeypatch.setattr(f"shardbus.gateway.admission.newcomers.{name}", 50)
    server, client = certificate(tmp_path)

    async def scenario(port: int) -> None:
        assert await ask(port, b"", 1, client if is_secure else None) == b""

    serve(loop_factory, Protocols(amqp=Amqp, tls=server), scenario)


@pytest.mark.parametrize("loop_factory", LOOPS)
def test_a_port_in_use_is_reported_with_what_to_do(
    loop_factory: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """A port in use."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]

        async def main() -> None:
            async with Listener(Protocols(amqp=Amqp)) as listener:
                await listener.listen("127.0.0.1", port)

        with (
            pytest.raises(Unavailable) as failure,
            asyncio.Runner(loop_factory=loop_factory) as runner,
        ):
            runner.run(main())

    check_named(failure.value.message, str(port), "127.0.0.1")


def test_an_address_that_does_not_exist_is_reported() -> None:
    async def main() -> None:
        async with Listener(Protocols(amqp=Amqp)) as listener:
            with unavailability("no-such-host.invalid"):
                await listener.listen("no-such-host.invalid", 0)

    asyncio.run(main())


@pytest.mark.parametrize("loop_factory", LOOPS)
def test_leaving_stops_accepting_and_connections_live_on(
    loop_factory: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def main() -> None:
        async with Listener(Protocols(amqp=Amqp)) as listener:
            port = await listener.listen("127.0.0.1", 0)
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"AMQP")
            assert await reader.readexactly(9) == b"amqp:AMQP"
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"still")
        assert await reader.readexactly(10) == b"amqp:still"
        writer.close()
        await writer.wait_closed()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main())


async def closed(reader: asyncio.StreamReader) -> bool:
    """Whether the server hangs up without a word; waits until it does."""
    try:
        return await reader.read(1) == b""
    except ConnectionResetError:
        return True


# The beginning of a ClientHello whose rest never comes.
STALLED_HANDSHAKE = b"\x16\x03\x01\x02\x00"


@pytest.mark.parametrize("loop_factory", LOOPS)
@pytest.mark.parametrize("said", [b"", STALLED_HANDSHAKE], ids=["silent", "stalled in TLS"])
def test_a_full_reception_lets_the_oldest_of_the_noisiest_peer_go(
    tmp_path: Path, loop_factory: Callable[[], asyncio.AbstractEventLoop], said: bytes
) -> None:
    """Whoever floods the door keeps nobody else out."""
    server, _ = certificate(tmp_path)

    async def main() -> None:
        reception = Newcomers(asyncio.get_running_loop(), silent_max=3, secured_max=3)
        async with Listener(Protocols(amqp=Amqp, tls=server), reception) as listener:
            port = await listener.listen("127.0.0.1", 0)
            wires = []
            for host in ("127.0.0.2", "127.0.0.3", "127.0.0.3", "127.0.0.3", "127.0.0.2"):
                wires.append(await dial(port, host, said))
                await until(lambda: reception.newcomers == min(3, len(wires)))

            for gone in (1, 2):
                assert await closed(wires[gone][0])
            assert [wires[kept][0].at_eof() for kept in (0, 3, 4)] == [False] * 3
            assert await ask(port, b"AMQP", 9) == b"amqp:AMQP"
            for _, writer in wires:
                writer.transport.abort()
            await until(lambda: reception.newcomers == 0)

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main())


async def dial(
    port: int, host: str, said: bytes
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(host, 0))
    writer.write(said)
    return reader, writer


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not is_so():  # noqa: ASYNC110 - the kernel tells nobody what it has passed on
            await asyncio.sleep(0.001)
