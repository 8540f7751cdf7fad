"""Connections that have not shown their protocol yet: how many may wait, and how long."""

from __future__ import annotations

import asyncio
from typing import Final, final

from shardbus.gateway.admission.guests import Guest, Guests

SILENT_MAX: Final = 8_192
SILENT_MS_MAX: Final = 10_000
"""From the connection to its first byte."""
SECURED_MAX: Final = 1_024
"""Connections during the TLS handshake; each costs far more memory than a silent one."""
SECURED_MS_MAX: Final = 15_000
"""From the first byte of a handshake to the first byte inside."""
SWEEP_MS: Final = 1_000
NEWCOMER_MS: Final = 1_000
"""How long a connection counts as new: its client may still be sending, or the server still
reading.
"""


@final
class Newcomers:
    """The newcomers of all listeners that share it: two groups with one timer.

    When a group is full the oldest newcomer of the peer with the most goes, never the latest.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        silent_max: int = SILENT_MAX,
        secured_max: int = SECURED_MAX,
    ) -> None:
        self._loop = loop
        self._silent_max = silent_max
        self._secured_max = secured_max
        self._silent = Guests()
        self._secured = Guests()
        self._sweep_timer: asyncio.TimerHandle | None = None

    @property
    def newcomers(self) -> int:
        return len(self._silent) + len(self._secured)

    def welcome(self, guest: Guest) -> None:
        """A connection that has sent nothing yet."""
        self._enter(self._silent, guest, self._silent_max)

    def secure(self, guest: Guest) -> None:
        """A connection that has begun with TLS."""
        self._enter(self._secured, guest, self._secured_max)

    def forget(self, guest: Guest) -> None:
        """The connection has ended, or its protocol is known."""
        if not self._silent.leave(guest):
            self._secured.leave(guest)

    def make_room(self) -> bool:
        """Close one to free its descriptor, unless all have just come; returns whether there was
        one.
        """
        moment_ms = self._now_ms() - NEWCOMER_MS
        return self._silent.expel_one_before(moment_ms) or self._secured.expel_one_before(moment_ms)

    def _enter(self, guests: Guests, guest: Guest, guests_max: int) -> None:
        while len(guests) >= guests_max:
            guests.make_room()
        guests.enter(guest, self._now_ms())
        if self._sweep_timer is None:
            self._sweep_timer = self._loop.call_later(SWEEP_MS / 1000, self._sweep)

    def _sweep(self) -> None:
        self._sweep_timer = None
        now_ms = self._now_ms()
        for guests, patience_ms in (
            (self._silent, SILENT_MS_MAX),
            (self._secured, SECURED_MS_MAX),
        ):
            for guest in guests.overdue(now_ms - patience_ms):
                guests.leave(guest)
                guest.expel()
        if self.newcomers:
            self._sweep_timer = self._loop.call_later(SWEEP_MS / 1000, self._sweep)

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)
