"""A TCP proxy that breaks connections, or holds back what they carry, when it is told to."""

from __future__ import annotations

import random
import socket
import struct
import threading
from contextlib import suppress
from types import TracebackType
from typing import Final

_PIECE: Final = 65536
# Closed like this, a socket sends a reset: neither end gets a goodbye.
_RESET: Final = struct.pack("ii", 1, 0)


class BreakingProxy:
    """Passes on what clients of `port` say to `target` of this machine, until it breaks."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.pairs: list[tuple[socket.socket, socket.socket]] = []
        self._changing = threading.Lock()
        self._threads: list[threading.Thread] = []
        self.port: int = self._listener.getsockname()[1]
        self.broken = 0
        self._is_over = False
        self._passes = threading.Event()
        self._passes.set()

    def __enter__(self) -> BreakingProxy:
        self._start(self._accept)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # A listener that is only closed still accepts the connection it waits for.
        self._is_over = True
        self.release()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        while self.break_one():
            pass
        for thread in self._threads:
            thread.join(10)

    def break_one(self) -> bool:
        """Break a connection, any of those that are open; False if there is none."""
        with self._changing:
            if not self.pairs:
                return False
            pair = self.pairs.pop(random.randrange(len(self.pairs)))
            self.broken += 1
        _end(pair)
        return True

    def hold(self) -> None:
        """Pass nothing on; connections stay, and others can be made."""
        self._passes.clear()

    def release(self) -> None:
        """Pass on what was held back, and all that follows."""
        self._passes.set()

    def _start(self, work: object, *arguments: object) -> None:
        assert callable(work)
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._is_over:
            # Whatever happens to one connection, the proxy stays for the next.
            try:
                client, _ = self._listener.accept()
            except OSError:
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self._target), timeout=10)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            pair = (client, server)
            for each in pair:
                # Otherwise a piece would wait until the one before it is acknowledged, 40 ms later.
                with suppress(OSError):
                    each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._changing:
                self.pairs.append(pair)
            self._start(self._pass_on, pair, client, server)
            self._start(self._pass_on, pair, server, client)

    def _pass_on(
        self, pair: tuple[socket.socket, socket.socket], here: socket.socket, there: socket.socket
    ) -> None:
        with suppress(OSError):
            while piece := here.recv(_PIECE):
                self._passes.wait()
                there.sendall(piece)
        with self._changing:
            if pair in self.pairs:
                self.pairs.remove(pair)
        _end(pair)


def _end(pair: tuple[socket.socket, socket.socket]) -> None:
    for each in pair:
        with suppress(OSError):
            each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        # Wakes the thread that reads from it.
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
        each.close()
