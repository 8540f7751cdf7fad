"""Ports for servers that tests start, and start again where they were.

A port that the system chooses is of the range from which connections get theirs too: while a server
is down, any connection of another test may take it. So these ports are below that range, and each
worker of `make test` has ports of its own.
"""

from __future__ import annotations

import os
import random
import socket
from typing import Final

_FIRST: Final = 10_000
_OF_A_WORKER: Final = 1_400
_WORKERS_MAX: Final = 16


class _Ports:
    """The ports of this process, each given once until all have been given."""

    def __init__(self) -> None:
        worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw15").removeprefix("gw"))
        self._first = _FIRST + worker % _WORKERS_MAX * _OF_A_WORKER
        # Another run of the tests at the same time is likely to be elsewhere in its range.
        self._next = random.randrange(_OF_A_WORKER)

    def next(self) -> int:
        for _ in range(_OF_A_WORKER):
            port = self._first + self._next
            self._next = (self._next + 1) % _OF_A_WORKER
            if _is_free(port):
                return port
        raise AssertionError(f"all ports from {self._first} on are in use")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As servers do: a port whose connections have just been closed is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


_ports: Final = _Ports()


def free_port() -> int:
    """A port of 127.0.0.1 on which nobody listens, and which no connection takes by itself."""
    return _ports.next()
