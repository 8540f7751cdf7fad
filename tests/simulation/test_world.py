"""The virtual loop itself: time passes without waiting, and a deadlock is told."""

import asyncio
import logging
import time

import pytest

from shardbus.stores.base.store import StoreError
from tests.simulation.sending import Violation
from tests.simulation.world import (
    EPOCH_MS,
    Crash,
    Deadlock,
    VirtualClock,
    VirtualLoop,
    VirtualWorker,
)


def test_a_year_passes_in_an_instant() -> None:
    loop = VirtualLoop()
    clock = VirtualClock(loop)
    started = time.monotonic()

    async def main() -> int:
        await asyncio.sleep(365 * 24 * 3600)
        return clock.now_ms()

    assert loop.finish(loop.create_task(main())) == EPOCH_MS + 365 * 24 * 3600 * 1000
    assert time.monotonic() - started < 10


def test_timers_ring_in_the_order_of_their_moments() -> None:
    loop = VirtualLoop()
    rung: list[str] = []

    async def main() -> None:
        loop.call_later(2, rung.append, "second")
        loop.call_later(1, rung.append, "first")
        await asyncio.sleep(3)

    loop.finish(loop.create_task(main()))

    assert rung == ["first", "second"]


def test_waiting_for_what_never_comes_is_a_deadlock() -> None:
    loop = VirtualLoop()

    async def main() -> None:
        await loop.create_future()

    with pytest.raises(Deadlock, match=r"at 0\.000 s"):
        loop.finish(loop.create_task(main()))


def test_a_failure_in_a_callback_ends_the_run() -> None:
    loop = VirtualLoop()

    def fail() -> None:
        raise ValueError("planted")

    async def main() -> None:
        loop.call_later(1, fail)
        await asyncio.sleep(1_000)

    with pytest.raises(ValueError, match="planted"):
        loop.finish(loop.create_task(main()))


def test_a_worker_runs_jobs_in_order_and_one_at_a_time() -> None:
    loop = VirtualLoop()
    latencies = iter([5.0, 5.0, 1.0, 1.0])
    worker = VirtualWorker(loop, lambda: next(latencies), lambda: None)
    seen: list[tuple[float, str]] = []

    def note(name: str | StoreError) -> None:
        assert isinstance(name, str)
        seen.append((loop.time(), name))

    async def main() -> None:
        worker.submit(lambda: "slow", note)
        worker.submit(lambda: "fast", note)
        await asyncio.sleep(100)

    loop.finish(loop.create_task(main()))

    assert seen == [(10.0, "slow"), (12.0, "fast")]


def test_a_worker_hands_on_what_the_store_could_not_do() -> None:
    loop = VirtualLoop()
    worker = VirtualWorker(loop, lambda: 0.0, lambda: None)
    answers: list[int | StoreError] = []

    def job() -> int:
        raise StoreError("full")

    async def main() -> None:
        worker.submit(job, answers.append)
        await asyncio.sleep(1)

    loop.finish(loop.create_task(main()))

    assert [str(answer) for answer in answers] == ["full"]


def test_a_crash_answers_nobody() -> None:
    loop = VirtualLoop()
    crashes: list[float] = []
    worker = VirtualWorker(loop, lambda: 1.0, lambda: crash())
    answers: list[StoreError | None] = []

    def crash() -> None:
        crashes.append(loop.time())
        worker.die()

    def die() -> None:
        raise Crash

    async def main() -> None:
        worker.submit(die, answers.append)
        worker.submit(lambda: None, answers.append)
        await asyncio.sleep(100)

    loop.finish(loop.create_task(main()))

    assert (crashes, answers) == ([1.0], [])


def test_what_is_caught_and_logged_ends_the_run_although_nothing_is_printed() -> None:
    """A checker that fails inside an answer is caught by those who give answers."""
    loop = VirtualLoop()

    def give() -> None:
        try:
            raise Violation("broken")
        except Violation:
            log = logging.getLogger("shardbus.broker.fragment.answers")
            log.exception("an answer cannot be given")

    async def history() -> None:
        loop.call_later(1, give)
        await asyncio.sleep(2)

    with pytest.raises(Violation, match="broken"):
        loop.finish(loop.create_task(history()))
