"""The throttle of the namespace, as HTTP uses it."""

from __future__ import annotations

from typing import Protocol

from shardbus.core.errors import SERVER_BUSY, Refused
from shardbus.gateway.http.server.counts import HttpCounts


class HttpThrottle(Protocol):
    """How much the namespace may do per second, over all protocols."""

    def take(self, credits_wanted: int) -> None:
        """Pay before an operation; Refused with SERVER_BUSY without enough credits."""
        ...

    def charge(self, credits_used: int) -> None:
        """Pay for what was done anyway."""
        ...


def pay(throttle: HttpThrottle | None, counts: HttpCounts, credits_wanted: int) -> None:
    """Pay before new work; Refused, and counted, when the namespace is throttled."""
    if throttle is None:
        return
    try:
        throttle.take(credits_wanted)
    except Refused as refusal:
        if refusal.kind is SERVER_BUSY:
            counts.throttled += 1
        raise
