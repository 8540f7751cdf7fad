"""Rounds over all work, and what each turn took."""

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from bench.job import Endpoint, Job, Kind, Sample
from bench.rounds import run_job
from bench.spark.plan import Plan, Work
from bench.spark.processes import Part, since, used_s
from bench.spark.works import Works

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of some work: how long, and the processor time of each part."""

    rows: int
    seconds: float
    used_s: dict[Part, float]

    @property
    def rate(self) -> float:
        """Rows per second."""
        return self.rows / self.seconds

    def used_us(self, part: Part) -> float:
        """Microseconds of processor time per row."""
        return 1e6 * self.used_s[part] / self.rows

    def total_us(self) -> float:
        """That of all parts together."""
        return sum(self.used_us(part) for part in Part)


Round = dict[Work, Turn]


def run_rounds(
    works: Works, chosen: Sequence[Work], plan: Plan, server_pid: int, say: Say
) -> list[Round]:
    """A turn of everything that is not measured, then the rounds, every other one backwards."""
    for work in chosen:
        _turn(works, work, server_pid)
    rounds: list[Round] = []
    for number in range(plan.rounds):
        turns: Round = {}
        for work in chosen if number % 2 == 0 else chosen[::-1]:
            turns[work] = turn = _turn(works, work, server_pid)
            shown = " ".join(f"{part} {turn.used_us(part):.1f}" for part in Part)
            say(f"round {number + 1}, {work}: {turn.rate:,.0f} rows/s; us per row: {shown}")
        rounds.append(turns)
    return rounds


def _turn(works: Works, work: Work, server_pid: int) -> Turn:
    works.prepare(work)
    settle()
    before, started_s = used_s(server_pid), time.perf_counter()
    works.run(work)
    seconds = time.perf_counter() - started_s
    spent = since(before, used_s(server_pid))
    works.clean()
    return Turn(works.rows_of(work), seconds, spent)


def settle() -> None:
    """Let what was written before reach the disk.

    Spark does not wait for that with its Parquet files, and the next commit of the bus would wait
    for them too.
    """
    os.sync()


def send_latency(endpoint: Endpoint, plan: Plan) -> Sample:
    """Single messages at a steady rate, whatever became of those before."""
    job = Job(
        Kind.SEND,
        plan.sends,
        warmup=plan.sends // 10,
        window=plan.sends,
        per_s=plan.sends_per_s,
        timeout_s=120 + plan.sends // plan.sends_per_s,
    )
    return run_job(endpoint, job)


def beside(work: Callable[[], None], measure: Callable[[], Sample]) -> Sample:
    """What is measured while some work is done again and again, in this thread: in another one
    Spark does not find the data source that it writes to.
    """
    with ThreadPoolExecutor(1) as pool:
        measured = pool.submit(measure)
        while not measured.done():
            work()
        return measured.result()
