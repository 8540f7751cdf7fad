"""What connections hold of input that is not whole, all of them together (docs/adr/0039)."""

from __future__ import annotations

from collections.abc import Container
from typing import Final, Protocol, final

PROGRESS_BYTES: Final = 64 * 1024
"""Whoever has sent so much more is not holding: it is sending."""


class Holder(Protocol):
    """A connection with something unfinished."""

    def end_holding(self) -> None:
        """Let go of what is unfinished, and tell the client why."""
        ...


@final
class _Held:
    def __init__(self, now_ms: int) -> None:
        self.size_bytes = 0
        # As much as there was when it last got on, and when that was.
        self.mark_bytes = 0
        self.since_ms = now_ms

    def cost(self, now_ms: int) -> int:
        """Bytes and time: what it takes from others."""
        return self.size_bytes * (now_ms - self.since_ms + 1)


@final
class Holdings:
    """Who holds how much.

    A bound for each connection bounds nothing when there may be thousands. When there is too much,
    the one goes that costs the most: its bytes, times the time since it last sent a fair piece. So
    whoever sends a large message gets it through however many only hold theirs.
    """

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.total_bytes = 0
        self._held: dict[Holder, _Held] = {}

    @property
    def is_too_much(self) -> bool:
        return self.total_bytes > self.bytes_max

    def note(self, holder: Holder, size_bytes: int, now_ms: int) -> None:
        """So much is unfinished at a connection now; somebody may have to let go, it included."""
        self.put(holder, size_bytes, now_ms)
        self.make_room(now_ms)

    def put(self, holder: Holder, size_bytes: int, now_ms: int) -> None:
        """So much is unfinished at a connection now."""
        held = self._held.get(holder)
        if held is None:
            if not size_bytes:
                return
            held = _Held(now_ms)
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
        """Let those end that cost the most, until it is not too much."""
        while self.is_too_much:
            self._end_one(now_ms)

    def forget(self, holder: Holder) -> None:
        """Its connection is over."""
        held = self._held.pop(holder, None)
        if held is not None:
            self.total_bytes -= held.size_bytes

    def costliest(self, now_ms: int, among: Container[object]) -> Holder | None:
        """Who of these costs the most; None when none of them holds anything."""
        found = [holder for holder in self._held if holder in among]
        return max(found, key=lambda each: self._held[each].cost(now_ms), default=None)

    def _end_one(self, now_ms: int) -> None:
        holder = max(self._held, key=lambda each: self._held[each].cost(now_ms))
        self.forget(holder)
        holder.end_holding()
