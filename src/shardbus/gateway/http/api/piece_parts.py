"""Pieces of stages that are larger than a request may be, put together from their parts.

Such a piece is one message. Its parts come one after the other, each in a request with a token of
its own; what is gathered of all pieces is bounded, and given up when nobody adds to it. A client is
the access rule whose tokens it shows: it has half of the room at most, and when all of the room is
taken, the client that has the most makes room for one that has less.
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
CLIENT_PIECES_MAX: Final = PIECES_MAX // 2
CLIENT_BYTES_MAX: Final = GATHERED_BYTES_MAX // 2
"""Of the pieces of one client; the largest message that an entity takes has room in it."""
IDLE_MS_MAX: Final = 60_000
"""A piece that nobody adds to for longer is forgotten."""
# What a piece has beside its one message; that is measured when it is whole.
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
    """What a client has. Pieces are in the order in which parts were last added to them."""

    def __init__(self) -> None:
        self.pieces: dict[Key, _Gathered] = {}
        self.size_bytes = 0


@final
class PieceParts:
    """What has come of pieces so far. `steady_ms` tells the time."""

    def __init__(self, steady_ms: Callable[[], int]) -> None:
        self._steady_ms = steady_ms
        self._clients: dict[str, _Client] = {}
        self._count = 0
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
        """A piece, which is the last one of its client to be given up now."""
        client = self._clients.get(key[0])
        gathered = None if client is None else client.pieces.pop(key, None)
        if client is not None and gathered is not None:
            client.pieces[key] = gathered
        return gathered

    def _check_room(self, key: Key, gathered: _Gathered, size_bytes: int, size_max: int) -> None:
        if gathered.size_bytes + size_bytes > size_max + _AROUND_BYTES:
            self._forget(key)
            raise Refused(TOO_LARGE, f"The entity takes no message of more than {size_max} bytes.")
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
            STAGE_LOST, f"The parts of piece {key[3]} before this one are gone: begin it anew."
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
        f"Clients of one access rule put at most {what} at once: put fewer at a time, or put the "
        "stage again when those before it are whole.",
    )


def _busy() -> Refused:
    return Refused(
        SERVER_BUSY, "Too many large messages are put at once: put the stage again later."
    )
