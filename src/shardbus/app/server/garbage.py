"""When Python's cyclic garbage collector runs.

Messages make no cycles, yet every collection walks all that wait: by default this costs 13 % of the
time of a send. Connections do make cycles, so their number decides when a collection is worthwhile.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import Final

LOOK_S: Final = 30
CLOSED_CONNECTIONS: Final = 200
"""This many closed connections are worth a collection."""
LOOKS_MAX: Final = 20
"""And this many checks, for other causes of cycles."""

# A collection stops everything else: of new objects 50,000 are walked at once, then six times as
# many, which takes some twenty milliseconds. Publishing to many subscriptions makes a million.
# Smaller steps would cost receivers a tenth of their speed, because more objects in use are walked.
NEW_MAX: Final = 50_000
YOUNG_MAX: Final = 4
OLD_MAX: Final = 5_000


def calm() -> None:
    """Collect the garbage of the start, exclude the rest from later collections, and collect
    rarely.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(NEW_MAX, YOUNG_MAX, OLD_MAX)


async def collect_now_and_then(closed_connections: Callable[[], int]) -> None:
    """Collect for ever; `closed_connections` counts them since the start."""
    seen, looks = closed_connections(), 0
    while True:
        await asyncio.sleep(LOOK_S)
        looks += 1
        if closed_connections() - seen >= CLOSED_CONNECTIONS or looks >= LOOKS_MAX:
            seen, looks = closed_connections(), 0
            gc.collect()
