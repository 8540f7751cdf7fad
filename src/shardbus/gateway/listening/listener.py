"""One port for all protocols: the first bytes of a connection tell which one it is.

A plain connection is examined with MSG_PEEK before it has a transport, so the bytes stay in the
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
from shardbus.gateway.admission.newcomers import SECURED_MS_MAX, Newcomers
from shardbus.gateway.listening.peer import peer_at

log = logging.getLogger(__name__)

SHUTDOWN_MS_MAX: Final = 5_000
"""How long a client may take to answer the end of TLS."""
BACKLOG: Final = 1024
ACCEPTED_AT_ONCE_MAX: Final = 64
ACCEPT_PAUSE_MS: Final = 100
"""How long accepting pauses when there are no file descriptors left."""
SHORTAGE_MS: Final = 10_000
"""How long after the last such pause it still counts as a problem."""

TLS_HEADER: Final = b"AMQP\x02\x01\x00\x00"
"""The AMQP header that asks for TLS on a plain port. If it comes in pieces it goes to AMQP, which
refuses it as it does where there is no TLS.
"""
_TLS_HANDSHAKE: Final = 0x16
_FIRST_OF_AMQP: Final = ord("A")

ProtocolFactory = Callable[[], asyncio.BaseProtocol]


@final
class Protocols:
    """The protocols of a port; None where it does not serve one.

    Everything that is neither HTTP nor TLS goes to AMQP, whose answer to a wrong header is the
    right one.
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
        """No supported HTTP method starts with the A of AMQP."""
        is_http = ord("A") <= first <= ord("Z") and first != _FIRST_OF_AMQP
        if is_http or self.amqp is None:
            return self.http or self.amqp
        return self.amqp


@final
class Listener:
    """Accepts connections on any number of addresses while its `async with` block lasts.

    Leaving the block stops accepting; connections that were handed over continue. Listeners that
    share a `Newcomers` share its limits.
    """

    def __init__(self, protocols: Protocols, admission: Newcomers | None = None) -> None:
        self._protocols = protocols
        self._loop = asyncio.get_running_loop()
        self._admission = Newcomers(self._loop) if admission is None else admission
        self._tasks = asyncio.TaskGroup()
        self._sockets: list[socket.socket] = []
        self._newcomers: set[_Silent | _InsideTls] = set()
        self._timers: set[asyncio.TimerHandle] = set()
        self._short_at: float | None = None

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for timer in self._timers:
            timer.cancel()
        for listening in self._sockets:
            self._loop.remove_reader(listening)
            listening.close()
        self._sockets.clear()
        for newcomer in list(self._newcomers):
            newcomer.expel()
        # A task group wraps whatever the block raises: only cancellation is its own.
        if isinstance(error, asyncio.CancelledError):
            await self._tasks.__aexit__(kind, error, trace)
        else:
            await self._tasks.__aexit__(None, None, None)

    async def listen(self, host: str, port: int) -> int:
        """Accept on every address of a host; returns the port, which the system chooses for 0.

        Unavailable, and no address is bound, when one of them cannot be.
        """
        bound = await _bind(self._loop, host, port)
        for listening in bound:
            self._sockets.append(listening)
            self._loop.add_reader(listening, self._accept, listening)
        return _port_of(bound[0])

    def problems(self) -> list[str]:
        """What keeps clients out now, or did a moment ago."""
        if self._short_at is None or self._loop.time() - self._short_at > SHORTAGE_MS / 1000:
            return []
        return [
            "New connections must wait, because the process has no file descriptors left: raise "
            "the limit (ulimit -n), or close connections."
        ]

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTED_AT_ONCE_MAX):
            try:
                connection, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                # A connection that has been silent for long gives its descriptor to a new one.
                if not self._admission.make_room():
                    self._pause(listening, error)
                    return
                continue
            connection.setblocking(False)
            newcomer = _Silent(self, connection, peer_at(address))
            self._newcomers.add(newcomer)
            self._admission.welcome(newcomer)

    def _pause(self, listening: socket.socket, error: OSError) -> None:
        # Once for each shortage: many waiting clients can make it last.
        if not self.problems():
            log.error("accepting pauses for %s ms at a time: %s", ACCEPT_PAUSE_MS, error)
        self._short_at = self._loop.time()
        self._loop.remove_reader(listening)

        def resume() -> None:
            self._timers.discard(timer)
            self._loop.add_reader(listening, self._accept, listening)

        timer = self._loop.call_later(ACCEPT_PAUSE_MS / 1000, resume)
        self._timers.add(timer)

    def left(self, newcomer: _Silent | _InsideTls) -> None:
        """The newcomer has closed, or its protocol is known."""
        self._newcomers.discard(newcomer)
        self._admission.forget(newcomer)

    def hand_over(self, connection: socket.socket, start: bytes, peer: str) -> None:
        """Give a connection to the protocol of its first bytes, or close it."""
        protocols = self._protocols
        first = start[0]
        is_upgrade = start == TLS_HEADER and protocols.amqp is not None
        if (is_upgrade or first == _TLS_HANDSHAKE) and protocols.tls is not None:
            if is_upgrade and not _agree_to_tls(connection):
                connection.close()
                return
            inside = _InsideTls(self, protocols, peer)
            inside.task = self._tasks.create_task(self._secure(inside, connection, protocols.tls))
            self._newcomers.add(inside)
            self._admission.secure(inside)
            return
        factory = protocols.factory_for(first)
        if factory is None or protocols.is_tls_required:
            connection.close()
        else:
            self._tasks.create_task(self._connect(factory, connection), name="new connection")

    async def _connect(self, factory: ProtocolFactory, connection: socket.socket) -> None:
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self._loop.connect_accepted_socket(factory, connection)
        except OSError as error:
            log.debug("a connection ended before it began: %s", error)
            connection.close()

    async def _secure(
        self, inside: _InsideTls, connection: socket.socket, tls: ssl.SSLContext
    ) -> None:
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self._loop.connect_accepted_socket(
                lambda: inside,
                connection,
                ssl=tls,
                ssl_handshake_timeout=SECURED_MS_MAX / 1000,
                ssl_shutdown_timeout=SHUTDOWN_MS_MAX / 1000,
            )
        except (OSError, asyncio.CancelledError) as error:
            # Cancelled only by `expel`: the connection ends, and the listener continues.
            log.debug("a connection ended before it began: %s", error)
            self.left(inside)
            connection.close()


@final
class _Silent:
    """A connection that has sent nothing yet; it costs a descriptor and no task."""

    def __init__(self, listener: Listener, connection: socket.socket, peer: str) -> None:
        self.peer = peer
        self._listener = listener
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(connection, self._speaks)

    def expel(self) -> None:
        self._leave()
        self._connection.close()

    def _leave(self) -> None:
        self._loop.remove_reader(self._connection)
        self._listener.left(self)

    def _speaks(self) -> None:
        """Its first bytes stay in the socket; there are none when the peer has closed."""
        self._leave()
        try:
            start = self._connection.recv(len(TLS_HEADER), socket.MSG_PEEK)
        except OSError as error:
            log.debug("a connection ended before it began: %s", error)
            start = b""
        if start:
            self._listener.hand_over(self._connection, start, self.peer)
        else:
            self._connection.close()


@final
class _InsideTls(asyncio.Protocol):
    """Waits for the first decrypted piece, then is replaced by the right protocol."""

    def __init__(self, listener: Listener, protocols: Protocols, peer: str) -> None:
        self.peer = peer
        self.task: asyncio.Task[None] | None = None
        self._listener = listener
        self._protocols = protocols
        self._transport: asyncio.Transport | None = None

    def expel(self) -> None:
        self._listener.left(self)
        if self._transport is not None:
            self._transport.abort()
        elif self.task is not None:
            self.task.cancel()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the methods of asyncio.Transport without being one.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        transport = self._transport
        assert transport is not None
        self._listener.left(self)
        factory = self._protocols.factory_for(data[0])
        if factory is None:
            transport.close()
            return
        protocol = factory()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        _feed(protocol, data)

    def connection_lost(self, error: Exception | None) -> None:
        self._listener.left(self)


def _agree_to_tls(connection: socket.socket) -> bool:
    """Answer an AMQP header that asks for TLS with the same header (part 5, 5.2.1); afterwards both
    sides continue as if the connection had begun with TLS. False: the connection has ended.
    """
    try:
        size = len(TLS_HEADER)
        return connection.recv(size) == TLS_HEADER and connection.send(TLS_HEADER) == size
    except OSError as error:
        log.debug("a connection ended before it began: %s", error)
        return False


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
        return f"This user may not listen on port {port} of {host}: choose one above 1023."
    return f"Cannot listen on port {port} of {host}: {error}."
