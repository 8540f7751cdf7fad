"""The time as a dependency: the present moment, and how much time passes.

The two are different clocks (docs/adr/0035-two-clocks.md). The wall clock tells the present moment,
and jumps when somebody sets it. The steady clock never jumps, and only tells how much later one
reading was than another. What happens *at* a moment uses the first, what lasts *for* a time the
second. A steady reading means nothing in another process or after a restart.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol, final


class Clock(Protocol):
    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch. It may jump, forward and back."""
        ...

    def steady_ms(self) -> int:
        """Milliseconds since some moment, never 0. It runs like the event loop's timers."""
        ...


class Timer(Protocol):
    def cancel(self) -> None: ...


class TimedClock(Clock, Protocol):
    """A clock that also calls back, after a time of its own."""

    @property
    def may_jump(self) -> bool:
        """Whether the wall clock may be set: then a wait for a moment must check now and then."""
        ...

    def call_later(
        self, loop: asyncio.AbstractEventLoop, delay_ms: int, callback: Callable[[], None]
    ) -> Timer:
        """Call back when the steady clock is so much later."""
        ...


@final
class SystemClock:
    """The clocks of the machine.

    The steady clock stands while the machine is suspended, because nobody could renew a lock then.
    """

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def steady_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000 + 1

    @property
    def may_jump(self) -> bool:
        return True

    def call_later(
        self, loop: asyncio.AbstractEventLoop, delay_ms: int, callback: Callable[[], None]
    ) -> Timer:
        return loop.call_later(delay_ms / 1000, callback)
