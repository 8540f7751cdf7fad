"""`shardbus triage` that is killed, and a bus that is, while letters are grouped, repaired and
redriven: no letter is lost, and none comes twice (P7).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest
from spark.tests.bus import Bus, running_bus
from spark.tests.drivers import driver_environment

from shardbus_spark.client import connect

ENTITIES: Final = '[[queue]]\nname = "orders"\npartitioning = true\nsize-gb = 1\n'
LETTERS: Final = 1_200
BAD: Final = 1_000
CHUNK: Final = 100
RATE: Final = 30
WAIT_S: Final = 600.0
POLL_S: Final = 0.05
Document = dict[str, object]


def fill(bus: Bus) -> None:
    """Dead letters with two causes."""
    for first in range(0, LETTERS, CHUNK):
        numbers = range(first, first + CHUNK)
        bodies = [f'{{"order": {n}, "customer": {"null" if n < BAD else 7}}}' for n in numbers]
        bus.send(
            "orders",
            [{"message_id": f"{n}", "body": body} for n, body in zip(numbers, bodies, strict=True)],
        )
    left = LETTERS
    while left:
        tokens = [each["lock_token"] for each in bus.receive("orders", min(CHUNK, left))]
        left -= bus.settle("orders", "dead_letter", tokens, reason="Invalid")


def command(bus: Bus, *arguments: str) -> list[str]:
    endpoint = f"http://127.0.0.1:{bus.server.http_port}"
    return [
        sys.executable,
        "-m",
        "shardbus",
        "triage",
        "orders",
        *arguments,
        "--endpoint",
        endpoint,
    ]


def started(bus: Bus, *arguments: str) -> subprocess.Popen[bytes]:
    """The command, which leads the group of whatever it starts."""
    return subprocess.Popen(
        command(bus, *arguments),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=driver_environment(),
        start_new_session=True,
    )


def done(bus: Bus, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(bus, *arguments),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=driver_environment(),
        timeout=WAIT_S,
    )


def until(is_so: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < deadline_s, what
        time.sleep(POLL_S)


def is_over(process: subprocess.Popen[bytes]) -> bool:
    """Whether the command, and all that it has started, have ended."""
    process.poll()
    return not any(_is_of(str(process.pid), stat) for stat in _stats())


def _stats() -> list[str]:
    """What the system says of each process."""
    found = []
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            found.append(file.read_text())
    return found


def _is_of(group: str, stat: str) -> bool:
    """Whether a process of the group runs; one that has ended may wait to be asked for its code."""
    state, _, of, *_ = stat.rpartition(")")[2].split()
    return of == group and state != "Z"


def found(bus: Bus, line: str = "") -> dict[str, str]:
    """The messages of a line, and their property `repaired`; each id once."""
    client = connect(bus.url)
    rows = client.read(f"orders{line}", columns=["message_id", "properties"]).to_pylist()
    client.close()
    by_id = {str(row["message_id"]): dict(row["properties"]).get("repaired", "") for row in rows}
    assert len(by_id) == len(rows), "a letter is there twice"
    return by_id


def count(bus: Bus) -> int:
    """How many letters were sent again."""
    client = connect(bus.url)
    rows = client.read("orders", columns=["sequence_number"]).num_rows
    client.close()
    return rows


def grouped(bus: Bus, out: Path) -> str:
    """The largest group, after kills while letters were grouped."""
    letters, report = out / "letters", out / "report.json"
    killed = started(bus, "--out", str(out))
    until(letters.exists, "Spark has not begun to write")
    killed.kill()
    until(lambda: is_over(killed), "Spark outlives its command")
    assert not report.exists()
    refused = done(bus, "--from", str(out))
    assert refused.returncode == 2 and "report.json" in refused.stderr, refused.stderr

    struck = started(bus, "--out", str(out))
    until(lambda: (letters / "_temporary").exists() or struck.poll() is not None, "as before")
    bus.server.kill()
    bus.server.start()
    until(lambda: is_over(struck), "the command neither ends nor fails")
    again = done(bus, "--out", str(out), "--json")
    assert again.returncode == 0, again.stderr
    told = json.loads(again.stdout)
    assert (told["letters"], told["group_count"]) == (LETTERS, 2)
    assert found(bus).keys() == set()
    return str(told["groups"][0]["id"])


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_kills_of_the_command_and_of_the_bus_lose_no_letter_and_double_none(
    tmp_path: Path,
) -> None:
    """P7: while it groups, and while it repairs and redrives; the same command continues."""
    with running_bus(tmp_path, ENTITIES) as bus:
        fill(bus)
        out = tmp_path / "triaged"
        group = grouped(bus, out)
        order = (
            "--from", str(out), "--group", group, "--apply", "--repair", "SET repaired = 'yes'",
            "--body-set", "$.customer=0",
        )  # fmt: skip

        first = started(bus, *order, "--rate", str(RATE))
        until(lambda: count(bus) > 0, "no letter is redriven")
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
        second = started(bus, *order, "--rate", str(RATE))
        until(lambda: count(bus) > BAD // 4, "the second command does not continue")
        bus.server.kill()
        bus.server.start()
        assert second.wait(WAIT_S) != 0, "nobody answered it"
        sent = count(bus)
        assert 0 < sent < BAD, "killed in the middle"
        last = done(bus, *order)
        assert last.returncode == 0, last.stderr

        assert found(bus) == {f"{n}": "yes" for n in range(BAD)}
        assert found(bus, "/$DeadLetterQueue") == {f"{n}": "" for n in range(BAD, LETTERS)}
        bodies = {message["body"] for message in bus.receive("orders", 5)}
        assert all('"customer":0' in body.replace(" ", "") for body in bodies), bodies
