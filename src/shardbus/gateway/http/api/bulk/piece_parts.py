"""Assembles pieces of stages that are larger than a request may be from their parts.

Such a piece is one message. Its parts arrive one after another, each in a request with its own
token. The size of all incomplete pieces is bounded, and a piece is dropped if no part is added for
a while. A client is identified by the access rule of its tokens. It may use half of the room; when
all room is used, the client with the most makes room for one with less.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from shardbus.core.errors import INVALID_ARGUMENT, SERVER_BUSY, STAGE_LOST, TOO_LARGE, Refused

PARTS_MAX: Final = 1_000
"""The parts of one piece."""
PIECES_MAX: Final = 1_000
"""Pieces that are assembled at once."""
GATHERED_BYTES_MAX: Final = 256 * 1024 * 1024
"""The bytes of all pieces that a gateway assembles."""
CLIENT_PIECES_MAX: Final = PIECES_MAX // 2
CLIENT_BYTES_MAX: Final = GATHERED_BYTES_MAX // 2
"""The bytes of one client's pieces; the largest message of any entity fits."""
IDLE_MS_MAX: Final = 60_000
"""A piece to which no part is added for longer is dropped."""
# The bytes of a piece beside its message; the exact size is checked when the piece is complete.
_AROUND_BYTES: Final = 64

Key = tuple[str, int, str, int]
"""The client, the entity, the stage and the piece."""


@final
class _Gathered:
    def __init__(self, parts: int) -> None:
        self.parts = parts
        self.contents: list[bytes] = []
        self.size_bytes = 0
        self.added_at_ms = 0


@final
class _Client:
    """The pieces of a client, in the order in which parts were last added."""

    def __init__(self) -> None:
        self.pieces: dict[Key, _Gathered] = {}
        self.size_bytes = 0


@final
class PieceParts:
    """The parts received so far. `steady_ms` is the clock."""

    def __init__(self, steady_ms: Callable[[], int]) -> None:
        self._steady_ms = steady_ms
        self._clients: dict[str, _Client] = {}
        self._count = 0
        self._size_bytes = 0

    def add(self, key: Key, part: int, parts: int, content: bytes, size_max: int) -> bytes | None:
        """Add a part; returns the whole piece after its last part. Refused when its message has
        more than `size_max` bytes, when incomplete pieces are too large together, and when earlier
        parts are missing.

        The latest part may be repeated, and the first part restarts the piece.
        """
        if part >= parts:
            raise Refused(
                INVALID_ARGUMENT, f"There is no part {part} of {parts}: parts are numbered from 0."
            )
        now_ms = self._steady_ms()
        self._forget_idle(now_ms)
        if part == 0:
            self._begin(key, parts)
        gathered = self._touched(key)
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
        self._clients[key[0]].size_bytes += len(content)
        self._size_bytes += len(content)
        if len(gathered.contents) < parts:
            return None
        self._forget(key)
        return b"".join(gathered.contents)

    def _begin(self, key: Key, parts: int) -> None:
        self._forget(key)
        client = self._clients.get(key[0])
        count = 0 if client is None else len(client.pieces)
        if count >= CLIENT_PIECES_MAX:
            raise _too_much(f"{CLIENT_PIECES_MAX} large messages")
        if self._count >= PIECES_MAX:
            most = max(self._clients.values(), key=_count_of)
            if len(most.pieces) <= count + 1:
                raise _busy()
            self._forget(next(iter(most.pieces)))
        self._clients.setdefault(key[0], _Client()).pieces[key] = _Gathered(parts)
        self._count += 1

    def _touched(self, key: Key) -> _Gathered | None:
        """The piece; it becomes the last one of its client to be dropped."""
        client = self._clients.get(key[0])
        gathered = None if client is None else client.pieces.pop(key, None)
        if client is not None and gathered is not None:
            client.pieces[key] = gathered
        return gathered

    def _check_room(self, key: Key, gathered: _Gathered, size_bytes: int, size_max: int) -> None:
        if gathered.size_bytes + size_bytes > size_max + _AROUND_BYTES:
            self._forget(key)
            raise Refused(TOO_LARGE, f"The entity allows messages of at most {size_max} bytes.")
        wanted_bytes = self._clients[key[0]].size_bytes + size_bytes
        if wanted_bytes > CLIENT_BYTES_MAX:
            self._forget(key)
            raise _too_much(f"{CLIENT_BYTES_MAX} bytes of large messages")
        while self._size_bytes + size_bytes > GATHERED_BYTES_MAX:
            most = max(self._clients.values(), key=_bytes_of)
            if most.size_bytes <= wanted_bytes:
                self._forget(key)
                raise _busy()
            self._forget(next(iter(most.pieces)))

    def _gone(self, key: Key) -> Refused:
        self._forget(key)
        return Refused(
            STAGE_LOST,
            f"The earlier parts of piece {key[3]} were dropped: send the piece again from its "
            f"first part.",
        )

    def _forget(self, key: Key) -> None:
        client = self._clients.get(key[0])
        gathered = None if client is None else client.pieces.pop(key, None)
        if client is None or gathered is None:
            return
        client.size_bytes -= gathered.size_bytes
        self._size_bytes -= gathered.size_bytes
        self._count -= 1
        if not client.pieces:
            del self._clients[key[0]]

    def _forget_idle(self, now_ms: int) -> None:
        late = [
            key
            for client in self._clients.values()
            for key, one in client.pieces.items()
            if now_ms - one.added_at_ms > IDLE_MS_MAX
        ]
        for key in late:
            self._forget(key)


def _count_of(client: _Client) -> int:
    return len(client.pieces)


def _bytes_of(client: _Client) -> int:
    return client.size_bytes


def _too_much(what: str) -> Refused:
    return Refused(
        SERVER_BUSY,
        f"Clients of one access rule may put at most {what} at once: put fewer at a time, or "
        "put the stage again when the earlier ones are complete.",
    )


def _busy() -> Refused:
    return Refused(
        SERVER_BUSY, "Too many large messages are being put at once: put the stage again later."
    )
