"""Who may stay when there are many: connections that have shown a token before those that have not.

What a stranger can make us hold is bounded twice, for each and for all of them together, because
anybody may be one. The owner of a key is bounded by the limits of every connection.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol, final

from shardbus.gateway.admission.guests import Guest, Guests
from shardbus.gateway.listening.wheel import Rider, Wheel

STRANGER_BYTES_MAX: Final = 64 * 1024
"""Before the first token: `open`, two links and the token itself are some three kilobytes."""
STRANGERS_BYTES_MAX: Final = 16 * 1024 * 1024
TURNED_AWAY_MAX: Final = 100
"""Connections beyond the limit that may stay long enough to be told so."""
LEAVING_MAX: Final = 256
"""Connections that made room and may stay long enough to read why."""


class Visitor(Guest, Rider, Protocol):
    """A connection at the door; `heard_bytes` is what it has sent as a stranger."""

    heard_bytes: int

    def turn_away(self) -> None:
        """Close as soon as the client can be told why."""
        ...


@final
class AmqpAdmission:
    """The connections of a server by what is known of them, and the wheel that times them.

    A newcomer is a stranger. When all places are taken the oldest stranger of the noisiest peer
    makes room; when all are taken by clients with tokens, newcomers are told so and sent away.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, connections_max: int) -> None:
        self.wheel = Wheel(loop)
        self.connections_max = connections_max
        self._loop = loop
        self._strangers = Guests()
        self._turned_away = Guests()
        self._trusted: set[Visitor] = set()
        self._leaving: set[Visitor] = set()
        self._heard_bytes = 0

    @property
    def strangers(self) -> int:
        return len(self._strangers) + len(self._turned_away)

    def enter(self, visitor: Visitor) -> None:
        is_full = len(self._trusted) + len(self._strangers) >= self.connections_max
        if not is_full or self._strangers.make_room():
            self._strangers.enter(visitor, self._now_ms())
            return
        if len(self._turned_away) >= TURNED_AWAY_MAX:
            self._turned_away.make_room()
        self._turned_away.enter(visitor, self._now_ms())
        visitor.turn_away()

    def hear(self, visitor: Visitor, size_bytes: int) -> bool:
        """Count what a stranger sends; False when it has sent too much for one."""
        visitor.heard_bytes += size_bytes
        self._heard_bytes += size_bytes
        while self._heard_bytes > STRANGERS_BYTES_MAX:
            if not self._strangers.make_room() and not self._turned_away.make_room():
                break
        return visitor.heard_bytes <= STRANGER_BYTES_MAX

    def trust(self, visitor: Visitor) -> None:
        """It has shown a token."""
        if self._strangers.leave(visitor):
            self._trusted.add(visitor)
            self._forget_bytes(visitor)

    def may_linger(self, visitor: Visitor) -> bool:
        """Whether one that has to make room may stay for a moment, to read why."""
        # At once, and not when its connection is over: others must not make room for its bytes too.
        self._forget_bytes(visitor)
        if len(self._leaving) >= LEAVING_MAX:
            return False
        self._leaving.add(visitor)
        return True

    def leave(self, visitor: Visitor) -> None:
        """Its connection is over."""
        self.wheel.remove(visitor)
        self._trusted.discard(visitor)
        self._leaving.discard(visitor)
        if not self._strangers.leave(visitor):
            self._turned_away.leave(visitor)
        self._forget_bytes(visitor)

    def _forget_bytes(self, visitor: Visitor) -> None:
        self._heard_bytes -= visitor.heard_bytes
        visitor.heard_bytes = 0

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)
