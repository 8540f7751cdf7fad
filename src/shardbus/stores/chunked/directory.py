"""What the writer of a store keeps in memory, so that it need not query the database."""
# Compiled by mypyc.

from __future__ import annotations

import logging
from bisect import bisect_right, insort
from typing import Final, final

from shardbus.stores.chunked.chunk import local_of
from shardbus.stores.chunked.journal import (
    OPEN_BYTES_MAX,
    OPEN_BYTES_MAX_BY_KEY,
    OpenPiece,
    unpack_open,
)

log = logging.getLogger(__name__)

# Chunks listed in `recent`, and thus in memory, before they are moved to `place`.
RECENT_MAX: Final = 2048
# Older chunks that are in memory because a message just left them.
OLDER_MAX: Final = 1024


@final
class Chunk:
    """One chunk as described by its row in `recent` or `place` and its row in `gap`."""

    def __init__(
        self, number: int, first: int, span: int, size_bytes: int, due_at_ms: int, is_mixed: bool
    ) -> None:
        self.number = number
        self.first = first
        # From the first number to the last; numbers without a message are in `gone`.
        self.span = span
        self.size_bytes = size_bytes
        self.due_at_ms = due_at_ms
        # Whether `due_at_ms` must be recomputed when a message leaves.
        self.is_mixed = is_mixed
        self.gone = 0
        self.has_gap = False
        self.is_recent = True

    def covers(self, key: int) -> bool:
        return self.first <= key < self.first + self.span

    def holds(self, key: int) -> bool:
        return self.covers(key) and not self.gone >> (key - self.first) & 1

    def is_empty(self) -> bool:
        return self.gone == (1 << self.span) - 1


@final
class Known:
    """Numbers that increase with every commit, which fragments have chunks with parts, and the open
    pieces of journals.

    Where chunks are `by_key`, the number of a chunk is its first key.
    """

    def __init__(self, *, by_key: bool = False) -> None:
        self.by_key = by_key
        self.next_chunk = 1
        self.next_part = 1
        self.last_counters: dict[int, int] = {}
        self.has_parts: set[int] = set()
        self.open_pieces: dict[int, OpenPiece] = {}

    def open_piece(self, local: int) -> OpenPiece:
        """The open piece of a fragment, a new one if it has none."""
        piece = self.open_pieces.get(local)
        if piece is None:
            piece = OpenPiece(local, OPEN_BYTES_MAX_BY_KEY if self.by_key else OPEN_BYTES_MAX)
            self.open_pieces[local] = piece
        return piece

    def load_open(self, local: int, packed: bytes) -> None:
        """Take over the open piece of a journal as it is stored."""
        if not packed:
            return
        blocks = unpack_open(local, packed)
        if blocks is not None:
            self.open_piece(local).restore(blocks)
            return
        log.error(
            "the newest records of events of the fragment with local number %d are damaged, and "
            "are lost with its next commit",
            local,
        )

    def take_number(self, first: int) -> int:
        """The number of a new chunk."""
        if self.by_key:
            return first
        self.next_chunk += 1
        return self.next_chunk - 1


@final
class StoreDirectory:
    """Every recent chunk, and some older ones. Only the writer uses it.

    It is ahead of the database during a commit; after a failed commit it is thrown away and loaded
    again.
    """

    def __init__(self) -> None:
        self.recent_count = 0
        self._older_count = 0
        self._firsts: dict[int, list[int]] = {}
        self._chunks: dict[int, Chunk] = {}

    def add_older(self, chunks: list[Chunk]) -> None:
        """Remember chunks that are in `place`; at the limit, forget others."""
        if self._older_count + len(chunks) > OLDER_MAX:
            self._forget(False)
        self._older_count += len(chunks)
        for chunk in chunks:
            self._insert(chunk)

    def add_recent(self, chunk: Chunk) -> None:
        self.recent_count += 1
        self._insert(chunk)

    def _insert(self, chunk: Chunk) -> None:
        firsts = self._firsts.setdefault(local_of(chunk.first), [])
        if not firsts or firsts[-1] < chunk.first:
            firsts.append(chunk.first)
        else:
            insort(firsts, chunk.first)
        self._chunks[chunk.first] = chunk

    def find(self, key: int) -> Chunk | None:
        """The chunk in memory that covers a key."""
        firsts = self._firsts.get(local_of(key))
        if firsts is None:
            return None
        at = bisect_right(firsts, key)
        if at == 0:
            return None
        chunk = self._chunks[firsts[at - 1]]
        return chunk if chunk.covers(key) else None

    def drop(self, chunk: Chunk) -> None:
        if self._chunks.pop(chunk.first, None) is None:
            return
        if chunk.is_recent:
            self.recent_count -= 1
        else:
            self._older_count -= 1
        local = local_of(chunk.first)
        firsts = self._firsts[local]
        del firsts[bisect_right(firsts, chunk.first) - 1]
        if not firsts:
            del self._firsts[local]

    def age(self) -> None:
        """Note that the recent chunks were moved to `place`, where they are looked up now."""
        self._forget(True)

    def _forget(self, is_recent: bool) -> None:
        for chunk in [c for c in self._chunks.values() if c.is_recent is is_recent]:
            self.drop(chunk)
