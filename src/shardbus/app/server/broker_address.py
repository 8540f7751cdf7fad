"""Where a broker process listens, and the secret that it shares with its gateways."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from shardbus.app.cli.failures import Usage
from shardbus.app.server.node.name import BROKER, GATEWAY
from shardbus.app.server.node.tls import NodeServer, NodeTls

LIST_BYTES_MAX: Final = 64 * 1024
SECRET_BYTES_MIN: Final = 16
SECRET_BYTES_MAX: Final = 4096
# The kernel's sockaddr_un holds 108 bytes, the last of them zero.
SOCKET_PATH_BYTES_MAX: Final = 107

_TCP: Final = re.compile(r"tcp://(?P<host>\[[0-9a-fA-F:.]+\]|[^\s/:\[\]]+):(?P<port>\d{1,5})")

NewProtocol = Callable[[], asyncio.Protocol]
Listening = asyncio.Server | NodeServer


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """`unix:PATH` or `tcp://HOST:PORT`; `socket` is None for the second."""

    socket: Path | None = None
    host: str = ""
    port: int = 0

    def __str__(self) -> str:
        if self.socket is not None:
            return f"unix:{self.socket}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"tcp://{host}:{self.port}"

    def bound(self, server: Listening) -> BrokerAddress:
        """This address with the port that the system chose, if it chose one."""
        if self.socket is not None:
            return self
        return BrokerAddress(host=self.host, port=server.sockets[0].getsockname()[1])

    async def dial(
        self, new_protocol: NewProtocol, tls: NodeTls | None = None, name: str | None = None
    ) -> None:
        """Connect to a broker, with `tls` to the one of this name; OSError when that fails.

        A socket needs no TLS: it is on this machine, and of this user.
        """
        loop = asyncio.get_running_loop()
        if self.socket is not None:
            await loop.create_unix_connection(new_protocol, str(self.socket))
        elif tls is not None:
            await tls.dial(self.host, self.port, new_protocol, role=BROKER, name=name)
        else:
            await loop.create_connection(new_protocol, self.host, self.port)

    async def listen(
        self,
        new_protocol: NewProtocol,
        tls: NodeTls | None = None,
        roles: tuple[str, ...] = (GATEWAY,),
    ) -> Listening:
        """Accept nodes of these roles; a socket file is for this user. Usage when that fails."""
        loop = asyncio.get_running_loop()
        try:
            if self.socket is None and tls is not None:
                return await tls.listen(self.host, self.port, new_protocol, roles=roles)
            if self.socket is None:
                return await loop.create_server(new_protocol, self.host, self.port)
            _prepare_socket(self.socket)
            mask = os.umask(0o177)
            try:
                return await loop.create_unix_server(new_protocol, str(self.socket))
            finally:
                os.umask(mask)
        except OSError as error:
            raise Usage(f"cannot listen on {self}: {error.strerror or error}") from error


def parse_broker_address(text: str) -> BrokerAddress:
    """The address in a text; Usage when it is invalid."""
    if text.startswith("unix:") and len(text) > len("unix:"):
        return BrokerAddress(socket=checked_socket(Path(text.removeprefix("unix:"))))
    found = _TCP.fullmatch(text)
    if found is None or int(found["port"]) > 65_535:
        raise Usage(f"{text!r} is not the address of a broker: write unix:PATH or tcp://HOST:PORT")
    return BrokerAddress(host=found["host"].strip("[]"), port=int(found["port"]))


def checked_socket(path: Path) -> Path:
    if len(os.fsencode(path)) > SOCKET_PATH_BYTES_MAX:
        raise Usage(
            f"the socket path {path} is longer than {SOCKET_PATH_BYTES_MAX} bytes: use a shorter "
            "one"
        )
    return path


def read_broker_list(path: Path) -> list[BrokerAddress]:
    """The brokers in a file, one per line in the order of their numbers."""
    try:
        with path.open("rb") as file:
            text = file.read(LIST_BYTES_MAX + 1).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise Usage(f"the list of brokers {path} cannot be read: {error}") from error
    if len(text) > LIST_BYTES_MAX:
        raise Usage(f"the list of brokers {path} is longer than {LIST_BYTES_MAX} bytes")
    lines = [line.partition("#")[0].strip() for line in text.splitlines()]
    addresses = [parse_broker_address(line) for line in lines if line]
    if not addresses:
        raise Usage(f"the list of brokers {path} is empty")
    return addresses


def read_secret(path: Path) -> bytes:
    """The secret in a file; Usage when it is missing, weak, or readable by others."""
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            secret = file.read(SECRET_BYTES_MAX + 1).strip()
    except OSError as error:
        raise Usage(f"the secret file {path} cannot be read: {error.strerror}") from error
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise Usage(f"the secret file {path} is readable by others: chmod 600 {path}")
    if not SECRET_BYTES_MIN <= len(secret) <= SECRET_BYTES_MAX:
        raise Usage(
            f"the secret in {path} has {len(secret)} bytes; it must have {SECRET_BYTES_MIN} "
            f"to {SECRET_BYTES_MAX}"
        )
    return secret


def node_secret(tls: NodeTls) -> bytes:
    """In place of a secret, where certificates prove who is who: the greeting needs one."""
    return f"shardbus://{tls.own.cluster}".encode()


def make_secret(path: Path) -> bytes:
    """The secret in a file, which is created for this user alone if it is missing."""
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except FileExistsError:
        return read_secret(path)
    except OSError as error:
        raise Usage(f"the secret file {path} cannot be created: {error.strerror}") from error
    with os.fdopen(descriptor, "wb") as file:
        file.write(secrets.token_hex(32).encode() + b"\n")
    return read_secret(path)


def _prepare_socket(path: Path) -> None:
    directory = path.parent
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    about = directory.stat()
    if about.st_uid != os.geteuid() or about.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise Usage(
            f"the directory {directory} of the socket must be accessible to this user alone: "
            "chmod 700 it"
        )
    # Left by a process that was killed; the lock of the data directory proves that it has ended.
    if path.is_socket():
        path.unlink()
