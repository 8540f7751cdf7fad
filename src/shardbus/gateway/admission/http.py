"""Which HTTP connections may stay when there are many: authorised clients before strangers."""

from __future__ import annotations

from collections import Counter
from typing import Final, Protocol, cast, final

from shardbus.gateway.admission.admission import Admission
from shardbus.gateway.admission.guests import Guest
from shardbus.gateway.admission.holdings import Holder, Holdings
from shardbus.gateway.admission.unread import AnswerReader, Unread

BODIES_BYTES_MAX: Final = 64 * 1024 * 1024
"""Bytes of incomplete requests over all connections: no token is checked before they are
complete.
"""
ANSWERS_BYTES_MAX: Final = 256 * 1024 * 1024
"""Bytes of answers that clients have not read."""


class HttpGuest(Guest, Holder, AnswerReader, Protocol):
    """An HTTP connection."""

    @property
    def is_busy(self) -> bool:
        """Whether a request is being answered."""
        ...


@final
class HttpAdmission(Admission[HttpGuest]):
    """The HTTP connections of a gateway; one is trusted once a request of it had a good token.

    After the strangers, the oldest idle connection of the peer with the most connections makes
    room.
    """

    def __init__(self, connections_max: int) -> None:
        super().__init__(connections_max)
        self._bodies = Holdings(BODIES_BYTES_MAX)
        self.unread = Unread(ANSWERS_BYTES_MAX)

    def leave(self, client: HttpGuest) -> None:
        self._bodies.forget(client)
        self.unread.forget(client)
        super().leave(client)

    def hold(self, client: HttpGuest, size_bytes: int, now_ms: int) -> None:
        """Note how many bytes a client's incomplete request has.

        When the total is too large strangers make room first, then the connections that hold the
        most for the longest time.
        """
        if not size_bytes:
            self._bodies.forget(client)
            return
        self._bodies.put(client, size_bytes, now_ms)
        while self._bodies.is_too_much and self._expel_holder(now_ms):
            pass
        self._bodies.make_room(now_ms)

    def _expel_holder(self, now_ms: int) -> bool:
        """Expel the costliest stranger; a stranger that holds nothing would free nothing."""
        holder = self._bodies.costliest(now_ms, self._strangers)
        if holder is None:
            return False
        stranger = cast(HttpGuest, holder)
        self._bodies.forget(stranger)
        self._strangers.leave(stranger)
        stranger.expel()
        return True

    def _make_room(self) -> bool:
        if super()._make_room():
            return True
        waiting = [client for client in self._known if not client.is_busy]
        if not waiting:
            return False
        [(peer, _)] = Counter(client.peer for client in waiting).most_common(1)
        oldest = next(client for client in waiting if client.peer == peer)
        del self._known[oldest]
        oldest.expel()
        return True
