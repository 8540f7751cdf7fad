"""Wall clocks that are set while a history runs: one for each machine, none of them right."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from tests.simulation.tally import befell
from tests.simulation.world import Wall

# Clocks are set by multiples of this. Whatever lasts in a history is much shorter, so that it can
# be told of every moment by how much the clock was wrong that it is from.
STEP_MS: Final = 600_000
AHEAD_MS: Final = (0, STEP_MS, -STEP_MS, 6 * STEP_MS, -6 * STEP_MS, 144 * STEP_MS, -144 * STEP_MS)
GLITCH_S: Final = 0.5
SET_S_MEAN: Final = 6.0


class Clockmaker:
    """Sets the wall clocks of all machines, with dice of his own: other dice fall as ever."""

    def __init__(self, seed: int, walls: Sequence[Wall], note: Callable[[str], None]) -> None:
        self._chance = Random(f"the clocks of {seed}")
        self._walls = walls
        self._note = note
        self._is_over = False

    async def run(self) -> None:
        """Until it is over."""
        while not self._is_over:
            await asyncio.sleep(self._chance.expovariate(1 / SET_S_MEAN))
            if not self._is_over:
                await self._set(self._chance.choice(self._walls))

    def put_right(self) -> None:
        """Everybody's clock is right from now on; that is a jump, too."""
        self._is_over = True
        for wall in self._walls:
            self._turn(wall, 0)

    async def _set(self, wall: Wall) -> None:
        before_ms = wall.ahead_ms
        befell("clock set")
        self._turn(wall, self._chance.choice(AHEAD_MS))
        if self._chance.random() < 0.3:
            befell("clock glitch")
            await asyncio.sleep(GLITCH_S)
            self._turn(wall, 0 if self._is_over else before_ms)

    def _turn(self, wall: Wall, ahead_ms: int) -> None:
        """Told before and after, to those who must know what the clock ever said."""
        self._note(f"a clock was {wall.ahead_ms} ms ahead")
        wall.ahead_ms = ahead_ms
        self._note(f"and is {ahead_ms} ms ahead")


def undisturbed_ms(moment_ms: int, now_ms: int) -> int:
    """A moment by the clock of a machine as what it is by the clock that is right."""
    return moment_ms - STEP_MS * round((moment_ms - now_ms) / STEP_MS)
