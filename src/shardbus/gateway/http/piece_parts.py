"""Pieces of stages that are larger than a request may be, put together from their parts.

Such a piece is one message. Its parts come one after the other, each in a request with a token of
its own; what is gathered of all pieces is bounded, and given up when nobody adds to it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from shardbus.core.errors import INVALID_ARGUMENT, SERVER_BUSY, STAGE_LOST, TOO_LARGE, Refused

PARTS_MAX: Final = 1_000
"""Of one piece."""
PIECES_MAX: Final = 1_000
"""That are put together at once."""
GATHERED_BYTES_MAX: Final = 256 * 1024 * 1024
"""Of all pieces that a gateway puts together."""
IDLE_MS_MAX: Final = 60_000
"""A piece that nobody adds to for longer is forgotten."""
# What a piece has beside its one message; that is measured when it is whole.
_AROUND_BYTES: Final = 64

Key = tuple[int, str, int]
"""The entity, the stage and the piece."""


@final
class _Gathered:
    def __init__(self, parts: int) -> None:
        self.parts = parts
        self.contents: list[bytes] = []
        self.size_bytes = 0
        self.added_at_ms = 0


@final
class PieceParts:
    """What has come of pieces so far. `steady_ms` tells the time."""

    def __init__(self, steady_ms: Callable[[], int]) -> None:
        self._steady_ms = steady_ms
        self._pieces: dict[Key, _Gathered] = {}
        self._size_bytes = 0

    def add(self, key: Key, part: int, parts: int, content: bytes, size_max: int) -> bytes | None:
        """The whole piece when this was its last part. Refused when its message has more than
        `size_max` bytes, when too much is gathered at once, and when parts before it are missing.

        The part that came last may come again, and the first one begins anew.
        """
        if part >= parts:
            raise Refused(INVALID_ARGUMENT, f"There is no part {part} of {parts}: they begin at 0.")
        now_ms = self._steady_ms()
        self._forget_idle(now_ms)
        if part == 0:
            self._forget(key)
            if len(self._pieces) >= PIECES_MAX:
                raise _busy()
            self._pieces[key] = _Gathered(parts)
        gathered = self._pieces.get(key)
        if gathered is None or gathered.parts != parts:
            raise self._gone(key)
        gathered.added_at_ms = now_ms
        if part == len(gathered.contents) - 1:
            return None
        if part != len(gathered.contents):
            raise self._gone(key)
        self._check_room(key, gathered, len(content), size_max)
        gathered.contents.append(content)
        gathered.size_bytes += len(content)
        self._size_bytes += len(content)
        if len(gathered.contents) < parts:
            return None
        self._forget(key)
        return b"".join(gathered.contents)

    def _check_room(self, key: Key, gathered: _Gathered, size_bytes: int, size_max: int) -> None:
        if gathered.size_bytes + size_bytes > size_max + _AROUND_BYTES:
            self._forget(key)
            raise Refused(TOO_LARGE, f"The entity takes no message of more than {size_max} bytes.")
        if self._size_bytes + size_bytes > GATHERED_BYTES_MAX:
            self._forget(key)
            raise _busy()

    def _gone(self, key: Key) -> Refused:
        self._forget(key)
        return Refused(
            STAGE_LOST, f"The parts of piece {key[2]} before this one are gone: begin it anew."
        )

    def _forget(self, key: Key) -> None:
        gathered = self._pieces.pop(key, None)
        if gathered is not None:
            self._size_bytes -= gathered.size_bytes

    def _forget_idle(self, now_ms: int) -> None:
        late = [key for key, one in self._pieces.items() if now_ms - one.added_at_ms > IDLE_MS_MAX]
        for key in late:
            self._forget(key)


def _busy() -> Refused:
    return Refused(
        SERVER_BUSY, "Too many large messages are put at once: put the stage again later."
    )
