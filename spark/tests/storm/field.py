"""A bus and a driver that is started again whenever it ends, and what strikes them."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Final, final

from spark.tests.bus import Bus
from spark.tests.drivers import Driver
from spark.tests.job import Job
from spark.tests.storm.plan import BROKERS, Plan, Strike, Victim

STEP_S: Final = 1_800.0
POLL_S: Final = 0.05
# Anywhere in a batch, or in the one after it.
MOMENT_S: Final = 3.0
BATCHES_MAX: Final = 3
PARTITIONS_MAX: Final = 4
# A driver may give up while the bus is away; one that never works must not be tried for ever.
LIVES_MAX: Final = 100
_EXECUTOR: Final = b"CoarseGrainedExecutorBackend"


@final
class Field:
    """`kills` counts what was killed, by victim; `lives` are the drivers that there were.

    `done` tells how far the stream is, in batches unless said otherwise, and a stream that has an
    end is at `most` then. A cluster takes three Javas, so only drivers that are to lose an executor
    have one.
    """

    def __init__(
        self,
        bus: Bus,
        program: str,
        job: Job,
        plan: Plan,
        *,
        done: Callable[[], int] | None = None,
        most: int = sys.maxsize,
    ) -> None:
        self._bus = bus
        self.program = program
        self._dice = plan.dice()
        self._cluster = plan.cluster
        self.done = done or job.planned
        self._most = most
        self._coming = deque(plan.strikes(self._dice))
        self._driver: Driver | None = None
        self._started_s = time.monotonic()
        self.job = job
        self.lives = 0
        self.kills = dict.fromkeys(Victim, 0)

    @contextmanager
    def driving(self) -> Iterator[None]:
        try:
            yield
        finally:
            self._kill_driver()

    def wait(self, is_so: Callable[[], bool], what: str) -> None:
        """Until it is; a driver that has ended meanwhile is followed by another."""
        deadline_s = time.monotonic() + STEP_S
        while not is_so():
            self._running()
            if time.monotonic() > deadline_s:
                raise AssertionError(f"{what} takes more than {STEP_S:.0f} s\n{self._log()}")
            threading.Event().wait(POLL_S)

    def strikes(self) -> Iterator[Strike]:
        """What is to be struck next, until all has been."""
        while self._coming:
            yield self._coming[0]

    def strike(self, strike: Strike) -> None:
        """Kill when the driver has done something since the last time."""
        further = min(self.done() + self._dice.randint(1, BATCHES_MAX), self._most)
        self.wait(lambda: self.done() >= further, "a batch")
        threading.Event().wait(self._dice.uniform(0, MOMENT_S))
        victim = strike.victim
        if victim is Victim.EXECUTOR:
            self.wait(lambda: bool(self._executors()), "an executor")
            os.kill(self._dice.choice(self._executors()), signal.SIGKILL)
        elif victim is Victim.BROKER:
            self._bus.kill_broker(self._dice.randrange(BROKERS))
        elif victim is Victim.BUS:
            self._bus.server.kill()
            self._bus.server.start()
        else:
            self._kill_driver()
        self._coming.popleft()
        self.kills[victim] += 1
        self.say(f"killed {victim.value}, {sum(self.kills.values())} in all")

    def say(self, text: str) -> None:
        seconds = time.monotonic() - self._started_s
        sys.stderr.write(f"{seconds:7.1f} s, {self.done()} steps, {self.lives} drivers: {text}\n")
        sys.stderr.flush()

    def _running(self) -> Driver:
        if self._driver is None or self._driver.process.poll() is not None:
            assert self.lives < LIVES_MAX, f"no driver works\n{self._log()}"
            self.lives += 1
            # Another number of tasks puts other rows into each of them.
            partitions = self._dice.randint(1, PARTITIONS_MAX)
            master = self._cluster if self._loses_executors() else self.job.master
            job = replace(self.job, partitions=partitions, master=master)
            self._driver = Driver(self.program, job)
        return self._driver

    def _loses_executors(self) -> bool:
        """Whether the driver that is started now is to lose one before it is killed itself."""
        life = takewhile(lambda strike: strike.victim is not Victim.DRIVER, self._coming)
        return any(strike.victim is Victim.EXECUTOR for strike in life)

    def _kill_driver(self) -> None:
        if self._driver is not None:
            self._driver.kill()
            self._driver = None

    def _executors(self) -> list[int]:
        """The executors of the driver, which are of its session."""
        session = self._running().process.pid
        return sorted(pid for pid in _session_of(session) if _EXECUTOR in _command(pid))

    def _log(self) -> str:
        return self._driver.log[-20_000:] if self._driver is not None else ""


def _session_of(leader: int) -> Iterator[int]:
    for process in Path("/proc").glob("[0-9]*"):
        try:
            fields = (process / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == leader:
            yield int(process.name)


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
