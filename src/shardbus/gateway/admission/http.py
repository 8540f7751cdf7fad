"""Which HTTP connections may stay when there are many: known clients before strangers."""

from __future__ import annotations

from collections import Counter
from typing import Final, Protocol, cast, final

from shardbus.gateway.admission.admission import Admission
from shardbus.gateway.admission.guests import Guest
from shardbus.gateway.admission.holdings import Holder, Holdings
from shardbus.gateway.admission.unread import AnswerReader, Unread

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
class HttpAdmission(Admission[HttpGuest]):
    """The HTTP connections of a gateway; one is trusted once a request of it had a good token.

    After the strangers, the oldest known client of the noisiest peer that is not being answered
    makes room.
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
