"""A clock that a test stops and moves forward; only test servers have one.

Both readings of the bus move together, as if that much time had passed. Nothing else does:
time-outs of clients and connections, retries and pauses of the server use the event loop's timers.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Awaitable, Callable
from typing import Final, final

from shardbus.broker.clock import Clock, Timer

STEPS_MAX: Final = 100_000
"""Events that one move stops at; what is due after more than these happens at its end."""
CANCELLED_MIN: Final = 1_000


@final
class _Timer:
    """A callback at a reading of the steady clock."""

    def __init__(
        self, clock: MovableClock, number: int, deadline_ms: int, callback: Callable[[], None]
    ) -> None:
        self.deadline_ms = deadline_ms
        self.callback: Callable[[], None] | None = callback
        self._number = number
        self._clock = clock

    def cancel(self) -> None:
        if self.callback is not None:
            self.callback = None
            self._clock.note_cancelled()

    def __lt__(self, other: _Timer) -> bool:
        return (self.deadline_ms, self._number) < (other.deadline_ms, other._number)


@final
class MovableClock:
    """A `broker.clock.TimedClock` that stands or runs, and is moved forward.

    A timer rings when the clock reaches it, whichever way: after a real delay, or at its place in a
    move. While the clock stands no timer runs.
    """

    def __init__(self, real: Clock, *, starts_at_ms: int | None, is_frozen: bool) -> None:
        """The wall clock starts with the real time, or at the given moment."""
        self._real = real
        self._starts_at_ms = real.now_ms() if starts_at_ms is None else starts_at_ms
        self._passed_ms = 0
        self._since_ms = real.steady_ms()
        self._is_frozen = is_frozen
        self._timers: list[_Timer] = []
        self._made = self._cancelled = 0
        self._armed: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def is_frozen(self) -> bool:
        return self._is_frozen

    def now_ms(self) -> int:
        return self._starts_at_ms + self._elapsed_ms()

    def steady_ms(self) -> int:
        return self._elapsed_ms() + 1

    @property
    def may_jump(self) -> bool:
        return False

    def call_later(
        self, loop: asyncio.AbstractEventLoop, delay_ms: int, callback: Callable[[], None]
    ) -> Timer:
        self._loop = loop
        self._made += 1
        timer = _Timer(self, self._made, self._elapsed_ms() + max(0, delay_ms), callback)
        heapq.heappush(self._timers, timer)
        if self._timers[0] is timer:
            self._arm()
        return timer

    def note_cancelled(self) -> None:
        """Timers that never ring must not fill the memory."""
        self._cancelled += 1
        if self._cancelled > CANCELLED_MIN and self._cancelled * 2 > len(self._timers):
            self._timers = [timer for timer in self._timers if timer.callback is not None]
            heapq.heapify(self._timers)
            self._cancelled = 0

    def freeze(self) -> None:
        self._passed_ms = self._elapsed_ms()
        self._is_frozen = True
        self._arm()

    def unfreeze(self) -> None:
        if self._is_frozen:
            self._is_frozen = False
            self._since_ms = self._real.steady_ms()
            self._arm()

    async def advance(self, by_ms: int, settle: Callable[[], Awaitable[None]]) -> None:
        """Move forward, from one timer to the next; `settle` waits until their work is done."""
        target_ms = self._elapsed_ms() + by_ms
        was_frozen = self._is_frozen
        self.freeze()
        try:
            for _ in range(STEPS_MAX):
                next_ms = self._next_ms()
                if next_ms is None or next_ms > target_ms:
                    break
                self._passed_ms = max(self._passed_ms, next_ms)
                self._ring()
                await settle()
            self._passed_ms = target_ms
            self._ring()
            await settle()
        finally:
            if not was_frozen:
                self.unfreeze()

    def _elapsed_ms(self) -> int:
        if self._is_frozen:
            return self._passed_ms
        return self._passed_ms + self._real.steady_ms() - self._since_ms

    def _next_ms(self) -> int | None:
        while self._timers and self._timers[0].callback is None:
            heapq.heappop(self._timers)
            self._cancelled = max(0, self._cancelled - 1)
        return self._timers[0].deadline_ms if self._timers else None

    def _arm(self) -> None:
        if self._armed is not None:
            self._armed.cancel()
            self._armed = None
        next_ms = self._next_ms()
        if next_ms is not None and self._loop is not None and not self._is_frozen:
            delay_ms = max(0, next_ms - self._elapsed_ms())
            self._armed = self._loop.call_later(delay_ms / 1000, self._due)

    def _due(self) -> None:
        self._armed = None
        self._ring()
        self._arm()

    def _ring(self) -> None:
        elapsed_ms = self._elapsed_ms()
        while (next_ms := self._next_ms()) is not None and next_ms <= elapsed_ms:
            timer = heapq.heappop(self._timers)
            callback, timer.callback = timer.callback, None
            assert callback is not None and self._loop is not None
            # Not here: what one of them raises must not keep the others from being called.
            self._loop.call_soon(callback)


@final
class ClientsClock:
    """The clock by which tokens and certificates are judged: the earlier of the real and the moved.

    Clients sign by their own clock. One that does not follow a move forward keeps its access, and
    so does one that follows a bus that started in the past.
    """

    def __init__(self, real: Clock, moved: MovableClock) -> None:
        self._real = real
        self._moved = moved

    def now_ms(self) -> int:
        return min(self._real.now_ms(), self._moved.now_ms())

    def steady_ms(self) -> int:
        return self._real.steady_ms()

    @property
    def may_jump(self) -> bool:
        return True

    def call_later(
        self, loop: asyncio.AbstractEventLoop, delay_ms: int, callback: Callable[[], None]
    ) -> Timer:
        return loop.call_later(delay_ms / 1000, callback)
