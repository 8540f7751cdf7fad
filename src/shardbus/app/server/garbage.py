"""When Python looks for garbage that references cannot find.

Messages make no cycles, yet every collection walks all that wait: left alone, collecting costs 13 %
of the time of a send. Connections do make cycles, so they decide when it is worth a walk.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import Final

LOOK_S: Final = 30
CLOSED_CONNECTIONS: Final = 200
"""So many closed connections are worth a collection."""
LOOKS_MAX: Final = 20
"""And so many looks, for whatever else makes cycles."""

# A walk holds everybody up: of what is new 50,000 objects are walked at once, then six times as
# many, which is some twenty milliseconds. Publishing to many subscriptions makes a million. Fewer
# at once would cost receivers a tenth of their speed: more of what is on its way is then walked.
NEW_MAX: Final = 50_000
YOUNG_MAX: Final = 4
OLD_MAX: Final = 5_000


def calm() -> None:
    """Collect what start-up left, keep the rest out of every later walk, and walk rarely."""
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
