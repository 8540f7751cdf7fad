"""Kill -9 at random moments: what Spark has and what receivers completed is what was sent."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, final

import pyarrow.parquet as parquet
import pytest
from spark.tests.bus import Bus, running_bus

from shardbus_spark.java import java_home

QUEUE: Final = "orders"
ENTITIES: Final = """
[[queue]]
name = "orders"
partitioning = true
lock-duration = "5s"
max-delivery-count = 1000
"""
KILLS: Final = 5
KILL_OF_BUS: Final = 2
SEND_COUNT: Final = 40
RECEIVE_COUNT: Final = 10
PAUSE_S: Final = 0.1
START_S: Final = 120.0
DRAIN_S: Final = 60.0
DRIVER: Final = Path(__file__).with_name("driver.py")
SOURCE: Final = Path(__file__).parents[1] / "src"


@final
class Crowd:
    """Senders and receivers that go on whatever happens, and remember what they know.

    A request that nobody answered may have been done: what it was about is in `unsure`.
    """

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._ended = threading.Event()
        self.sent: set[str] = set()
        self.unsure: set[str] = set()
        self.completed: list[str] = []

    @contextmanager
    def running(self) -> Iterator[None]:
        threads = [threading.Thread(target=work) for work in (self._send, self._receive)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._ended.set()
            for thread in threads:
                thread.join()

    def drain(self) -> None:
        """Receive what is left, also what was locked when its receiver was cut off."""
        deadline_s = time.monotonic() + DRAIN_S
        empty = 0
        # Longer than a lock without a message, and there is none.
        while empty < 40 and time.monotonic() < deadline_s:
            found = self._bus.receive(QUEUE, 100, "receive_and_delete")
            self.completed += [message["body"] for message in found]
            empty = 0 if found else empty + 1

    def _send(self) -> None:
        number = 0
        while not self._ended.wait(PAUSE_S):
            some = [f"{number + step:06}" for step in range(SEND_COUNT)]
            number += SEND_COUNT
            try:
                self._bus.send(QUEUE, [{"body": body} for body in some])
                self.sent.update(some)
            except OSError:
                self.unsure.update(some)

    def _receive(self) -> None:
        while not self._ended.wait(PAUSE_S):
            messages: list[dict[str, str]] = []
            try:
                messages = self._bus.receive(QUEUE, RECEIVE_COUNT)
                tokens = [message["lock_token"] for message in messages]
                if tokens and self._bus.settle(QUEUE, "complete", tokens) == len(tokens):
                    self.completed += [message["body"] for message in messages]
                    continue
            except OSError:
                pass
            self.unsure.update(message["body"] for message in messages)


@contextmanager
def _driver(bus: Bus, place: Path, how: str) -> Iterator[subprocess.Popen[bytes]]:
    """A driver, and at the end kill -9 for it and for its Java."""
    paths = [str(SOURCE), os.environ.get("PYTHONPATH", "")]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "JAVA_HOME": str(java_home()),
    }
    with (place / "driver.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, str(DRIVER), bus.url, QUEUE, str(place), how],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        # The group has the process of Python until it is waited for, so it cannot be another's.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _planned(place: Path) -> int:
    """How many batches Spark has written down."""
    return len([file for file in (place / "checkpoint" / "offsets").glob("[0-9]*")])


def _wait_for_batches(process: subprocess.Popen[bytes], place: Path, count: int) -> None:
    deadline_s = time.monotonic() + START_S
    while _planned(place) < count:
        log = (place / "driver.log").read_text("utf-8", errors="replace")
        assert process.poll() is None, log
        assert time.monotonic() < deadline_s, log
        time.sleep(0.01)


def _written(place: Path) -> list[str]:
    """The bodies in the files that the sink has committed."""
    bodies: list[str] = []
    for name in _committed_files(place):
        column: list[object] = list(parquet.read_table(name).column("body").to_pylist())
        bodies += [body.decode() for body in column if isinstance(body, bytes)]
    return bodies


def _committed_files(place: Path) -> set[Path]:
    """As Spark's file sink says; what a killed batch left lying about is not among them."""
    files: set[Path] = set()
    for entry in (place / "rows" / "_spark_metadata").glob("[0-9]*"):
        for line in entry.read_text("utf-8").splitlines()[1:]:
            files.add(Path(json.loads(line)["path"].removeprefix("file:" + "//")))
    return files


@pytest.mark.timeout(900)
def test_drivers_and_a_bus_that_are_killed_lose_nothing_and_double_nothing(tmp_path: Path) -> None:
    """P2, P4: senders go on and receivers compete meanwhile."""
    dice = random.Random(7)
    with running_bus(tmp_path, ENTITIES) as bus:
        crowd = Crowd(bus)
        with crowd.running():
            for kill in range(KILLS):
                with _driver(bus, tmp_path, "on") as process:
                    _wait_for_batches(process, tmp_path, _planned(tmp_path) + dice.randint(1, 6))
                    if kill == KILL_OF_BUS:
                        bus.server.kill()
                        bus.server.start()
                        _wait_for_batches(process, tmp_path, _planned(tmp_path) + 2)
                    threading.Event().wait(dice.random() * 0.3)
        with _driver(bus, tmp_path, "now") as process:
            assert process.wait(START_S) == 0, (tmp_path / "driver.log").read_text("utf-8")
        crowd.drain()

        written = _written(tmp_path)
        assert bus.receive(QUEUE, 1) == []

    assert len(written) == len(set(written)), "in Parquet twice"
    assert len(crowd.completed) == len(set(crowd.completed)), "completed twice"
    assert not set(written) & set(crowd.completed), "in Parquet and completed"
    found = set(written) | set(crowd.completed)
    assert crowd.sent - found <= crowd.unsure, "sent and nowhere"
    assert found <= crowd.sent | crowd.unsure, "nobody sent it"
    assert min(len(written), len(crowd.completed)) > 100, "both had something to do"
