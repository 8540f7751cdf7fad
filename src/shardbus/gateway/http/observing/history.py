"""How numbers developed: every 5 s for an hour, every minute for a day, in bounded memory.

A row is kept only where something changed, so what stands still costs nothing.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, final

FINE_MS: Final = 5_000
FINE_COUNT: Final = 720
COARSE_STEPS: Final = 12
COARSE_MS: Final = FINE_MS * COARSE_STEPS
COARSE_COUNT: Final = 1_440

ROWS_MAX: Final = 2_000_000
"""Of all tracks together: each has four bytes for its time and for every number. When there are
more, the history that has stood still for longest is forgotten.
"""
# Rows that are outside of the window are removed in groups of this size.
_SPARE: Final = 64

Numbers = tuple[float, ...]


@final
class Ring:
    """The last `count_max` steps of some numbers, as the steps at which they changed."""

    def __init__(self, width: int, count_max: int) -> None:
        self._width = width
        self._count_max = count_max
        self._steps = array("I")
        self._numbers = array("f")
        self._last: Numbers = ()

    def __len__(self) -> int:
        return len(self._steps)

    def add(self, step: int, numbers: Numbers) -> None:
        if _is_same(numbers, self._last):
            return
        self._last = numbers
        self._steps.append(step)
        self._numbers.extend(numbers)
        # One row before the window tells what was there when it begins.
        gone = bisect_right(self._steps, step - self._count_max) - 1
        if gone > _SPARE:
            del self._steps[:gone]
            del self._numbers[: gone * self._width]

    def columns(self, first: int, last: int) -> list[list[float | None]]:
        """The numbers at the steps from `first` to `last`; None where there was none."""
        found: list[list[float | None]] = [[] for _ in range(self._width)]
        at = bisect_right(self._steps, first) - 1
        for step in range(first, last + 1):
            while at + 1 < len(self._steps) and self._steps[at + 1] <= step:
                at += 1
            for column in range(self._width):
                number = self._numbers[at * self._width + column] if at >= 0 else math.nan
                found[column].append(None if math.isnan(number) else number)
        return found


@final
class Track:
    """The history of one thing."""

    def __init__(self, width: int) -> None:
        self.fine = Ring(width, FINE_COUNT)
        self.coarse = Ring(width, COARSE_COUNT)
        self.sums = [0.0] * width
        self.peaks = [math.nan] * width


@final
class History:
    """The history of many things, each with the same numbers.

    The first `averaged` numbers are averaged over a minute; of the last `peaked` the highest is
    kept, and of the others the last.
    """

    def __init__(
        self, names: Sequence[str], *, averaged: int, peaked: int = 0, rows_max: int = ROWS_MAX
    ) -> None:
        self.names = names
        self._averaged = averaged
        self._peaked = range(len(names) - peaked, len(names))
        self._rows_max = rows_max
        self._tracks: OrderedDict[str, Track] = OrderedDict()
        self._rows = 0
        self.step = 0
        """The number of the last fine step."""
        self.at_ms = 0
        """The moment of the last fine step."""

    def advance(self, at_ms: int) -> None:
        """A step has passed: everything is recorded once after this."""
        self.step += 1
        self.at_ms = at_ms

    def record(self, key: str, numbers: Numbers) -> None:
        """NaN stands for a number that is not known."""
        track = self._tracks.get(key)
        if track is None:
            track = self._tracks[key] = Track(len(self.names))
        before = len(track.fine) + len(track.coarse)
        track.fine.add(self.step, numbers)
        for column in range(self._averaged):
            track.sums[column] += 0.0 if math.isnan(numbers[column]) else numbers[column]
        for column in self._peaked:
            if not numbers[column] <= track.peaks[column]:
                track.peaks[column] = numbers[column]
        if self.step % COARSE_STEPS == 0:
            means = [total / COARSE_STEPS for total in track.sums[: self._averaged]]
            lasts = numbers[self._averaged : self._peaked.start]
            highest = track.peaks[self._peaked.start :]
            track.coarse.add(self.step // COARSE_STEPS, (*means, *lasts, *highest))
            track.sums = [0.0] * len(self.names)
            track.peaks = [math.nan] * len(self.names)
        more = len(track.fine) + len(track.coarse) - before
        if more:
            self._rows += more
            self._tracks.move_to_end(key)
            self._make_room()

    def keep(self, keys: set[str]) -> None:
        """Forget everything else."""
        for key in [each for each in self._tracks if each not in keys]:
            self._forget(key)

    @property
    def row_count(self) -> int:
        return self._rows

    def fine(self, key: str, count: int) -> list[list[float | None]]:
        """The numbers at the last steps, at most `count` of them."""
        track = self._tracks.get(key)
        first = max(self.step - min(count, FINE_COUNT) + 1, 1)
        return self._empty() if track is None else track.fine.columns(first, self.step)

    def coarse(self, key: str, count: int) -> list[list[float | None]]:
        """The same by minutes."""
        track = self._tracks.get(key)
        last = self.step // COARSE_STEPS
        first = max(last - min(count, COARSE_COUNT) + 1, 1)
        return self._empty() if track is None else track.coarse.columns(first, last)

    def coarse_at_ms(self) -> int:
        """The moment of the last coarse step."""
        return self.at_ms - self.step % COARSE_STEPS * FINE_MS

    def _empty(self) -> list[list[float | None]]:
        return [[] for _ in self.names]

    def _make_room(self) -> None:
        while self._rows > self._rows_max and len(self._tracks) > 1:
            self._forget(next(iter(self._tracks)))

    def _forget(self, key: str) -> None:
        track = self._tracks.pop(key)
        self._rows -= len(track.fine) + len(track.coarse)


def _is_same(one: Numbers, other: Numbers) -> bool:
    """Whether the numbers are equal, also where they are not known."""
    return len(one) == len(other) and all(
        a == b or (a != a and b != b) for a, b in zip(one, other, strict=True)
    )
