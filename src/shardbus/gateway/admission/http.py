"""Which HTTP connections may stay when there are many: known clients before strangers."""

from __future__ import annotations

from collections import Counter
from typing import Final, Protocol, cast, final

from shardbus.gateway.admission.guests import Guest, Guests
from shardbus.gateway.admission.holdings import Holder, Holdings
from shardbus.gateway.admission.unread import AnswerReader, Unread

TURNED_AWAY_MAX: Final = 100
"""Connections beyond the limit that may stay long enough to be told so."""
BODIES_BYTES_MAX: Final = 64 * 1024 * 1024
"""Of requests that have not come whole yet, over all connections: no token is checked before."""
ANSWERS_BYTES_MAX: Final = 256 * 1024 * 1024
"""Of answers that clients have not read."""


class HttpGuest(Guest, Holder, AnswerReader, Protocol):
    """An HTTP connection."""

    @property
    def is_busy(self) -> bool:
        """Whether a request is being answered."""
        ...


@final
class HttpAdmission:
    """The connections of a gateway: a client is known once one of its requests had a good token.

    When all places are taken the oldest stranger of the noisiest peer makes room, then the oldest
    known client of the noisiest peer that is not being answered.
    """

    def __init__(self, connections_max: int) -> None:
        self.connections_max = connections_max
        self._strangers = Guests()
        self._turned_away = Guests()
        self._known: dict[HttpGuest, None] = {}
        self._bodies = Holdings(BODIES_BYTES_MAX)
        self.unread = Unread(ANSWERS_BYTES_MAX)

    def enter(self, client: HttpGuest) -> bool:
        """Whether there is a place; a client without one should be told so, and go."""
        is_full = len(self._strangers) + len(self._known) >= self.connections_max
        is_placed = not is_full or self._make_room()
        lobby = self._strangers if is_placed else self._turned_away
        if not is_placed and len(lobby) >= TURNED_AWAY_MAX:
            lobby.make_room()
        # Connections have time limits of their own; here only their order counts.
        lobby.enter(client, now_ms=0)
        return is_placed

    def know(self, client: HttpGuest) -> None:
        """It has shown a good token."""
        if self._strangers.leave(client):
            self._known[client] = None

    def leave(self, client: HttpGuest) -> None:
        self._bodies.forget(client)
        self.unread.forget(client)
        if client in self._known:
            del self._known[client]
        elif not self._strangers.leave(client):
            self._turned_away.leave(client)

    def hold(self, client: HttpGuest, size_bytes: int, now_ms: int) -> None:
        """So many bytes are there of a client's unfinished request.

        When all have too much strangers make room first, then whoever holds the most for the
        longest time.
        """
        if not size_bytes:
            self._bodies.forget(client)
            return
        self._bodies.put(client, size_bytes, now_ms)
        while self._bodies.is_too_much and self._expel_holder(now_ms):
            pass
        self._bodies.make_room(now_ms)

    def _expel_holder(self, now_ms: int) -> bool:
        """Expel the stranger that costs the most; one that holds nothing has no room to give."""
        holder = self._bodies.costliest(now_ms, self._strangers)
        if holder is None:
            return False
        stranger = cast(HttpGuest, holder)
        self._bodies.forget(stranger)
        self._strangers.leave(stranger)
        stranger.expel()
        return True

    def _make_room(self) -> bool:
        if self._strangers.make_room():
            return True
        waiting = [client for client in self._known if not client.is_busy]
        if not waiting:
            return False
        [(peer, _)] = Counter(client.peer for client in waiting).most_common(1)
        oldest = next(client for client in waiting if client.peer == peer)
        del self._known[oldest]
        oldest.expel()
        return True
