"""The one moment at which a runner wants to be called although nobody asks it for anything."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import final

from shardbus.broker.clock import Clock
from shardbus.core.message import NEVER_MS


@final
class Alarm:
    """Rings once at the moment it was last set to."""

    def __init__(
        self, clock: Clock, loop: asyncio.AbstractEventLoop, ring: Callable[[], None]
    ) -> None:
        self._clock = clock
        self._loop = loop
        self._ring = ring
        self._timer: asyncio.TimerHandle | None = None
        self._at_ms = NEVER_MS

    def set(self, at_ms: int) -> None:
        """NEVER_MS: do not ring."""
        if at_ms == self._at_ms:
            return
        self.cancel()
        if at_ms != NEVER_MS:
            self._at_ms = at_ms
            delay_ms = max(0, at_ms - self._clock.now_ms())
            self._timer = self._loop.call_later(delay_ms / 1000, self._rung)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        self._at_ms = NEVER_MS

    def _rung(self) -> None:
        self._timer = None
        self._at_ms = NEVER_MS
        self._ring()
