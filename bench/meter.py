"""Counting outcomes and what they cost, in the client's process."""

import time
from statistics import median
from typing import final

from bench.job import Job, Sample, Slice
from bench.processor import own_cpu_s, tree_cpu_s
from shardbus.amqp.outcomes import Accepted, DeliveryState


class BenchError(Exception):
    """The server did something other than what is measured."""


def check_accepted(state: DeliveryState | None) -> None:
    """Raises BenchError for any other outcome: a bench of refusals measures nothing."""
    if not isinstance(state, Accepted):
        raise BenchError(f"an outcome other than accepted: {state!r}")


@final
class Moment:
    """Where all the clocks stood when `done` messages were done."""

    def __init__(self, done: int, server_pid: int) -> None:
        self.done = done
        self.server_s = tree_cpu_s(server_pid)
        self.own_s = own_cpu_s()
        self.wall_s = time.perf_counter()


@final
class Meter:
    """Counts outcomes; the clock runs from the end of the warm-up to the last one."""

    def __init__(self, job: Job, server_pid: int) -> None:
        self.total = job.warmup + job.messages
        self.done = 0
        self.latencies_us: list[float] = []
        self._job = job
        self._server_pid = server_pid
        self._started: Moment | None = None
        self._slice_started: Moment | None = None
        self._slices: list[Slice] = []
        self.sample: Sample | None = None
        if job.warmup == 0:
            self._start()

    def count(self, messages: int) -> None:
        self.done += messages
        if self._started is None and self.done >= self._job.warmup:
            self._start()
            if self.done >= self.total:
                raise BenchError("one step settled everything: too few messages for this window")
        elif self._started is not None:
            if self._job.slices and self._slice_started is not None:
                self._slice(self._slice_started)
            if self.done >= self.total and self.sample is None:
                self._finish(self._started)

    def _start(self) -> None:
        self.latencies_us.clear()
        self._started = self._slice_started = Moment(self.done, self._server_pid)

    def _slice(self, start: Moment) -> None:
        if self.done - start.done < self._job.messages // self._job.slices:
            return
        now = Moment(self.done, self._server_pid)
        self._slices.append(
            Slice(
                messages=now.done - start.done,
                seconds=now.wall_s - start.wall_s,
                server_cpu_s=now.server_s - start.server_s,
                latency_median_us=median(self.latencies_us) if self.latencies_us else 0.0,
            )
        )
        self.latencies_us.clear()
        self._slice_started = now

    def _finish(self, start: Moment) -> None:
        now = Moment(self.done, self._server_pid)
        self.sample = Sample(
            messages=now.done - start.done,
            seconds=now.wall_s - start.wall_s,
            client_cpu_s=now.own_s - start.own_s,
            server_cpu_s=now.server_s - start.server_s,
            latencies_us=self.latencies_us,
            slices=self._slices,
        )
