"""The bulk lane and the drivers of pipelines give way to the bus."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

MODULES = ("shardbus.app.server.priority", "shardbus_spark.pipelines.priority")
SESSION = Path("/proc/self/autogroup")
TOLD = (
    "import os, subprocess; print(os.getpriority(os.PRIO_PROCESS, 0), flush=True); "
    f"subprocess.run(['cat', '{SESSION}'])"
)


def priority_of(module: str, *, is_leader: bool) -> tuple[int, str]:
    """The priority of a child of a process that gave way, and that of its session."""
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import subprocess, sys, {module} as module; module.give_way(); "
            "subprocess.run([sys.executable, '-c', sys.argv[1]], check=True)",
            TOLD,
        ],
        capture_output=True,
        text=True,
        check=True,
        start_new_session=is_leader,
    )
    nice, _, session = done.stdout.partition("\n")
    return int(nice), session.strip()


def lowered() -> int:
    return min(os.getpriority(os.PRIO_PROCESS, 0) + 10, 19)


@pytest.mark.parametrize("module", MODULES)
def test_what_a_session_of_its_own_starts_gives_way_with_it(module: str) -> None:
    nice, session = priority_of(module, is_leader=True)

    assert nice == lowered()
    # A kernel that does not group sessions says nothing.
    assert session == "" or session.endswith("nice 10")


@pytest.mark.parametrize("module", MODULES)
def test_in_the_session_of_others_only_the_process_gives_way(module: str) -> None:
    before = SESSION.read_text("ascii").strip() if SESSION.exists() else ""

    nice, session = priority_of(module, is_leader=False)

    assert nice == lowered()
    assert session == before
