"""Which AMQP connections may stay when there are many: those with a token before strangers.

What a stranger can make the server hold is bounded twice, for each and for all of them together,
because anybody can connect. The owner of a key is bounded by the limits of every connection.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol, final

from shardbus.gateway.admission.admission import Admission
from shardbus.gateway.admission.guests import Guest
from shardbus.gateway.listening.wheel import Rider, Wheel

STRANGER_BYTES_MAX: Final = 64 * 1024
"""Before the first token: `open`, two links and the token itself are some three kilobytes."""
STRANGERS_BYTES_MAX: Final = 16 * 1024 * 1024
LEAVING_MAX: Final = 256
"""Connections that made room and may stay long enough to read why."""


class Visitor(Guest, Rider, Protocol):
    """A connection at the door; `heard_bytes` is how much it has sent as a stranger."""

    heard_bytes: int

    def turn_away(self) -> None:
        """Close as soon as the client can be told why."""
        ...


@final
class AmqpAdmission(Admission[Visitor]):
    """The AMQP connections of a server, and the wheel that times them."""

    def __init__(self, loop: asyncio.AbstractEventLoop, connections_max: int) -> None:
        super().__init__(connections_max)
        self.wheel = Wheel(loop)
        self._leaving: set[Visitor] = set()
        self._heard_bytes = 0

    def admit(self, visitor: Visitor) -> None:
        """Give a newcomer a place, or refuse it."""
        if not self.enter(visitor):
            visitor.turn_away()

    def hear(self, visitor: Visitor, size_bytes: int) -> bool:
        """Count what a stranger sends; False when it has sent too much."""
        visitor.heard_bytes += size_bytes
        self._heard_bytes += size_bytes
        while self._heard_bytes > STRANGERS_BYTES_MAX:
            if not self._strangers.make_room() and not self._turned_away.make_room():
                break
        return visitor.heard_bytes <= STRANGER_BYTES_MAX

    def trust(self, visitor: Visitor) -> bool:
        is_new = super().trust(visitor)
        if is_new:
            self._forget_bytes(visitor)
        return is_new

    def may_linger(self, visitor: Visitor) -> bool:
        """Whether a connection that has to make room may stay for a moment, to read why."""
        # At once, and not when its connection has ended: others must not make room for its bytes
        # too.
        self._forget_bytes(visitor)
        if len(self._leaving) >= LEAVING_MAX:
            return False
        self._leaving.add(visitor)
        return True

    def leave(self, visitor: Visitor) -> None:
        self.wheel.remove(visitor)
        self._leaving.discard(visitor)
        super().leave(visitor)
        self._forget_bytes(visitor)

    def _forget_bytes(self, visitor: Visitor) -> None:
        self._heard_bytes -= visitor.heard_bytes
        visitor.heard_bytes = 0
