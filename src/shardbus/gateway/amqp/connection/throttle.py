"""What a namespace may do in a second, when its operator limits it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, final

from shardbus.broker.clock import Clock
from shardbus.broker.guarded import guarded
from shardbus.core.errors import SERVER_BUSY, Refused

MESSAGE_CREDITS: Final = 1
MANAGEMENT_CREDITS: Final = 10

THROTTLED_TEXT: Final = (
    "The request was terminated because the entity is being throttled. Error code: 50009. "
    "Please wait 2 seconds and try again."
)
# Receivers that wait for credits are looked after this often.
WAKE_MS: Final = 100


@final
class Throttle:
    """A bucket of credits that holds what comes in one second; one for all connections.

    Who asks for something new is refused while it is too empty. Receivers wait instead, and what
    ends work that was begun is only counted: refused, it would have to be done again.
    """

    def __init__(self, credits_per_s: int, clock: Clock, loop: asyncio.AbstractEventLoop) -> None:
        self._credits_per_s = credits_per_s
        self._clock = clock
        self._loop = loop
        # In thousandths, so that every millisecond adds a whole number.
        self._full = credits_per_s * 1000
        self._level = self._full
        self._filled_ms = clock.steady_ms()
        self._waiting: dict[int, Callable[[], None]] = {}

    def take(self, credits_wanted: int) -> None:
        """Pay before something is done; Refused with SERVER_BUSY when it cannot be paid.

        What costs more than a second brings needs a full bucket, and leaves it in debt.
        """
        self._fill()
        if self._level < min(credits_wanted * 1000, self._full):
            raise Refused(SERVER_BUSY, THROTTLED_TEXT)
        self._level -= credits_wanted * 1000

    def charge(self, credits_used: int) -> None:
        """Pay for what was done anyway. A debt is at most what one second brings."""
        self._fill()
        self._level = max(self._level - credits_used * 1000, -self._full)

    def allow(self, owner: object, credits_wanted: int, wake: Callable[[], None]) -> int:
        """How many of these can be paid now; if none, `wake` is called when some may be."""
        self._fill()
        allowed = min(credits_wanted, max(0, self._level // 1000))
        if allowed == 0:
            if not self._waiting:
                self._loop.call_later(WAKE_MS / 1000, self._wake)
            self._waiting[id(owner)] = wake
        return allowed

    def forget(self, owner: object) -> None:
        """The owner does not wait any more."""
        self._waiting.pop(id(owner), None)

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for wake in waiting.values():
            guarded(wake)

    def _fill(self) -> None:
        steady_ms = self._clock.steady_ms()
        elapsed_ms = steady_ms - self._filled_ms
        self._filled_ms = steady_ms
        self._level = min(self._full, self._level + elapsed_ms * self._credits_per_s)
