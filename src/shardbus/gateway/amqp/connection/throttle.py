"""How many operations per second a namespace may do, when its operator limits that."""

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
# How often receivers that wait for credits are checked.
WAKE_MS: Final = 100


@final
class Throttle:
    """A bucket of credits that holds the credits of one second; one for all connections.

    New work is refused while the bucket is too empty. Receivers wait instead, and operations that
    end work are only counted: if they were refused, the work would have to be done again.
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
        """Pay before an operation; Refused with SERVER_BUSY when there are not enough credits.

        An operation that costs more than one second's credits needs a full bucket, and leaves it in
        debt.
        """
        self._fill()
        if self._level < min(credits_wanted * 1000, self._full):
            raise Refused(SERVER_BUSY, THROTTLED_TEXT)
        self._level -= credits_wanted * 1000

    def charge(self, credits_used: int) -> None:
        """Pay for what was done anyway. The debt is at most one second's credits."""
        self._fill()
        self._level = max(self._level - credits_used * 1000, -self._full)

    def allow(self, owner: object, credits_wanted: int, wake: Callable[[], None]) -> int:
        """How many of these credits are available now; if none, `wake` is called when some may
        be.
        """
        self._fill()
        allowed = min(credits_wanted, max(0, self._level // 1000))
        if allowed == 0:
            if not self._waiting:
                self._loop.call_later(WAKE_MS / 1000, self._wake)
            self._waiting[id(owner)] = wake
        return allowed

    def forget(self, owner: object) -> None:
        """The owner no longer waits."""
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
