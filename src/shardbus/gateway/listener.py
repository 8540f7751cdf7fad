"""One port for everything: who a connection is for is seen from its first byte (D9).

A plain connection is looked at with MSG_PEEK before it has a transport, so the bytes stay in the
socket, TLS starts from an untouched stream, and afterwards nothing stands between the transport and
its protocol. Inside TLS there is no socket to peek at: a small protocol takes the first piece and
passes it on.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self, cast, final

from shardbus.core.errors import Unavailable

log = logging.getLogger(__name__)

FIRST_BYTE_MS_MAX: Final = 10_000
HANDSHAKE_MS_MAX: Final = 10_000
BACKLOG: Final = 1024
PENDING_MAX: Final = 1024
"""Connections that have not said yet what they are for; more are closed at once."""
ACCEPTED_AT_ONCE_MAX: Final = 64
ACCEPT_PAUSE_MS: Final = 100
"""When there are no file descriptors left, accepting waits this long."""

_TLS_HANDSHAKE: Final = 0x16
_FIRST_OF_AMQP: Final = ord("A")

ProtocolFactory = Callable[[], asyncio.BaseProtocol]


@final
class Protocols:
    """Who serves what; None where a port does not serve it.

    What is neither HTTP nor TLS goes to AMQP, whose answer to a wrong header is the right one.
    """

    def __init__(
        self,
        *,
        amqp: ProtocolFactory | None = None,
        http: ProtocolFactory | None = None,
        tls: ssl.SSLContext | None = None,
        is_tls_required: bool = False,
    ) -> None:
        self.is_tls_required = is_tls_required
        self.amqp = amqp
        self.http = http
        self.tls = tls

    def factory_for(self, first: int) -> ProtocolFactory | None:
        """No HTTP method that anybody serves starts with the A of AMQP."""
        is_http = ord("A") <= first <= ord("Z") and first != _FIRST_OF_AMQP
        if is_http or self.amqp is None:
            return self.http or self.amqp
        return self.amqp


@final
class Listener:
    """Accepts connections on any number of addresses while its `async with` block lasts.

    Leaving the block stops accepting; connections that were handed over live on.
    """

    def __init__(self, protocols: Protocols) -> None:
        self._protocols = protocols
        self._tasks = asyncio.TaskGroup()
        self._sockets: list[socket.socket] = []
        self._pending: set[asyncio.Task[None]] = set()
        self._timers: set[asyncio.TimerHandle] = set()

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        loop = asyncio.get_running_loop()
        for timer in self._timers:
            timer.cancel()
        for listening in self._sockets:
            loop.remove_reader(listening)
            listening.close()
        self._sockets.clear()
        for task in list(self._pending):
            task.cancel()
        # A task group wraps whatever the block raises: only cancellation is its business.
        if isinstance(error, asyncio.CancelledError):
            await self._tasks.__aexit__(kind, error, trace)
        else:
            await self._tasks.__aexit__(None, None, None)

    async def listen(self, host: str, port: int) -> int:
        """Accept on every address of a host; the port, also when 0 let the system choose.

        Unavailable, and nothing is listened to in vain, when an address cannot be had.
        """
        loop = asyncio.get_running_loop()
        bound = await _bind(loop, host, port)
        for listening in bound:
            self._sockets.append(listening)
            loop.add_reader(listening, self._accept, listening)
        return _port_of(bound[0])

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTED_AT_ONCE_MAX):
            try:
                connection, _address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._pause(listening, error)
                return
            if len(self._pending) >= PENDING_MAX:
                connection.close()
                continue
            connection.setblocking(False)
            task = self._tasks.create_task(self._take(connection), name="new connection")
            self._pending.add(task)
            task.add_done_callback(self._pending.discard)

    def _pause(self, listening: socket.socket, error: OSError) -> None:
        log.error("accepting pauses for %s ms: %s", ACCEPT_PAUSE_MS, error)
        loop = asyncio.get_running_loop()
        loop.remove_reader(listening)

        def resume() -> None:
            self._timers.discard(timer)
            loop.add_reader(listening, self._accept, listening)

        timer = loop.call_later(ACCEPT_PAUSE_MS / 1000, resume)
        self._timers.add(timer)

    async def _take(self, connection: socket.socket) -> None:
        """See what a connection is for and hand it over, or close it."""
        try:
            async with asyncio.timeout(FIRST_BYTE_MS_MAX / 1000):
                first = await _peek(connection)
            if first is None:
                connection.close()
            else:
                await self._hand_over(connection, first)
        except (TimeoutError, OSError) as error:
            log.debug("a connection ended before it began: %s", error)
            connection.close()
        except BaseException:
            connection.close()
            raise

    async def _hand_over(self, connection: socket.socket, first: int) -> None:
        protocols, loop = self._protocols, asyncio.get_running_loop()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if first == _TLS_HANDSHAKE and protocols.tls is not None:
            await loop.connect_accepted_socket(
                lambda: _InsideTls(protocols),
                connection,
                ssl=protocols.tls,
                ssl_handshake_timeout=HANDSHAKE_MS_MAX / 1000,
            )
            return
        factory = protocols.factory_for(first)
        if factory is None or protocols.is_tls_required:
            connection.close()
            return
        await loop.connect_accepted_socket(factory, connection)


@final
class _InsideTls(asyncio.Protocol):
    """Waits for the first decrypted piece, then gives its place to the protocol it is for."""

    def __init__(self, protocols: Protocols) -> None:
        self._protocols = protocols
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the methods of asyncio.Transport without being one.
        self._transport = cast(asyncio.Transport, transport)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(FIRST_BYTE_MS_MAX / 1000, self._transport.abort)

    def data_received(self, data: bytes) -> None:
        transport = self._transport
        assert transport is not None
        self._cancel_timer()
        factory = self._protocols.factory_for(data[0])
        if factory is None:
            transport.close()
            return
        protocol = factory()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        _feed(protocol, data)

    def connection_lost(self, error: Exception | None) -> None:
        self._cancel_timer()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _feed(protocol: asyncio.BaseProtocol, data: bytes) -> None:
    if isinstance(protocol, asyncio.BufferedProtocol):
        rest = memoryview(data)
        while rest:
            buffer = memoryview(protocol.get_buffer(len(rest)))
            size = min(len(buffer), len(rest))
            buffer[:size] = rest[:size]
            protocol.buffer_updated(size)
            rest = rest[size:]
    else:
        assert isinstance(protocol, asyncio.Protocol)
        protocol.data_received(data)


async def _peek(connection: socket.socket) -> int | None:
    """The first byte, which stays in the socket; None when the peer has closed."""
    loop = asyncio.get_running_loop()
    readable: asyncio.Future[None] = loop.create_future()

    def ready() -> None:
        if not readable.done():
            readable.set_result(None)

    loop.add_reader(connection, ready)
    try:
        await readable
    finally:
        loop.remove_reader(connection)
    first = connection.recv(1, socket.MSG_PEEK)
    return first[0] if first else None


async def _bind(loop: asyncio.AbstractEventLoop, host: str, port: int) -> list[socket.socket]:
    bound: list[socket.socket] = []
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, _, _, _, address in dict.fromkeys(found):
            # With port 0 the system chooses once, for all addresses of the host.
            chosen = _port_of(bound[0]) if bound and not port else port
            bound.append(_bind_one(family, (address[0], chosen, *address[2:])))
    except OSError as error:
        for listening in bound:
            listening.close()
        raise Unavailable(_explained(host, port, error)) from error
    return bound


def _bind_one(family: int, address: tuple[str | int, ...]) -> socket.socket:
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setblocking(False)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.bind(address)
        listening.listen(BACKLOG)
    except OSError:
        listening.close()
        raise
    return listening


def _port_of(listening: socket.socket) -> int:
    port: int = listening.getsockname()[1]
    return port


def _explained(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"Port {port} on {host} is in use by another program: choose another port."
    if error.errno == errno.EACCES:
        return f"Port {port} on {host} is not allowed to this user: choose one above 1023."
    return f"Port {port} on {host} cannot be listened on: {error}."
