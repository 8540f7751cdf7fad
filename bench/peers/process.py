"""Starting, awaiting and stopping a server process."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, final

START_TIMEOUT_S: Final = 60
STOP_TIMEOUT_S: Final = 30
_POLL_S: Final = 0.05
_TAIL_BYTES: Final = 2000


class ServerError(Exception):
    """A server that did not start or did not do as it was told."""


@final
class ServerProcess:
    """A child process whose output goes to a file beside its data."""

    def __init__(
        self, name: str, command: Sequence[str], directory: Path, environment: Mapping[str, str]
    ) -> None:
        self._name = name
        self._output = directory / f"{name}.output"
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **environment},
                # Linux divides processors between sessions, and a server has its own.
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def await_port(self, host: str, port: int) -> None:
        """Return when somebody listens; ServerError when the process ends or takes too long."""
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline_s:
            if self._process.poll() is not None:
                raise ServerError(f"{self._name} ended at its start: {self._tail()}")
            try:
                socket.create_connection((host, port), timeout=1).close()
            except OSError:
                time.sleep(_POLL_S)
            else:
                return
        raise ServerError(f"{self._name} does not listen after {START_TIMEOUT_S} s: {self._tail()}")

    def stop(self) -> None:
        """Ask it to end, and insist when it does not."""
        if self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(STOP_TIMEOUT_S)

    def _tail(self) -> str:
        text = self._output.read_bytes()[-_TAIL_BYTES:].decode("utf-8", errors="replace")
        return text.strip() or "it printed nothing"


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody listens on now, all different."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]
    finally:
        for each in sockets:
            each.close()
