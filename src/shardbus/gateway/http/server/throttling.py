"""What the namespace may do in a second, as HTTP has to pay for it."""

from __future__ import annotations

from typing import Protocol

from shardbus.core.errors import SERVER_BUSY, Refused
from shardbus.gateway.http.server.counts import HttpCounts


class HttpThrottle(Protocol):
    """What the namespace may do in a second, over all protocols."""

    def take(self, credits_wanted: int) -> None:
        """Pay before something is done; Refused with SERVER_BUSY when it cannot be paid."""
        ...

    def charge(self, credits_used: int) -> None:
        """Pay for what was done anyway."""
        ...


def pay(throttle: HttpThrottle | None, counts: HttpCounts, credits_wanted: int) -> None:
    """Before something new is done; Refused, and counted, when the namespace may do no more now."""
    if throttle is None:
        return
    try:
        throttle.take(credits_wanted)
    except Refused as refusal:
        if refusal.kind is SERVER_BUSY:
            counts.throttled += 1
        raise
