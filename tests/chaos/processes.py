"""A server whose brokers are processes of their own, and what can be done to each of them."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.support.server import Server

BROKERS: Final = 4
RUNS_AS: Final = re.compile(r"(broker-\d+) runs as process (\d+)")


class ProcessServer(Server):
    """`shardbus serve --broker-processes`; a broker that ends is started again after a while."""

    def __init__(self, data_dir: Path, *options: str, restart_ms: int) -> None:
        super().__init__(
            data_dir,
            "--broker-processes",
            *("--brokers", str(BROKERS)),
            *("--broker-restart-ms", str(restart_ms)),
            *options,
        )

    def broker_pid(self, index: int) -> int:
        """The process that runs a broker now."""
        lives = [pid for name, pid in RUNS_AS.findall(self.output) if name == f"broker-{index}"]
        return int(lives[-1])

    def kill_broker(self, index: int) -> None:
        os.kill(self.broker_pid(index), signal.SIGKILL)

    def pause_broker(self, index: int) -> None:
        os.kill(self.broker_pid(index), signal.SIGSTOP)

    def resume_broker(self, index: int) -> None:
        os.kill(self.broker_pid(index), signal.SIGCONT)

    def broker_pids(self) -> list[int]:
        return [self.broker_pid(index) for index in range(BROKERS)]


@contextmanager
def process_server(data_dir: Path, *options: str, restart_ms: int = 500) -> Iterator[ProcessServer]:
    """A server that runs at the start; at the end it and all of its brokers are gone."""
    server = ProcessServer(data_dir, *options, restart_ms=restart_ms)
    server.start()
    try:
        yield server
    except BaseException as failure:
        failure.add_note(f"output of the server:\n{server.output[-20_000:]}")
        raise
    finally:
        pids = server.broker_pids()
        server.close()
        for pid in pids:
            wait_until_gone(pid)


def wait_until_gone(pid: int, wait_s: float = 20.0) -> None:
    """A broker ends by itself when its supervisor is gone."""
    deadline = time.monotonic() + wait_s
    while _is_running(pid):
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            raise AssertionError(f"the broker process {pid} outlived its supervisor")
        time.sleep(0.02)


def _is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
