"""The connections of the lane, as far as they can be reached: gRPC owns its sockets.

Arrow's server can neither end a call nor limit the number of connections. But the sockets belong to
this process: when one is shut down, gRPC sees a client that has gone, and every call on it ends. A
descriptor is used through a copy, which stays the same socket whatever gRPC does in between.
"""

from __future__ import annotations

import logging
import os
import socket
import stat
import struct
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import unquote

log = logging.getLogger(__name__)

_DESCRIPTORS: Final = Path("/dev/fd")
_TCP_INFO: Final = 11
# Where Linux has tcpi_last_data_recv in struct tcp_info.
_LAST_DATA_AT: Final = 52
_INTERNET: Final = (socket.AF_INET, socket.AF_INET6)


class LaneConnection(NamedTuple):
    """A connection to this port; `silent_ms` since its client sent anything, 0 if unknown."""

    peer: str
    silent_ms: int


def peer_name(text: str) -> str:
    """Flight's name of a peer (`ipv4:127.0.0.1:5`, `ipv6:%5B::1%5D:5`) as `host port`."""
    _, _, rest = unquote(text).partition(":")
    host, _, port = rest.rpartition(":")
    return _named(host.strip("[]"), port)


def connections(port: int) -> list[LaneConnection]:
    """The connections of this process on one of its ports."""
    found: list[LaneConnection] = []
    for one in _sockets(port):
        with one:
            found.append(LaneConnection(_peer_of(one), _silent_ms(one)))
    return found


def hang_up(port: int, peer: str) -> bool:
    """End the connection of a peer, by its `peer_name`; returns whether there was one."""
    is_found = False
    for one in _sockets(port):
        with one:
            if _peer_of(one) == peer:
                is_found = True
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
    return is_found


def _sockets(port: int) -> Iterator[socket.socket]:
    """Copies of the connected sockets of a port; the caller closes each."""
    for path in list(_DESCRIPTORS.iterdir()):
        try:
            number = int(path.name)
            if not stat.S_ISSOCK(os.fstat(number).st_mode):
                continue
            copy = socket.socket(fileno=os.dup(number))
        except (OSError, ValueError):
            continue
        if _is_ours(copy, port):
            yield copy
        else:
            copy.close()


def _is_ours(one: socket.socket, port: int) -> bool:
    try:
        if one.family not in _INTERNET or one.type != socket.SOCK_STREAM:
            return False
        one.getpeername()
        return bool(one.getsockname()[1] == port)
    except OSError:
        return False


def _peer_of(one: socket.socket) -> str:
    try:
        host, port = one.getpeername()[:2]
    except OSError:
        return ""
    return _named(str(host), port)


def _named(host: str, port: object) -> str:
    """Without a zone, and as IPv4 for an IPv4-mapped address."""
    return f"{host.partition('%')[0].removeprefix('::ffff:')} {port}"


def _silent_ms(one: socket.socket) -> int:
    if not sys.platform.startswith("linux"):
        return 0
    try:
        info = one.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, 104)
        return int(struct.unpack_from("=I", info, _LAST_DATA_AT)[0])
    except (OSError, struct.error):
        return 0
