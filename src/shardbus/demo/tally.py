"""Counts and rates of the demo."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, fields
from typing import Final, final

WINDOW_S: Final = 5.0
SAMPLES_MAX: Final = 64

# Orders come in waves, so that the queue visibly fills and empties.
WAVE_S: Final = 40.0
WAVE_SHARE: Final = 0.6


@final
@dataclass(frozen=True, slots=True)
class Counts:
    """Messages, by what was done with them; `scheduled` are among `sent`."""

    sent: int = 0
    scheduled: int = 0
    received: int = 0
    completed: int = 0
    dead_lettered: int = 0
    published: int = 0
    delivered: int = 0

    def __add__(self, other: Counts) -> Counts:
        names = (field.name for field in fields(self))
        return Counts(**{name: getattr(self, name) + getattr(other, name) for name in names})


@final
class Rate:
    """The growth rate of a total over the last seconds."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque(maxlen=SAMPLES_MAX)

    def add(self, now_s: float, total: int) -> float:
        """Note a total; returns the rate, 0 for a total that was reset."""
        samples = self._samples
        if samples and total < samples[-1][1]:
            samples.clear()
        samples.append((now_s, total))
        while len(samples) > 2 and now_s - samples[0][0] > WINDOW_S:
            samples.popleft()
        began_s, before = samples[0]
        return (total - before) / (now_s - began_s) if now_s > began_s else 0.0


def orders_due(elapsed_s: float, per_s: float) -> int:
    """How many orders should have been sent by then; `per_s` is their mean rate."""
    turn = math.tau / WAVE_S
    extra_s = WAVE_SHARE / turn * (1 - math.cos(turn * elapsed_s))
    return int(per_s * (elapsed_s + extra_s))
