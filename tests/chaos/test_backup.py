"""A backup while a broker stands still or dies: it fails, and nobody else waits for it (R43)."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.chaos.processes import ProcessServer, process_server
from tests.support.commands import run
from tests.support.queues import create_queue

# Longer than a broker that was paused remembers a backup that nobody asks about any more.
WAIT_S = 180


def until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.1)


def is_sending(server: ProcessServer) -> bool:
    return run(server, "send", "orders", "x")[0] == 0


@pytest.mark.long
@pytest.mark.parametrize("is_killed", [False, True], ids=["paused", "killed"])
def test_a_broker_that_is_out_fails_the_backup_and_holds_nobody_up(
    tmp_path: Path, is_killed: bool
) -> None:
    """R43: and there is nothing that looks like a backup; when it is back there can be one."""
    with process_server(tmp_path / "data", restart_ms=20_000) as server:
        create_queue(server, "orders")
        until(lambda: is_sending(server))
        if is_killed:
            server.kill_broker(1)
        else:
            server.pause_broker(1)

        code, output = run(server, "backup", "without")

        assert code == 1
        assert "the backup failed" in output
        assert "broker-1" in output
        assert not (server.data_dir / "backups" / "without").exists()
        # Messages without a key go to the other brokers.
        until(lambda: is_sending(server))
        if not is_killed:
            server.resume_broker(1)
        until(lambda: run(server, "backup")[0] == 0)
        made = [path.name for path in (server.data_dir / "backups").glob("*/manifest.json")]
        assert made == ["manifest.json"]
