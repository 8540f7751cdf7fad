"""Senders and receivers beside a consuming query, while drivers and the bus are killed."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from spark.tests.bus import Bus
from spark.tests.drivers import running_driver
from spark.tests.job import Job

SEND_COUNT: Final = 40
RECEIVE_COUNT: Final = 10
PAUSE_S: Final = 0.1
# What each had to do at least: otherwise the run has shown nothing.
SHARE_MIN: Final = 100


@contextmanager
def in_background(ended: threading.Event, *works: Callable[[], None]) -> Iterator[None]:
    """Each work on a thread of its own until the block ends, which sets `ended`."""
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()


class Crowd:
    """A sender and a receiver that go on whatever happens, and remember what they know.

    A request that nobody answered may have been done: its messages are in `unsure`.
    """

    # Between two requests of each.
    pause_s = PAUSE_S

    def __init__(self, bus: Bus, queue: str) -> None:
        self.bus = bus
        self.queue = queue
        self.sent: set[str] = set()
        self.unsure: set[str] = set()
        self.completed: list[str] = []
        self.changes_left: list[int] = []
        self._ended = threading.Event()

    def running(self) -> AbstractContextManager[None]:
        return in_background(self._ended, self._send, self._receive, self._repartition)

    def message(self, number: int) -> dict[str, str]:
        """The message of this number; its `body` names it."""
        raise NotImplementedError

    def serve(self) -> bool:
        """Receive some messages and complete them; False when there were none."""
        raise NotImplementedError

    def drain(self) -> None:
        """Receive what is left, also what was locked when its receiver was cut off."""
        raise NotImplementedError

    def _send(self) -> None:
        number = 0
        while not self._ended.wait(self.pause_s):
            some = [self.message(number + step) for step in range(SEND_COUNT)]
            bodies = [message["body"] for message in some]
            number += SEND_COUNT
            try:
                self.bus.send(self.queue, [dict(message) for message in some])
                self.sent.update(bodies)
            except OSError:
                self.unsure.update(bodies)

    def _receive(self) -> None:
        while not self._ended.wait(self.pause_s):
            self.serve()

    def _repartition(self) -> None:
        """Give the queue other fragments, each time as soon as the former ones are empty."""
        while self.changes_left and not self._ended.wait(self.pause_s):
            with suppress(OSError):
                # Until it is known to be done: with the same map again nothing changes.
                self.bus.post(f"{self.queue}/repartition", {"fragments": self.changes_left[0]})
                self.changes_left.pop(0)

    def assert_each_once(self, written: Sequence[str]) -> None:
        """What Spark has written and what receivers have completed is what was sent."""
        assert len(written) == len(set(written)), "written twice"
        assert len(self.completed) == len(set(self.completed)), "completed twice"
        assert not set(written) & set(self.completed), "written and completed"
        found = set(written) | set(self.completed)
        assert self.sent - found <= self.unsure, "sent and nowhere"
        assert found <= self.sent | self.unsure, "nobody sent it"
        assert min(len(written), len(self.completed)) > SHARE_MIN, "both had something to do"


def consume_under_kills(
    crowd: Crowd,
    directory: Path,
    kind: str,
    kills: int,
    kill_of_bus: int,
    counts: Sequence[int] = (),
) -> Job:
    """Kill drivers of the crowd's queue at random moments, and once the bus, while the queue gets
    these numbers of fragments one after another; then everything is consumed. The job says where
    the rows are.
    """
    dice, bus = random.Random(7), crowd.bus
    crowd.changes_left = list(counts)
    job = Job(bus.url, crowd.queue, str(directory))
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
        while crowd.changes_left:
            with running_driver(kind, replace(job, rows_max=50_000)) as driver:
                driver.wait_for_batches(job.planned() + 3)
    with running_driver(kind, replace(job, is_once=True, rows_max=5000)) as driver:
        driver.wait_for_the_end()
    crowd.drain()
    return job
