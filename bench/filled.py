"""Serves a bus that has run for a day already, as far as its history is concerned.

    python -m bench.filled serve ...

is `shardbus serve ...`, where the history of the namespace has a row at every step, as after a day
of load that never stood still.
"""

from __future__ import annotations

import random
import time

from shardbus.__main__ import run
from shardbus.gateway.http.observing.history import COARSE_COUNT, COARSE_STEPS, FINE_MS
from shardbus.gateway.http.observing.overview import ENTITY_SERIES, NAMESPACE_KEY, Overviews

STEPS = COARSE_COUNT * COARSE_STEPS
_run = Overviews.run


def fill(overviews: Overviews) -> None:
    now_ms, numbers = int(time.time() * 1000), random.Random(83)
    for step in range(STEPS):
        overviews.entities.advance(now_ms - (STEPS - step) * FINE_MS)
        row = tuple(numbers.uniform(0, 100_000) for _ in ENTITY_SERIES)
        overviews.entities.record(NAMESPACE_KEY, row)


async def run_filled(self: Overviews) -> None:
    fill(self)
    await _run(self)


if __name__ == "__main__":
    Overviews.run = run_filled  # type: ignore[method-assign]  # there is no option
    run()
