"""How the blocks of a journal are stored: several in one piece of the stage LIFECYCLE_STAGE.

Each commit of a fragment with a journal has a block, and a row for each would make the commit of
many fragments dear. So new blocks are added to the *open piece* of the fragment, which is
stored after its counters, in the row that every commit writes. When the open piece is full it is
*closed*: it becomes a row of `stage`, under the number of its last block.

    piece   record of version 3: for each block (number i64, bytes u32, the block)

A piece with a single block is the block itself, as in stores of earlier builds.
"""
# Compiled by mypyc.

from __future__ import annotations

from struct import Struct, error
from typing import Final, final

from shardbus.core.lifecycle.journal import LIFECYCLE_STAGE
from shardbus.stores.chunked.chunk import (
    BLOCKS_VERSION,
    COUNTERS_BYTES,
    FORMAT_VERSION,
    pack_versioned,
    unpack_versioned,
)

# A piece that has more is closed. SQLite logs whole pages: the more there are, the dearer a commit.
# PostgreSQL needs several statements to close pieces, and leaves rows of less than two kilobytes as
# they are.
OPEN_BYTES_MAX: Final = 512
OPEN_BYTES_MAX_BY_KEY: Final = 1536
# From the first number of a piece to the last, and one more.
PIECE_SPAN_MAX: Final = 32
# So many commits of its fragment without a block, and the piece is closed.
IDLE_COMMITS_MAX: Final = 16

_BLOCK: Final = Struct("<qI")

Block = tuple[int, bytes]
"""The number of a block, and its bytes."""

ClosedPiece = tuple[int, int, bytes]
"""The local number of a fragment, the number of the piece, and its record."""


@final
class OpenPiece:
    """The newest blocks of a fragment, which the writer knows as they are stored."""

    def __init__(self, local: int, bytes_max: int) -> None:
        self.last = 0
        self._local = local
        self._bytes_max = bytes_max
        self._first = 0
        self._count = 0
        self._data = b""
        self._idle = 0

    def is_empty(self) -> bool:
        return self._count == 0

    def is_half_full(self) -> bool:
        return 2 * len(self._data) >= self._bytes_max

    def add(self, number: int, block: bytes, closed: list[ClosedPiece]) -> None:
        """Add a block; a piece that it fills, or to which it cannot be added, is closed."""
        self._idle = 0
        # Rows of a node of an earlier build may be in a gap: pieces must not overlap.
        is_next = number == self.last + 1 and number - self._first < PIECE_SPAN_MAX
        if self._count and not is_next:
            self.close(closed)
        if self._count == 0:
            self._first = number
        self.last = number
        self._count += 1
        self._data += _BLOCK.pack(number, len(block)) + block
        if len(self._data) > self._bytes_max:
            self.close(closed)

    def pass_by(self, closed: list[ClosedPiece]) -> None:
        """Note a commit of the fragment without a block: who stopped recording pays no more."""
        self._idle += 1
        if self._idle >= IDLE_COMMITS_MAX:
            self.close(closed)

    def close(self, closed: list[ClosedPiece]) -> None:
        closed.append((self._local, self.last, self.packed()))
        self.clear()

    def clear(self) -> None:
        self._count = 0
        self._data = b""

    def drop(self, until: int) -> None:
        """Forget the blocks up to a number."""
        if not self._count or self._first > until:
            return
        kept = [block for block in blocks_in(self._data) or () if block[0] > until]
        self.clear()
        if kept:
            self.restore(kept)

    def packed(self) -> bytes:
        if self._count == 1:
            block = self._data[_BLOCK.size :]
            return pack_versioned(FORMAT_VERSION, self._local, self.last, LIFECYCLE_STAGE, block)
        return pack_versioned(BLOCKS_VERSION, self._local, self.last, LIFECYCLE_STAGE, self._data)

    def restore(self, blocks: list[Block]) -> None:
        """Become what is stored."""
        self._first, self.last = blocks[0][0], blocks[-1][0]
        self._count = len(blocks)
        self._data = b"".join([_BLOCK.pack(number, len(data)) + data for number, data in blocks])


def open_in(counters: bytes) -> bytes:
    """The record of the open piece in the row of a fragment, empty if there is none."""
    return counters[COUNTERS_BYTES:]


def unpack_open(local: int, packed: bytes) -> list[Block] | None:
    """The blocks of an open piece by ascending numbers, None if it is damaged."""
    found = unpack_versioned(packed)
    return None if found is None else unpack_piece(local, found[2], packed)


def unpack_piece(local: int, number: int, packed: bytes) -> list[Block] | None:
    """The blocks of a piece by ascending numbers, None if it is damaged or another one."""
    found = unpack_versioned(packed)
    if found is None or found[1:4] != (local, number, LIFECYCLE_STAGE):
        return None
    return [(number, found[4])] if found[0] != BLOCKS_VERSION else blocks_in(found[4])


def blocks_in(data: bytes) -> list[Block] | None:
    """The blocks in the data of a piece that has several, None if they are not whole."""
    blocks: list[Block] = []
    at = 0
    try:
        while at < len(data):
            number, size = _BLOCK.unpack_from(data, at)
            at += _BLOCK.size + size
            blocks.append((number, data[at - size : at]))
    except error:
        return None
    return blocks if at == len(data) and blocks else None
