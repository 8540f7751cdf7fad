"""How soon a driver ends that is told to, in virtual time (R31, P9)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterator
from typing import Final

import pytest

from shardbus.app.pipelines import driver_keeper
from shardbus.app.pipelines.driver_keeper import DriverKeeper, Launch
from tests.simulation.world import VirtualLoop

STOP_S: Final = 3.0
LONG_MS: Final = 72_000_000


class Driver:
    """A process whose batch takes so long; then it ends, if it was told to."""

    pid = 7

    def __init__(self, batch_s: float) -> None:
        self._batch_s = batch_s
        self._ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.stdout, self.stderr = asyncio.StreamReader(), asyncio.StreamReader()
        self.was_killed = False

    def send_signal(self, number: int) -> None:
        assert number == driver_keeper.CUT_SIGNAL
        self.terminate()

    def terminate(self) -> None:
        asyncio.get_running_loop().call_later(self._batch_s, self._end, 0)

    def kill(self) -> None:
        self.was_killed = True
        self._end(-9)

    async def wait(self) -> int:
        return await asyncio.shield(self._ended)

    def _end(self, code: int) -> None:
        if not self._ended.done():
            self._ended.set_result(code)


Story = Callable[[DriverKeeper, list[Driver]], Coroutine[object, object, None]]


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[float, Story], None]]:
    loop = VirtualLoop()
    drivers: list[Driver] = []

    def tell(batch_s: float, story: Story) -> None:
        async def begin(*command: str, **options: object) -> Driver:
            drivers.append(Driver(batch_s))
            return drivers[-1]

        def kill(group: int, number: int) -> None:
            drivers[-1].kill()

        async def live() -> None:
            keeper = DriverKeeper(
                "archive",
                lambda: Launch(["driver"], {}, LONG_MS),
                restart_ms=1_000,
                is_once=False,
                ended=lambda: None,
            )
            keeper.start()
            await asyncio.sleep(1.0)
            await story(keeper, drivers)
            await keeper.kill()

        monkeypatch.setattr(asyncio, "create_subprocess_exec", begin)
        monkeypatch.setattr(os, "killpg", kill)
        loop.finish(loop.create_task(live()))

    yield tell
    loop.close()


async def _ended_after(keeper: DriverKeeper) -> float:
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    await keeper.wait()
    return loop.time() - began_s


def test_a_stop_ends_the_driver_within_three_seconds_however_long_its_batch_takes(
    play: Callable[[float, Story], None],
) -> None:
    """R31, P9: its pipes may be open for longer, as those of Python processes of Spark are."""

    async def story(keeper: DriverKeeper, drivers: list[Driver]) -> None:
        keeper.stop()
        assert await _ended_after(keeper) <= STOP_S
        assert (keeper.state, keeper.report.error, keeper.starts) == ("stopped", "", 1)
        assert drivers[0].was_killed

        keeper.start()
        await asyncio.sleep(1.0)
        assert (keeper.starts, len(drivers)) == (2, 2)

    play(3_600.0, story)


def test_a_batch_that_ends_in_time_is_not_cut_off(play: Callable[[float, Story], None]) -> None:
    async def story(keeper: DriverKeeper, drivers: list[Driver]) -> None:
        for stream in (drivers[0].stdout, drivers[0].stderr):
            stream.feed_eof()
        keeper.stop()
        assert await _ended_after(keeper) == pytest.approx(0.5)
        assert "within a batch" not in " ".join(keeper.report.lines())

    play(0.5, story)


def test_a_driver_that_finishes_has_minutes_until_it_is_told_to_stop_after_all(
    play: Callable[[float, Story], None],
) -> None:
    """P4, P9"""

    async def story(keeper: DriverKeeper, drivers: list[Driver]) -> None:
        for stream in (drivers[0].stdout, drivers[0].stderr):
            stream.feed_eof()
        keeper.finish()
        assert await _ended_after(keeper) == pytest.approx(60.0)
        assert "within a batch" not in " ".join(keeper.report.lines())

        keeper.finish()
        await asyncio.sleep(10.0)
        assert keeper.state == "stopping"
        keeper.stop()
        assert await _ended_after(keeper) <= STOP_S
        assert drivers[1].was_killed

    play(60.0, story)
