"""A run of tests that is cut off leaves no server behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from tests.support.waiting import wait_until
from tests.tidy.source import ROOT

RUN: Final = """
import sys, time
from pathlib import Path
from tests.support.server import Server

server = Server(Path(sys.argv[1]), "--brokers", "1")
server.start()
print(server.pid, server.amqp_port, flush=True)
time.sleep(3600)
"""
ENDS_S: Final = 30.0


def test_a_server_ends_when_the_run_that_started_it_is_killed(tmp_path: Path) -> None:
    """A time limit kills the run, and nothing of it can clean up."""
    run = subprocess.Popen(
        [sys.executable, "-c", RUN, str(tmp_path / "data")],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert run.stdout is not None
        pid, port = (int(word) for word in run.stdout.readline().split())
        was_served = _is_served(port)
    finally:
        run.kill()
        run.communicate()

    try:
        wait_until(lambda: not _is_served(port), "the server still serves", ENDS_S)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
    assert was_served


def _is_served(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
        return True
    return False
