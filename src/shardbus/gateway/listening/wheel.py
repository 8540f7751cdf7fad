"""One timer for many connections, as exact as their time limits need."""

from __future__ import annotations

import asyncio
import logging
from typing import Final, Protocol, final

log = logging.getLogger(__name__)

SLOT_MS: Final = 250
SLOTS: Final = 256
"""A turn of the wheel is 64 s; a rider with a longer delay is asked again after one."""
NEVER: Final = -1
AFTER_FAILURE_MS: Final = 60_000


class Rider(Protocol):
    """Something that must be checked from time to time."""

    def look(self, now_ms: int) -> int:
        """Do what is due; returns after how many milliseconds to check again, NEVER for not
        again.
        """
        ...


@final
class Wheel:
    """Checks its riders when they asked for it, within the accuracy of a slot.

    Riders read the time themselves: one that is checked early asks for the rest. The wheel turns
    while there are riders. Adding and removing one takes constant time, and no timer of the loop.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._slots: list[dict[Rider, None]] = [{} for _ in range(SLOTS)]
        self._places: dict[Rider, int] = {}
        self._position = 0
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._places)

    def put(self, rider: Rider, delay_ms: int) -> None:
        """Check it after this delay, instead of an earlier one."""
        self.remove(rider)
        distance = min(max(delay_ms, 0) // SLOT_MS + 1, SLOTS - 1)
        place = (self._position + distance) % SLOTS
        self._slots[place][rider] = None
        self._places[rider] = place
        if self._timer is None:
            self._timer = self._loop.call_later(SLOT_MS / 1000, self._turn)

    def remove(self, rider: Rider) -> None:
        place = self._places.pop(rider, None)
        if place is not None:
            del self._slots[place][rider]

    def _turn(self) -> None:
        self._timer = None
        self._position = (self._position + 1) % SLOTS
        due, self._slots[self._position] = self._slots[self._position], {}
        for rider in due:
            del self._places[rider]
        now_ms = int(self._loop.time() * 1000)
        for rider in due:
            # Checking one rider may have moved another.
            if rider not in self._places:
                self._look_at(rider, now_ms)
        if self._places and self._timer is None:
            self._timer = self._loop.call_later(SLOT_MS / 1000, self._turn)

    def _look_at(self, rider: Rider, now_ms: int) -> None:
        try:
            delay_ms = rider.look(now_ms)
        except Exception:
            # The other riders must still be checked.
            log.exception("a connection could not be checked")
            delay_ms = AFTER_FAILURE_MS
        if delay_ms != NEVER:
            self.put(rider, delay_ms)
