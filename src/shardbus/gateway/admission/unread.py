"""What clients were sent and have not read, all of them together (docs/adr/0039)."""

from __future__ import annotations

from typing import Final, Protocol, final

from shardbus.gateway.admission.holdings import PROGRESS_BYTES, Held

ROOM_SHARE: Final = 16
"""When the total is too large, this additional share of the bound is freed, because all connections
are examined then.
"""


class AnswerReader(Protocol):
    """A connection that may be slow to read."""

    def unread_bytes(self) -> int:
        """The bytes that were written to it and not read yet."""
        ...

    def end_unread(self) -> None:
        """Drop them, and close the connection."""
        ...


@final
class Unread:
    """How far each connection is behind.

    When the total is too large, the costliest connections end: their bytes, times the time since
    they last read a fair piece. A client that reads costs almost nothing, however large its message
    is.
    """

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.total_bytes = 0
        self._lags: dict[AnswerReader, Held] = {}

    def note(self, reader: AnswerReader, size_bytes: int, now_ms: int) -> None:
        """Note a connection's unread bytes; the costliest connections, perhaps this one, may have
        to go.
        """
        lag = self._lags.get(reader)
        if lag is None:
            if not size_bytes:
                return
            lag = Held(now_ms)
            self._lags[reader] = lag
        self._put(reader, lag, size_bytes, now_ms)
        if self.total_bytes > self.bytes_max:
            self._make_room(now_ms)

    def forget(self, reader: AnswerReader) -> None:
        """The connection has ended."""
        lag = self._lags.pop(reader, None)
        if lag is not None:
            self.total_bytes -= lag.size_bytes

    def _put(self, reader: AnswerReader, lag: Held, size_bytes: int, now_ms: int) -> None:
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
        # Bytes that were noted may have been read since.
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
