"""`--real-time`: the server before all ordinary work, and what works beside it after that."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.ports import free_port
from tests.support.server import running_server

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="real-time scheduling of Linux")

ALLOWED = """
import os
os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
"""


def is_allowed() -> bool:
    done = subprocess.run([sys.executable, "-c", ALLOWED], capture_output=True)
    return done.returncode == 0


def family(pid: int) -> list[int]:
    """A process and all that it has started."""
    found = [pid]
    for member in found:
        for children in Path(f"/proc/{member}/task").glob("*/children"):
            found.extend(int(child) for child in children.read_text().split())
    return found


def policies(pid: int) -> set[int]:
    """Of all threads of a process."""
    return {os.sched_getscheduler(int(task.name)) for task in Path(f"/proc/{pid}/task").iterdir()}


def role(pid: int) -> str:
    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return "lane" if b"flight" in words else "broker" if b"broker" in words else "server"


@pytest.mark.parametrize("more", [[], ["--brokers", "2", "--broker-processes"]])
def test_server_and_brokers_come_first_and_the_bulk_lane_does_not(
    tmp_path: Path, more: list[str]
) -> None:
    if not is_allowed():
        done = subprocess.run(
            [sys.executable, "-m", "shardbus", "serve", "--real-time", "--data-dir", str(tmp_path)],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 1
        assert "LimitRTPRIO=1" in done.stderr
        return
    options = ["--real-time", "--flight-port", str(free_port()), *more]
    with running_server(tmp_path / "data", *options) as server:
        found = {role(pid): policies(pid) for pid in family(server.pid)}
    first = {name: {os.SCHED_RR} for name in ["server", *(["broker"] if more else [])]}
    assert found == {**first, "lane": {os.SCHED_OTHER}}
