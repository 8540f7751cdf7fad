"""When Python's cyclic garbage collector runs, and when memory goes back to the system.

Messages make no cycles, yet every collection walks all that wait: by default this costs 13 % of the
time of a send. Connections do make cycles, so their number decides when a collection is worthwhile.

The C library returns memory at the end of the heap as soon as there is a little of it. A request of
a megabyte then gets new pages from the system for each of its buffers: 0.6 of 1.0 ms per request.
"""

from __future__ import annotations

import asyncio
import ctypes
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

# The numbers of two parameters of glibc's mallopt, and their values: how much unused memory at the
# end of the heap is kept, and from which size on a block has pages of its own.
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
UNUSED_BYTES_MAX: Final = 16 * 1024 * 1024
OWN_PAGES_BYTES_MIN: Final = 4 * 1024 * 1024


def calm() -> None:
    """Collect the garbage of the start, exclude the rest from later collections, collect rarely,
    and keep some unused memory.
    """
    keep_unused_memory()
    gc.collect()
    gc.freeze()
    gc.set_threshold(NEW_MAX, YOUNG_MAX, OLD_MAX)


def keep_unused_memory() -> bool:
    """Returns whether the C library can be told; only glibc can."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    kept = mallopt(_M_TRIM_THRESHOLD, UNUSED_BYTES_MAX)
    return bool(kept and mallopt(_M_MMAP_THRESHOLD, OWN_PAGES_BYTES_MIN))


async def collect_now_and_then(closed_connections: Callable[[], int]) -> None:
    """Collect for ever; `closed_connections` counts them since the start."""
    seen, looks = closed_connections(), 0
    while True:
        await asyncio.sleep(LOOK_S)
        looks += 1
        if closed_connections() - seen >= CLOSED_CONNECTIONS or looks >= LOOKS_MAX:
            seen, looks = closed_connections(), 0
            gc.collect()
