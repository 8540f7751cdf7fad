"""Connections that are not authorised yet, and which of them must go when there are too many."""

from __future__ import annotations

from typing import Protocol, final


class Guest(Protocol):
    """A connection that is not authorised yet."""

    @property
    def peer(self) -> str:
        """The address that it counts for; it never changes."""
        ...

    def expel(self) -> None:
        """Make room for others. The guest is no longer counted."""
        ...


@final
class Guests:
    """Guests by peer and by age.

    The oldest guest of the peer that has the most makes room. So a flood costs the peer that makes
    it, a newcomer always gets in, and a peer with few guests keeps them. Every step takes the same
    time, however many guests there are.
    """

    def __init__(self) -> None:
        self._arrivals_ms: dict[Guest, int] = {}
        self._by_peer: dict[str, dict[Guest, None]] = {}
        self._peers_with: dict[int, dict[str, None]] = {}
        self._most = 0

    def __len__(self) -> int:
        return len(self._arrivals_ms)

    def __contains__(self, guest: object) -> bool:
        return guest in self._arrivals_ms

    def enter(self, guest: Guest, now_ms: int) -> None:
        assert guest not in self._arrivals_ms
        self._arrivals_ms[guest] = now_ms
        guests = self._by_peer.setdefault(guest.peer, {})
        guests[guest] = None
        self._recount(guest.peer, len(guests) - 1, len(guests))

    def leave(self, guest: Guest) -> bool:
        """Remove a guest; returns whether it was here."""
        if self._arrivals_ms.pop(guest, None) is None:
            return False
        guests = self._by_peer[guest.peer]
        del guests[guest]
        self._recount(guest.peer, len(guests) + 1, len(guests))
        if not guests:
            del self._by_peer[guest.peer]
        return True

    def make_room(self) -> bool:
        """Expel the oldest guest of the peer with the most; returns whether there was one."""
        if not self._arrivals_ms:
            return False
        peer = next(iter(self._peers_with[self._most]))
        guest = next(iter(self._by_peer[peer]))
        self.leave(guest)
        guest.expel()
        return True

    def expel_one_before(self, moment_ms: int) -> bool:
        """Expel the oldest guest of all if it came before this moment; returns whether it did."""
        oldest = next(iter(self._arrivals_ms.items()), None)
        if oldest is None or oldest[1] >= moment_ms:
            return False
        self.leave(oldest[0])
        oldest[0].expel()
        return True

    def overdue(self, before_ms: int) -> list[Guest]:
        """The guests that came before this moment; they stay until they leave or are expelled."""
        found: list[Guest] = []
        for guest, arrived_ms in self._arrivals_ms.items():
            if arrived_ms >= before_ms:
                break
            found.append(guest)
        return found

    def guests(self) -> list[Guest]:
        """All of them, the oldest first."""
        return list(self._arrivals_ms)

    def _recount(self, peer: str, before: int, after: int) -> None:
        """`_peers_with` holds the peers by their number of guests, and `_most` is the largest."""
        if before:
            peers = self._peers_with[before]
            del peers[peer]
            if not peers:
                del self._peers_with[before]
        if after:
            self._peers_with.setdefault(after, {})[peer] = None
        if after > self._most or self._most not in self._peers_with:
            self._most = after
