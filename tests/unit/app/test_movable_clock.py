"""The clock of test servers: it stands, runs and moves, and timers ring at their own moments."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Final

from shardbus.app.testing.clock import CANCELLED_MIN, ClientsClock, MovableClock
from tests.unit.broker.hosts import SetClock

START_MS: Final = 1_800_000_000_000
HOUR_MS: Final = 3_600_000


async def settle() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def run(work: Callable[[MovableClock, SetClock], Coroutine[object, object, None]]) -> None:
    real = SetClock(START_MS)
    asyncio.run(work(MovableClock(real, starts_at_ms=None, is_frozen=False), real))


def test_it_runs_with_the_real_clock_until_it_is_frozen() -> None:
    async def work(clock: MovableClock, real: SetClock) -> None:
        real.value_ms += 5_000
        assert (clock.now_ms(), clock.steady_ms()) == (START_MS + 5_000, 5_001)

        clock.freeze()
        real.value_ms += 5_000
        assert clock.now_ms() == START_MS + 5_000

        clock.unfreeze()
        real.value_ms += 1_000
        assert clock.now_ms() == START_MS + 6_000

    run(work)


def test_timers_ring_in_order_and_each_sees_its_own_moment() -> None:
    async def work(clock: MovableClock, real: SetClock) -> None:
        loop, rung = asyncio.get_running_loop(), list[tuple[str, int]]()
        clock.freeze()

        def note(name: str) -> None:
            rung.append((name, clock.now_ms() - START_MS))

        clock.call_later(loop, 2 * HOUR_MS, lambda: note("late"))

        def early() -> None:
            note("early")
            clock.call_later(loop, 600_000, lambda: note("after early"))

        clock.call_later(loop, HOUR_MS, early)
        cancelled = clock.call_later(loop, 1, lambda: note("cancelled"))
        cancelled.cancel()

        await clock.advance(3 * HOUR_MS, settle)

        assert rung == [
            ("early", HOUR_MS),
            ("after early", HOUR_MS + 600_000),
            ("late", 2 * HOUR_MS),
        ]
        assert clock.now_ms() == START_MS + 3 * HOUR_MS
        assert clock.is_frozen

    run(work)


def test_a_frozen_clock_rings_nothing_and_one_that_runs_rings_in_real_time() -> None:
    async def work(clock: MovableClock, real: SetClock) -> None:
        loop, rung = asyncio.get_running_loop(), asyncio.Event()
        clock.freeze()
        clock.call_later(loop, 0, rung.set)
        await asyncio.sleep(0.01)
        assert not rung.is_set()

        clock.unfreeze()
        async with asyncio.timeout(10):
            await rung.wait()

    run(work)


def test_a_timer_that_raises_keeps_no_other_from_ringing() -> None:
    async def work(clock: MovableClock, real: SetClock) -> None:
        loop, rung, told = asyncio.get_running_loop(), list[int](), list[object]()
        loop.set_exception_handler(lambda _, context: told.append(context["exception"]))

        def fails() -> None:
            raise ValueError("a bug")

        clock.call_later(loop, 10, fails)
        clock.call_later(loop, 10, lambda: rung.append(1))
        await clock.advance(10, settle)
        assert rung == [1]
        assert [str(error) for error in told] == ["a bug"]

    run(work)


def test_cancelled_timers_do_not_fill_the_memory() -> None:
    async def work(clock: MovableClock, real: SetClock) -> None:
        loop = asyncio.get_running_loop()
        clock.freeze()
        for _ in range(20 * CANCELLED_MIN):
            clock.call_later(loop, HOUR_MS, lambda: None).cancel()
        assert len(clock._timers) <= 2 * CANCELLED_MIN

    run(work)


def test_tokens_are_judged_by_the_earlier_of_both_clocks() -> None:
    async def work(clock: MovableClock, real: SetClock) -> None:
        clients = ClientsClock(real, clock)
        clock.freeze()
        await clock.advance(HOUR_MS, settle)
        assert clients.now_ms() == START_MS

        in_the_past = MovableClock(real, starts_at_ms=START_MS - HOUR_MS, is_frozen=True)
        assert ClientsClock(real, in_the_past).now_ms() == START_MS - HOUR_MS

    run(work)
