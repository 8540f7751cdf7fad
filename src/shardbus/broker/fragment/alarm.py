"""A timer that calls a runner when no command comes."""
# Compiled by mypyc.

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, final

from shardbus.broker.clock import TimedClock, Timer
from shardbus.core.message import NEVER_MS

# The wall clock may be set, so a moment may come early or late: waiting for one checks again after
# this time.
LOOK_MS_MAX: Final = 10_000


@final
class Alarm:
    """Rings once, at a moment of the wall clock or a deadline of the steady one."""

    def __init__(
        self, clock: TimedClock, loop: asyncio.AbstractEventLoop, ring: Callable[[], None]
    ) -> None:
        self._clock = clock
        self._loop = loop
        self._ring = ring
        self._timer: Timer | None = None
        self._due_at_ms = NEVER_MS
        self._deadline_ms = NEVER_MS

    def set(self, due_at_ms: int, deadline_ms: int) -> None:
        """Ring at the earlier of the two; NEVER_MS is none."""
        if due_at_ms == self._due_at_ms and deadline_ms == self._deadline_ms:
            return
        self.cancel()
        self._due_at_ms = due_at_ms
        self._deadline_ms = deadline_ms
        if due_at_ms != NEVER_MS or deadline_ms != NEVER_MS:
            self._wait(self._left_ms())

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        self._due_at_ms = NEVER_MS
        self._deadline_ms = NEVER_MS

    def _left_ms(self) -> int:
        """How long nothing can be due, as far as is known; 0: something is due."""
        left_ms = -1
        if self._deadline_ms != NEVER_MS:
            left_ms = max(0, self._deadline_ms - self._clock.steady_ms())
        if self._due_at_ms != NEVER_MS:
            until_due_ms = max(0, self._due_at_ms - self._clock.now_ms())
            if self._clock.may_jump:
                until_due_ms = min(until_due_ms, LOOK_MS_MAX)
            left_ms = until_due_ms if left_ms < 0 else min(left_ms, until_due_ms)
        return left_ms

    def _wait(self, delay_ms: int) -> None:
        self._timer = self._clock.call_later(self._loop, delay_ms, self._look)

    def _look(self) -> None:
        left_ms = self._left_ms()
        if left_ms > 0:
            self._wait(left_ms)
            return
        self._timer = None
        self._due_at_ms = NEVER_MS
        self._deadline_ms = NEVER_MS
        self._ring()
