"""Bytes that arrive piece by piece, however small the pieces are."""

from typing import final

from mypy_extensions import i64

from shardbus.codec.limits import PIECES_MAX


@final
class Pieces:
    """The pieces received so far; `size` is their total.

    A piece of two bytes costs twenty times its size in memory, so small pieces are joined by the
    hundred: the memory is little more than what was sent, and no byte is copied more than twice.
    """

    def __init__(self) -> None:
        self.size: i64 = 0
        self._joined: list[bytes] = []
        self._loose: list[bytes] = []

    def add(self, piece: bytes) -> None:
        if not piece:
            return
        self.size += len(piece)
        self._loose.append(piece)
        if len(self._loose) >= PIECES_MAX:
            self._joined.append(b"".join(self._loose))
            self._loose = []

    def take(self) -> bytes:
        """All bytes in one piece; nothing is left."""
        whole = b"".join(self._joined + self._loose)
        self.clear()
        return whole

    def clear(self) -> None:
        self.size = 0
        self._joined = []
        self._loose = []
