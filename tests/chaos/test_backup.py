"""A backup while a broker stands still or dies: it fails, and nobody else waits for it (R43)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.processes import ProcessServer, process_server
from tests.support.commands import run
from tests.support.queues import create_queue
from tests.support.waiting import wait_until

# Longer than a broker that was paused remembers a backup that nobody asks about any more.
WAIT_S = 180


def is_sending(server: ProcessServer) -> bool:
    return run(server, "send", "orders", "x")[0] == 0


@pytest.mark.release
@pytest.mark.parametrize("is_killed", [False, True], ids=["paused", "killed"])
def test_a_broker_that_is_out_fails_the_backup_and_holds_nobody_up(
    tmp_path: Path, is_killed: bool
) -> None:
    """R43: and there is nothing that looks like a backup; when it is back there can be one."""
    # On a busy machine it is paused for long: it must not be replaced meanwhile.
    patient = ("--broker-silent-ms", str(1000 * WAIT_S))
    with process_server(tmp_path / "data", *patient, restart_ms=20_000) as server:
        create_queue(server, "orders")
        wait_until(lambda: is_sending(server), wait_s=WAIT_S)
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
        wait_until(lambda: is_sending(server), wait_s=WAIT_S)
        if not is_killed:
            server.resume_broker(1)
        wait_until(lambda: run(server, "backup")[0] == 0, wait_s=WAIT_S)
        made = [path.name for path in (server.data_dir / "backups").glob("*/manifest.json")]
        assert made == ["manifest.json"]
