"""Spark drivers as processes of their own, to be killed with all that they have started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, final

from spark.tests.job import Job

from shardbus_spark.java import java_home

TESTS: Final = Path(__file__).parent
SOURCE: Final = TESTS.parent / "src"
START_S: Final = 300.0
# A Java that lives for seconds does not live to see what better compilation is worth.
JAVA_OPTIONS: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_POLL_S: Final = 0.01


@final
class Driver:
    """A program of this directory that runs a job."""

    def __init__(self, program: str, job: Job) -> None:
        self.job = job
        arguments = [sys.executable, str(TESTS / program), job.to_argument()]
        with job.log.open("ab") as log:
            self.process = subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=driver_environment(),
                start_new_session=True,
            )

    @property
    def log(self) -> str:
        return self.job.log.read_text("utf-8", errors="replace")

    def kill(self) -> None:
        """Kill -9 for the program and its Java, whose executors are of the same group.

        Java ends by itself behind a program that has ended.
        """
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def wait_for_batches(self, count: int) -> None:
        """Until Spark has written down so many batches."""
        deadline_s = time.monotonic() + START_S
        while self.job.planned() < count:
            assert self.process.poll() is None, self.log
            assert time.monotonic() < deadline_s, self.log
            threading.Event().wait(_POLL_S)

    def wait_for_the_end(self) -> None:
        assert self.process.wait(START_S) == 0, self.log


@contextmanager
def running_driver(program: str, job: Job) -> Iterator[Driver]:
    """A driver, and at the end kill -9."""
    driver = Driver(program, job)
    try:
        yield driver
    finally:
        driver.kill()


def driver_environment() -> dict[str, str]:
    """Ours, with the connector and its tests where they can be imported."""
    paths = [str(SOURCE), str(TESTS.parents[1]), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "JAVA_HOME": str(java_home()),
        "JAVA_TOOL_OPTIONS": JAVA_OPTIONS,
    }
