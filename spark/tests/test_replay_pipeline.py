"""Captured messages that the bus replays, with a driver and a bus that are killed (P5, P9)."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import pytest
from spark.tests.bus import Bus, running_bus

from shardbus.app.cli.access import ClientAccess
from shardbus.app.cli.sas import Credential
from shardbus_spark.client import connect

ENTITIES: Final = """
spark-master = "local[1,4]"

[[queue]]
name = "orders"
partitioning = true

[[queue]]
name = "again"
partitioning = true
"""
COUNT: Final = 400
COMMAND_S: Final = 900.0
PAUSE_S: Final = 0.2
_DRIVER: Final = re.compile(r"the driver of pipeline again runs as process (\d+)")


def shardbus(bus: Bus, *arguments: str) -> str:
    """What a command prints."""
    endpoint = f"http://127.0.0.1:{bus.server.http_port}"
    command = [sys.executable, "-m", "shardbus", "pipeline", *arguments, "--endpoint", endpoint]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=COMMAND_S
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def wait_for_rows(bus: Bus) -> None:
    """Until some were sent; a command for each look would take longer than the rest of them."""
    api = ClientAccess(f"http://127.0.0.1:{bus.server.http_port}", Credential(), None).api()
    deadline_s = time.monotonic() + COMMAND_S
    while not api.get("pipelines/again/progress")["rows_total"]:
        assert time.monotonic() < deadline_s, shardbus(bus, "logs", "again")
        time.sleep(PAUSE_S)


@pytest.mark.release
@pytest.mark.timeout(1800)
def test_what_was_captured_is_replayed_once_by_a_driver_and_a_bus_that_are_killed(
    tmp_path: Path,
) -> None:
    """P5, P9: with the commands of the command line; the second driver has three tasks."""
    with running_bus(tmp_path, ENTITIES) as bus:
        bus.send("orders", [{"message_id": f"{n}", "subject": f"{n % 2}"} for n in range(COUNT)])
        shardbus(bus, "create", "archive", "--entity", "orders", "--once", "--start")
        assert "archive finished" in shardbus(bus, "status", "archive", "--watch")

        shardbus(
            bus, "create", "again", "--kind", "replay", "--from-pipeline", "archive",
            "--entity", "again", "--where", "subject = '1'", "--rate", "25", "--start",
        )  # fmt: skip
        wait_for_rows(bus)
        os.kill(int(_DRIVER.findall(bus.server.output)[-1]), signal.SIGKILL)
        bus.server.kill()
        settings = tmp_path / "entities.toml"
        settings.write_text(settings.read_text("utf-8").replace("local[1,4]", "local[3,4]"))
        bus.server.start()
        # The second driver starts its Java now.
        assert 0 < len(_ids(bus)) < COUNT // 2, "killed in the middle"

        watched = shardbus(bus, "status", "again", "--watch")
        assert f"{COUNT // 2} of {COUNT // 2} rows" in watched.splitlines()[-1].split("\r")[-1]
        assert _ids(bus) == [n for n in range(COUNT) if n % 2]
        shardbus(bus, "delete", "again", "--yes")
    assert not list((tmp_path / "data" / "captured" / "_replays").iterdir())


def _ids(bus: Bus) -> list[int]:
    client = connect(bus.url)
    names = client.read("again", columns=["message_id"])["message_id"].to_pylist()
    client.close()
    return sorted(int(str(name)) for name in names)
