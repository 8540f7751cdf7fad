"""What clients have been sent and do not read, all of them together (docs/adr/0039)."""

from __future__ import annotations

from typing import Final, Protocol, final

PROGRESS_BYTES: Final = 64 * 1024
"""Whoever has read so much is reading."""
ROOM_SHARE: Final = 16
"""When there is too much, room is made for one part in so many more: all are looked at then."""


class AnswerReader(Protocol):
    """A connection that may be slow to read."""

    def unread_bytes(self) -> int:
        """What was written to it and is still here."""
        ...

    def end_unread(self) -> None:
        """Let go of it, and of the connection."""
        ...


@final
class _Lag:
    def __init__(self, now_ms: int) -> None:
        self.size_bytes = 0
        # As much as there was when it last read a fair piece, and when that was.
        self.mark_bytes = 0
        self.since_ms = now_ms

    def cost(self, now_ms: int) -> int:
        """Bytes and time: what it takes from others."""
        return self.size_bytes * (now_ms - self.since_ms + 1)


@final
class Unread:
    """Who is behind, and by how much.

    When it is too much for all together, those end that cost the most: their bytes, times the time
    since they last read a fair piece. Whoever reads costs next to nothing, however large its
    message is.
    """

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.total_bytes = 0
        self._lags: dict[AnswerReader, _Lag] = {}

    def note(self, reader: AnswerReader, size_bytes: int, now_ms: int) -> None:
        """So much waits for a client now; somebody may have to go, it included."""
        lag = self._lags.get(reader)
        if lag is None:
            if not size_bytes:
                return
            lag = _Lag(now_ms)
            self._lags[reader] = lag
        self._put(reader, lag, size_bytes, now_ms)
        if self.total_bytes > self.bytes_max:
            self._make_room(now_ms)

    def forget(self, reader: AnswerReader) -> None:
        """Its connection is over."""
        lag = self._lags.pop(reader, None)
        if lag is not None:
            self.total_bytes -= lag.size_bytes

    def _put(self, reader: AnswerReader, lag: _Lag, size_bytes: int, now_ms: int) -> None:
        self.total_bytes += size_bytes - lag.size_bytes
        lag.size_bytes = size_bytes
        if not size_bytes:
            del self._lags[reader]
            return
        if size_bytes + PROGRESS_BYTES <= lag.mark_bytes:
            lag.since_ms = now_ms
            lag.mark_bytes = size_bytes
        lag.mark_bytes = max(lag.mark_bytes, size_bytes)

    def _make_room(self, now_ms: int) -> None:
        # What was noted may have been read since.
        for reader, lag in list(self._lags.items()):
            self._put(reader, lag, reader.unread_bytes(), now_ms)
        if self.total_bytes <= self.bytes_max:
            return
        costs = {reader: lag.cost(now_ms) for reader, lag in self._lags.items()}
        enough_bytes = self.bytes_max - self.bytes_max // ROOM_SHARE
        for reader in sorted(costs, key=costs.__getitem__, reverse=True):
            if self.total_bytes <= enough_bytes:
                return
            self.forget(reader)
            reader.end_unread()
