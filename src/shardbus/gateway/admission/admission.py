"""Which connections of a gateway may stay: authorised clients before strangers."""

from __future__ import annotations

from typing import Final, Generic, TypeVar

from shardbus.gateway.admission.guests import Guest, Guests

TURNED_AWAY_MAX: Final = 100
"""Connections beyond the limit that may stay long enough to be told so."""

GuestT = TypeVar("GuestT", bound=Guest)


class Admission(Generic[GuestT]):
    """The connections of a gateway by what is known about them.

    A newcomer is a stranger until it has presented a good token. When all places are taken, the
    oldest stranger of the peer with the most strangers makes room. If there is none, the newcomer
    is refused: it stays without a place until it has been told so.
    """

    def __init__(self, connections_max: int) -> None:
        self.connections_max = connections_max
        self._strangers = Guests()
        self._turned_away = Guests()
        # In the order in which they became known.
        self._known: dict[GuestT, None] = {}

    @property
    def strangers(self) -> int:
        return len(self._strangers) + len(self._turned_away)

    def enter(self, guest: GuestT, now_ms: int = 0) -> bool:
        """Whether there is a place; a guest without one should be told so, and closed.

        `now_ms` matters only to callers that ask how long strangers have been connected.
        """
        is_full = len(self._strangers) + len(self._known) >= self.connections_max
        if not is_full or self._make_room():
            self._strangers.enter(guest, now_ms)
            return True
        if len(self._turned_away) >= TURNED_AWAY_MAX:
            self._turned_away.make_room()
        self._turned_away.enter(guest, now_ms)
        return False

    def trust(self, guest: GuestT) -> bool:
        """The guest has presented a good token; returns whether it was a stranger with a place."""
        if not self._strangers.leave(guest):
            return False
        self._known[guest] = None
        return True

    def leave(self, guest: GuestT) -> None:
        """The guest's connection has ended."""
        if guest in self._known:
            del self._known[guest]
        elif not self._strangers.leave(guest):
            self._turned_away.leave(guest)

    def _make_room(self) -> bool:
        """Close another connection for a newcomer; returns whether there was one."""
        return self._strangers.make_room()
