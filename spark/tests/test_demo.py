"""The demo with its pipeline, from the first order to the first captured rows and the end."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO, Final

import pyarrow.parquet as parquet
import pytest

from tests.support.ports import free_port

COMMAND: Final = (sys.executable, "-m", "shardbus", "demo", "--brokers", "1")
PORTS: Final = ("--amqp-port", "0", "--http-port", "0", "--tls-port", "0")
END_S: Final = 120
_ROWS: Final = re.compile(r"([1-9][\d,]*) rows captured")
_CAPTURED: Final = re.compile(r"captured +([\d,]+) rows in [\d,]+ files, .*: (/.*)$", re.MULTILINE)


@pytest.mark.long
def test_the_demo_captures_what_it_sends_and_leaves_nothing_running(tmp_path: Path) -> None:
    """P4, P9: a pipeline on embedded Spark, from nothing but one command."""
    data_dir = tmp_path / "data"
    ours = ["--flight-port", str(free_port()), "--data-dir", str(data_dir), "--prepare", "true"]
    with (tmp_path / "log").open("w+") as log:
        process = subprocess.Popen(
            [*COMMAND, *PORTS, *ours],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        try:
            assert process.stdout is not None
            lines = _until_rows(process.stdout)
            process.send_signal(signal.SIGINT)
            told, _ = process.communicate(timeout=END_S)
        finally:
            process.kill()
    said = (tmp_path / "log").read_text()

    assert process.returncode == 0, said
    found = _CAPTURED.search(told)
    assert found is not None, f"{lines}\n{told}\n{said}"
    rows, place = _number(found[1]), Path(found[2])
    written = sorted(place.glob("entity=*/**/*.parquet"))
    names = [str(name) for path in written for name in _column(path, "message_id")]
    # A batch that was not waited for may be there and not have been told of.
    assert len(names) >= rows > 0
    assert len(set(names)) == len(names)
    assert all(name.startswith("event-") for name in names)
    assert _left(data_dir) == []
    assert "europe" in _read(told)


def _until_rows(stream: IO[str]) -> list[str]:
    lines: list[str] = []
    for line in stream:
        lines.append(line)
        if _ROWS.search(line):
            break
    return lines


def _number(text: str) -> int:
    return int(text.replace(",", ""))


def _column(path: Path, name: str) -> list[object]:
    found: list[object] = parquet.ParquetFile(path).read([name]).column(name).to_pylist()
    return found


def _left(data_dir: Path) -> list[str]:
    """The commands of processes that know the directory."""
    found: list[str] = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes()
        except OSError:
            continue
        if os.fsencode(data_dir) in command:
            found.append(command.replace(b"\0", b" ").decode(errors="replace"))
    return found


def _read(told: str) -> str:
    """What the command prints that the summary names."""
    command = next(line for line in told.splitlines() if "read_captured" in line)
    done = subprocess.run(
        shlex.split(command), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True
    )
    return done.stdout
