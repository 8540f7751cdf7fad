"""The incomplete input of all connections together (docs/adr/0039)."""

from __future__ import annotations

from collections.abc import Container
from typing import Final, Protocol, final

PROGRESS_BYTES: Final = 64 * 1024
"""A connection that has sent, or read, this much more is making progress."""


class Holder(Protocol):
    """A connection with incomplete input."""

    def end_holding(self) -> None:
        """Drop the incomplete input, and tell the client why."""
        ...


@final
class Held:
    """The bytes that one connection occupies, and since when it has made no progress."""

    def __init__(self, now_ms: int) -> None:
        self.size_bytes = 0
        # The size when it last made progress, and when that was.
        self.mark_bytes = 0
        self.since_ms = now_ms

    def cost(self, now_ms: int) -> int:
        """Bytes times time: what it takes from others."""
        return self.size_bytes * (now_ms - self.since_ms + 1)


@final
class Holdings:
    """How much each connection holds.

    A bound for each connection is not enough when there may be thousands. When the total is too
    large, the costliest connection must go: its bytes, times the time since it last sent a fair
    piece. So a client that sends a large message succeeds, however many others only hold theirs.
    """

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.total_bytes = 0
        self._held: dict[Holder, Held] = {}

    @property
    def is_too_much(self) -> bool:
        return self.total_bytes > self.bytes_max

    def note(self, holder: Holder, size_bytes: int, now_ms: int) -> None:
        """Note a connection's incomplete bytes; the costliest connections, perhaps this one, may
        have to go.
        """
        self.put(holder, size_bytes, now_ms)
        self.make_room(now_ms)

    def put(self, holder: Holder, size_bytes: int, now_ms: int) -> None:
        """Note a connection's incomplete bytes."""
        held = self._held.get(holder)
        if held is None:
            if not size_bytes:
                return
            held = Held(now_ms)
            self._held[holder] = held
        self.total_bytes += size_bytes - held.size_bytes
        held.size_bytes = size_bytes
        if not size_bytes:
            del self._held[holder]
            return
        held.mark_bytes = min(held.mark_bytes, size_bytes)
        if size_bytes >= held.mark_bytes + PROGRESS_BYTES:
            held.mark_bytes = size_bytes
            held.since_ms = now_ms

    def make_room(self, now_ms: int) -> None:
        """End the costliest connections until the total is within the bound."""
        while self.is_too_much:
            self._end_one(now_ms)

    def forget(self, holder: Holder) -> None:
        """The connection has ended."""
        held = self._held.pop(holder, None)
        if held is not None:
            self.total_bytes -= held.size_bytes

    def costliest(self, now_ms: int, among: Container[object]) -> Holder | None:
        """The costliest of these connections; None when none of them holds anything."""
        found = [holder for holder in self._held if holder in among]
        return max(found, key=lambda each: self._held[each].cost(now_ms), default=None)

    def _end_one(self, now_ms: int) -> None:
        holder = max(self._held, key=lambda each: self._held[each].cost(now_ms))
        self.forget(holder)
        holder.end_holding()
