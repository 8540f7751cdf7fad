"""The demo as a real process, without Spark: what it makes, what it says, how it ends."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from shardbus.app.cli.access import ClientAccess
from shardbus.app.cli.entities.atom import QUEUE, TOPIC
from shardbus.app.cli.sas import Credential
from shardbus.app.server.data_directory import data_directory
from shardbus.demo.scene import ARCHIVE, EVENTS, LARGE, ORDERS, RULES
from shardbus.demo.terminal import ENTER, LEAVE

COMMAND: Final = (sys.executable, "-m", "shardbus", "demo", "--brokers", "1")
PORTS: Final = ("--amqp-port", "0", "--http-port", "0", "--tls-port", "0", "--flight-port", "0")
END_S: Final = 60
_URL: Final = re.compile(r"http://localhost:\d+")
_SUMMARY: Final = re.compile(r"sent +([\d,]+) orders to demo-orders.*completed", re.DOTALL)


@contextmanager
def _demo(data_dir: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """A demo whose output nobody watches; it is gone at the end."""
    with subprocess.Popen(
        [*COMMAND, *PORTS, "--data-dir", str(data_dir), *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _line_with(stream: IO[str] | None, text: str) -> str:
    """The next line that has a text in it."""
    assert stream is not None
    found = next((line for line in stream if text in line), None)
    assert found is not None, f"nobody said {text!r}"
    return found


def _access(ready: str) -> ClientAccess:
    found = _URL.search(ready)
    assert found is not None, ready
    return ClientAccess(found[0], Credential())


def _is_let_go(data_dir: Path) -> bool:
    """Whether no bus serves the directory any more, which the last one may be about to leave."""
    with data_directory(data_dir, wait_s=END_S):
        return True


def test_the_demo_makes_its_entities_moves_orders_and_sums_up(tmp_path: Path) -> None:
    """P9: one command shows a partitioned queue, and a topic with rules, at work."""
    with _demo(tmp_path / "data", "--orders-per-s", "100") as demo:
        assert demo.stdout is not None
        ready = demo.stdout.readline()
        line = _line_with(demo.stdout, "pipeline unavailable")
        management = _access(ready).management()
        queue, topic = management.entity(QUEUE, ORDERS), management.entity(TOPIC, EVENTS)
        rules = {path: management.rules(f"{path}/Rules") for path in (LARGE, ARCHIVE)}
        demo.send_signal(signal.SIGINT)
        told, log = demo.communicate(timeout=END_S)

    assert ready.startswith("ready Endpoint=sb://")
    assert "the bulk lane is off" in line
    assert (queue.fragment_count, topic.fragment_count) == (16, 16)
    assert {path: rule.expression for path, (rule,) in rules.items()} == RULES
    assert demo.returncode == 0
    assert _SUMMARY.search(told) is not None
    assert "\x1b" not in ready + line + told
    assert "Traceback" not in log and "does not stop" not in log


def test_a_terminal_gets_a_screen_and_has_it_back_at_the_end(tmp_path: Path) -> None:
    """P9: Ctrl-C ends everything, and the summary stays."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, *PORTS, "--data-dir", str(tmp_path / "data")],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm", "NO_COLOR": "1", "COLUMNS": "80", "LINES": "24"},
        start_new_session=True,
    )
    os.close(theirs)
    try:
        with os.fdopen(ours, "rb", buffering=0) as screen:
            shown = _read_until(screen, "demo-archive  Spark pipeline unavailable")
            process.send_signal(signal.SIGINT)
            shown += _read_until(screen, "")
        assert process.wait(END_S) == 0
    finally:
        process.kill()

    before, _, rest = shown.partition(ENTER)
    drawn, _, after = rest.partition(LEAVE)
    assert before.startswith("ready ") and before.count("\n") == 1
    assert "demo-orders  queue of 16 fragments" in drawn
    assert re.search(r"\x1b\[[\d;]*m", shown) is None
    assert after.startswith("The demo ran for") and "\x1b" not in after


def _read_until(screen: IO[bytes], text: str) -> str:
    """What comes until a text has come; an empty one never does, and the terminal ends instead."""
    read = b""
    while not text or text.encode() not in read:
        try:
            some = screen.read(65_536)
        except OSError:
            # So a terminal tells that its other end is closed.
            break
        if not some:
            break
        read += some
    assert not text or text.encode() in read, read.decode(errors="replace")
    return read.decode()


def test_a_demo_that_is_killed_leaves_no_bus_behind(tmp_path: Path) -> None:
    with _demo(tmp_path / "data") as demo:
        assert demo.stdout is not None
        assert demo.stdout.readline().startswith("ready ")

        demo.kill()

        assert _is_let_go(tmp_path / "data")


def test_a_demo_whose_reader_has_gone_ends_by_itself(tmp_path: Path) -> None:
    with _demo(tmp_path / "data") as demo:
        assert demo.stdout is not None and demo.stderr is not None
        demo.stdout.readline()
        demo.stdout.close()
        log = demo.stderr.read()
        code = demo.wait(END_S)

    assert "Traceback" not in log
    assert code == 0


def test_what_is_there_is_left_as_it_is_and_the_bus_serves_without_a_demo(tmp_path: Path) -> None:
    file = tmp_path / "entities.toml"
    file.write_text('[[queue]]\nname = "demo-events"\ndefault-ttl = "7d"\n', encoding="utf-8")

    with _demo(tmp_path / "data", "--config", str(file)) as demo:
        assert demo.stdout is not None
        ready = demo.stdout.readline()
        said = _line_with(demo.stderr, "the bus only serves")
        found = _access(ready).management().entity(QUEUE, EVENTS)
        demo.send_signal(signal.SIGTERM)
        told, _ = demo.communicate(timeout=END_S)

    assert "the demo needs a topic demo-events, but there is a queue" in said
    assert found.elements["DefaultMessageTimeToLive"] == "P7D"
    assert (demo.returncode, told) == (0, "")


def test_a_bus_that_cannot_start_says_why_and_ends_the_demo(tmp_path: Path) -> None:
    with data_directory(tmp_path / "data"), _demo(tmp_path / "data") as demo:
        told, log = demo.communicate(timeout=END_S)

    assert told == ""
    assert "is served by another process" in log
    assert demo.returncode == 1


def test_without_the_demo_the_bus_only_serves(tmp_path: Path) -> None:
    with _demo(tmp_path / "data", "--no-demo") as demo:
        assert demo.stdout is not None
        ready = demo.stdout.readline()
        found = _access(ready).api().get("queues")
        demo.send_signal(signal.SIGTERM)
        told, _ = demo.communicate(timeout=END_S)

    assert found["count"] == 0
    assert (demo.returncode, told) == (0, "")
