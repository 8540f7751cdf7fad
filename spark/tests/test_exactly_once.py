"""Kill -9 at random moments: what Spark has and what receivers completed is what was sent."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final, final

import pytest
from spark.tests.bus import Bus, running_bus
from spark.tests.drivers import running_driver
from spark.tests.job import Job
from spark.tests.sink_log import written_bodies

QUEUE: Final = "orders"
ENTITIES: Final = """
[[queue]]
name = "orders"
partitioning = true
lock-duration = "5s"
max-delivery-count = 1000
"""
SEND_COUNT: Final = 40
RECEIVE_COUNT: Final = 10
PAUSE_S: Final = 0.1
DRAIN_S: Final = 60.0
SPARK: Final = "driver.py"
SMALL: Final = "small_driver.py"


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
        while empty < 30 and time.monotonic() < deadline_s:
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


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("kind", "kills", "kill_of_bus"),
    [(SMALL, 8, 4), (SPARK, 2, 1)],
    ids=["small", "spark"],
)
def test_drivers_and_a_bus_that_are_killed_lose_nothing_and_double_nothing(
    tmp_path: Path, kind: str, kills: int, kill_of_bus: int
) -> None:
    """P2: senders go on and receivers compete meanwhile."""
    dice = random.Random(7)
    with running_bus(tmp_path, ENTITIES) as bus:
        crowd, job = Crowd(bus), Job(bus.url, QUEUE, str(tmp_path))
        with crowd.running():
            for kill in range(kills):
                with running_driver(kind, job) as driver:
                    driver.wait_for_batches(job.planned() + dice.randint(1, 4))
                    if kill == kill_of_bus:
                        bus.server.kill()
                        bus.server.start()
                        driver.wait_for_batches(job.planned() + 2)
                    # Anywhere in a batch.
                    threading.Event().wait(dice.random() * 0.3)
        with running_driver(kind, replace(job, is_once=True, rows_max=5000)) as driver:
            driver.wait_for_the_end()
        crowd.drain()

        written = [body.decode() for body in written_bodies(job.rows)]
        assert bus.receive(QUEUE, 1) == []

    assert len(written) == len(set(written)), "written twice"
    assert len(crowd.completed) == len(set(crowd.completed)), "completed twice"
    assert not set(written) & set(crowd.completed), "written and completed"
    found = set(written) | set(crowd.completed)
    assert crowd.sent - found <= crowd.unsure, "sent and nowhere"
    assert found <= crowd.sent | crowd.unsure, "nobody sent it"
    assert min(len(written), len(crowd.completed)) > 100, "both had something to do"
