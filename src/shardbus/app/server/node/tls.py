"""Mutual TLS between nodes: contexts that follow their files, and the identity of the peer.

Only this module secures connections between processes. A directory has the certificate of the
cluster's authority, that of the node with its names (`name`), and its key. Each new connection
uses the files as they are then; open connections are not affected
(docs/adr/0078-mutual-tls-between-nodes.md).
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, cast, final

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from shardbus.app.cli.failures import Usage
from shardbus.app.server.node.name import NodeName, node_names, refusal
from shardbus.broker.clock import Clock
from shardbus.broker.remote.tls_words import tls_words
from shardbus.broker.wire.codec import encode
from shardbus.broker.wire.frames import Reject
from shardbus.stores.base.files import Stamp, stamp_of

log = logging.getLogger(__name__)

# The file names that `shardbus cluster cert` writes, and those of Kubernetes secrets.
AUTHORITY: Final = ("ca.pem", "ca.crt")
CERTIFICATE: Final = ("node.pem", "tls.crt")
KEY: Final = ("node-key.pem", "tls.key")

HANDSHAKE_S: Final = 5.0
SHUTDOWN_S: Final = 1.0
REFUSE_S: Final = 0.2
# Connections that have not shown a certificate yet.
STRANGERS_MAX: Final = 64
HELD_BYTES_MAX: Final = 64 * 1024
BACKLOG: Final = 128
TOLD_S: Final = 60.0
TOLD_MAX: Final = 256
EXPIRY_WARNED_DAYS: Final = 30
_FILE_BYTES_MAX: Final = 256 * 1024

NewProtocol = Callable[[], asyncio.Protocol]


@final
class _Files:
    """The contents of the directory when it was read."""

    def __init__(self, directory: Path, role: str, now_ms: int) -> None:
        authority, certificate, key = (_found(directory, n) for n in (AUTHORITY, CERTIFICATE, KEY))
        self.stamp = stamp_of(authority, certificate, key)
        names, self.until = _checked_names(authority, certificate, key, now_ms)
        self.certificate = certificate
        found = [name for name in names if name.role == role]
        if not found:
            roles = ", ".join(name.role for name in names)
            raise Usage(
                f"the certificate {certificate} is for {roles}, but this process is a {role}: "
                f"create one with `shardbus cluster cert --role {role}`"
            )
        self.own = found[0]
        self.server = _context(ssl.PROTOCOL_TLS_SERVER, authority, certificate, key)
        self.client = _context(ssl.PROTOCOL_TLS_CLIENT, authority, certificate, key)


@final
class NodeTls:
    """The identity of this process, and its connections to other nodes of the cluster.

    Usage, with the reason, when the first files are invalid. Files that become invalid later are
    logged, and the previous ones stay in use.
    """

    def __init__(self, directory: Path, role: str, clock: Clock) -> None:
        self._directory = directory
        self._role = role
        self._clock = clock
        self._files = _Files(directory, role, clock.now_ms())
        self._refused: Stamp = ()

    @property
    def own(self) -> NodeName:
        return self._files.own

    def refresh(self) -> bool:
        """Read the files again if they changed; returns whether the certificate is a new one."""
        try:
            stamp = stamp_of(*(_found(self._directory, n) for n in (AUTHORITY, CERTIFICATE, KEY)))
            if stamp in (self._files.stamp, self._refused):
                return False
            # Logged once, not for each connection.
            self._refused = stamp
            found = _Files(self._directory, self._role, self._clock.now_ms())
            if found.own.cluster != self.own.cluster:
                raise Usage(
                    f"the new one is for the cluster {found.own.cluster!r}, not for "
                    f"{self.own.cluster!r}"
                )
        except Usage as error:
            log.error("this node continues to use its previous certificate: %s", error)
            return False
        self._files = found
        log.info("new connections between nodes use the new certificate in %s", self.own)
        return True

    def problem(self) -> str:
        """Until when the certificate is valid, if that is soon; empty if it is not."""
        self.refresh()
        return _expiry(self._files.certificate, self._files.until, self._clock.now_ms())

    async def dial(
        self, host: str, port: int, new_protocol: NewProtocol, *, role: str, name: str | None = None
    ) -> None:
        """Connect to a node of our cluster with this role, and this name if one is given.

        OSError, with the reason, when it cannot be reached or another node answers.
        """
        self.refresh()
        pending = _PendingConnection()
        try:
            await asyncio.get_running_loop().create_connection(
                lambda: pending,
                host,
                port,
                ssl=self._files.client,
                ssl_handshake_timeout=HANDSHAKE_S,
                ssl_shutdown_timeout=SHUTDOWN_S,
            )
        except ssl.SSLError as error:
            raise ConnectionError(tls_words(error)) from error
        why = self.refusal(pending, role, name)
        if why:
            pending.refuse(why)
            raise ConnectionError(why)
        pending.open(new_protocol())

    async def listen(
        self, host: str, port: int, new_protocol: NewProtocol, *, roles: tuple[str, ...]
    ) -> NodeServer:
        """Accept nodes of our cluster with one of these roles; OSError when that fails."""
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        sockets: list[socket.socket] = []
        for family, _, _, _, address in dict.fromkeys(found):
            # With port 0 the system chooses a port once, for all addresses of the host.
            chosen = sockets[0].getsockname()[1] if sockets and not port else address[1]
            listening = socket.socket(family, socket.SOCK_STREAM)
            sockets.append(listening)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listening.bind((address[0], chosen, *address[2:]))
            listening.listen(BACKLOG)
            listening.setblocking(False)
        return NodeServer(self, sockets, new_protocol, roles)

    def server_context(self) -> ssl.SSLContext:
        self.refresh()
        return self._files.server

    def refusal(self, pending: _PendingConnection, role: str, name: str | None) -> str:
        """Why the node at the other end is not the expected one; empty if it is."""
        return refusal(node_names(pending.peer_names()), self.own.cluster, role, name)


@final
class NodeServer:
    """Listens for nodes of the given roles, until it is closed."""

    def __init__(
        self,
        tls: NodeTls,
        sockets: list[socket.socket],
        new_protocol: NewProtocol,
        roles: tuple[str, ...],
    ) -> None:
        self.sockets = sockets
        self._tls = tls
        self._new_protocol = new_protocol
        self._roles = roles
        self._loop = asyncio.get_running_loop()
        # Running handshakes, referenced because the loop does not keep tasks alive.
        self._strangers: set[asyncio.Task[None]] = set()
        # When a refusal was logged, by address and reason.
        self._told: dict[tuple[str, str], float] = {}
        for listening in sockets:
            self._loop.add_reader(listening, self._accept, listening)

    def close(self) -> None:
        """Accept no more connections; open ones stay."""
        for listening in self.sockets:
            self._loop.remove_reader(listening)
            listening.close()
        for stranger in list(self._strangers):
            stranger.cancel()

    async def wait_closed(self) -> None:
        """Return when all handshakes have ended."""
        if self._strangers:
            await asyncio.wait(list(self._strangers))

    def _accept(self, listening: socket.socket) -> None:
        try:
            connection, address = listening.accept()
        except OSError as error:
            log.debug("a connection ended before its handshake was complete: %s", error)
            return
        if len(self._strangers) >= STRANGERS_MAX:
            connection.close()
            return
        connection.setblocking(False)
        peer = f"{address[0]}:{address[1]}"
        task = self._loop.create_task(self._admit(connection, peer))
        self._strangers.add(task)
        task.add_done_callback(self._strangers.discard)

    def _tell(self, peer: str, why: str) -> None:
        """Log a refusal, once a minute for each address and reason: peers try again and again."""
        key = (peer.rpartition(":")[0], why)
        now_s = self._loop.time()
        if self._told.get(key, now_s - TOLD_S) > now_s - TOLD_S:
            log.debug("refused a connection from %s: %s", peer, why)
            return
        while len(self._told) >= TOLD_MAX:
            del self._told[next(iter(self._told))]
        self._told[key] = now_s
        log.warning("refused a connection from %s: %s", peer, why)

    async def _admit(self, connection: socket.socket, peer: str) -> None:
        pending = _PendingConnection()
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self._loop.connect_accepted_socket(
                lambda: pending,
                connection,
                ssl=self._tls.server_context(),
                ssl_handshake_timeout=HANDSHAKE_S,
                ssl_shutdown_timeout=SHUTDOWN_S,
            )
        except OSError as error:
            self._tell(peer, tls_words(error))
            connection.close()
            return
        except asyncio.CancelledError:
            connection.close()
            raise
        reasons = [self._tls.refusal(pending, role, None) for role in self._roles]
        why = reasons[0] if all(reasons) else ""
        if why:
            self._tell(peer, why)
            pending.refuse(why)
        elif not pending.is_lost:
            pending.open(self._new_protocol())


@final
class _PendingConnection(asyncio.Protocol):
    """A connection until its peer is identified; then the real protocol takes it over."""

    def __init__(self) -> None:
        self.is_lost = False
        self._transport: asyncio.Transport | None = None
        self._held = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports have the methods of asyncio.Transport without being one.
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, error: Exception | None) -> None:
        self.is_lost = True

    def data_received(self, data: bytes) -> None:
        self._held += data
        if len(self._held) > HELD_BYTES_MAX and self._transport is not None:
            self._transport.abort()

    def peer_names(self) -> list[str]:
        found = None if self._transport is None else self._transport.get_extra_info("ssl_object")
        shown = None if found is None else found.getpeercert()
        names = (shown or {}).get("subjectAltName", ())
        return [str(value) for kind, value in names if kind == "URI"]

    def open(self, protocol: asyncio.Protocol) -> None:
        transport = self._transport
        if transport is None or self.is_lost:
            raise ConnectionError("the peer closed the connection; its log may give the reason")
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        held, self._held = self._held, b""
        if held:
            protocol.data_received(held)

    def refuse(self, why: str) -> None:
        """Send the reason to the unidentified peer, and close the connection a moment later.

        The connection is aborted without the closing messages of TLS: while uvloop waits for them,
        its loop cannot be closed.
        """
        if self._transport is not None:
            self._transport.write(encode(Reject(why)))
            asyncio.get_running_loop().call_later(REFUSE_S, self._transport.abort)


def _context(
    protocol: ssl._SSLMethod, authority: Path, certificate: Path, key: Path
) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # Certificates name nodes, not hosts: the peer is checked after the handshake.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        context.load_verify_locations(authority)
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise Usage(f"{certificate} with {key} and {authority} cannot be used: {error}") from error
    return context


def authority_in(directory: Path) -> Path:
    """The file of the authorities that a node trusts; Usage if there is none."""
    return _found(directory, AUTHORITY)


def _found(directory: Path, names: tuple[str, ...]) -> Path:
    try:
        for name in names:
            if (directory / name).exists():
                return directory / name
    except OSError as error:
        raise Usage(
            f"{directory} cannot be read: {error.strerror}; give it, and what is in it, to the "
            "user that runs this node"
        ) from error
    raise Usage(
        f"{directory} has no {names[0]}: create it with `shardbus cluster cert`, and name its "
        "directory with --node-tls"
    )


def _expiry(certificate: Path, until: datetime, now_ms: int) -> str:
    """What to do about a certificate that ends soon or has ended; empty before that."""
    left = until - datetime.fromtimestamp(now_ms / 1000, UTC)
    if left >= timedelta(days=EXPIRY_WARNED_DAYS):
        return ""
    renew = "renew it with `shardbus cluster cert --force`"
    if left > timedelta():
        return f"the certificate {certificate} expires on {until:%Y-%m-%d}: {renew}"
    return (
        f"the certificate {certificate} expired on {until:%Y-%m-%d}, and other nodes refuse new "
        f"connections with it: {renew}"
    )


def _checked_names(
    authority: Path, certificate: Path, key: Path, now_ms: int
) -> tuple[list[NodeName], datetime]:
    """The names in a certificate that is valid now and belongs to its key and its authority, and
    until when it is valid.
    """
    try:
        authorities = x509.load_pem_x509_certificates(_read(authority))
        found, *chain = x509.load_pem_x509_certificates(_read(certificate))
        private = serialization.load_pem_private_key(_read(key), None)
    except (ValueError, TypeError) as error:
        raise Usage(
            f"{authority}, {certificate} or {key} is not in the PEM format, or is protected by a "
            f"password: {error}"
        ) from error
    if found.public_key() != private.public_key():
        raise Usage(f"the key {key} does not belong to the certificate {certificate}")
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    if not found.not_valid_before_utc <= now < found.not_valid_after_utc:
        raise Usage(
            f"the certificate {certificate} is not valid now "
            f"({found.not_valid_before_utc:%Y-%m-%d} to {found.not_valid_after_utc:%Y-%m-%d}): "
            "create a new one with `shardbus "
            "cluster cert`, or check the clock of this machine"
        )
    if soon := _expiry(certificate, found.not_valid_after_utc, now_ms):
        log.warning("%s", soon)
    if not any(each.subject == found.issuer for each in (*authorities, *chain)):
        raise Usage(f"the certificate {certificate} is not signed by the authority {authority}")
    names = node_names(_uris(found))
    if not names:
        raise Usage(
            f"the certificate {certificate} names no node, as in shardbus://CLUSTER/ROLE/NAME: "
            "create one with `shardbus cluster cert`"
        )
    if len({name.cluster for name in names}) > 1:
        raise Usage(f"the certificate {certificate} names nodes of several clusters")
    return names, found.not_valid_after_utc


def _uris(certificate: x509.Certificate) -> list[str]:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return []
    return found.value.get_values_for_type(x509.UniformResourceIdentifier)


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_FILE_BYTES_MAX)
    except OSError as error:
        raise Usage(f"{path} cannot be read: {error.strerror or error}") from error
