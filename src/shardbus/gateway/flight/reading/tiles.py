"""Columns of texts and bytes without an object per value.

The payloads of a batch lie one after the other in one buffer. Each value of a column is a *tile* of
that buffer: a column is a list of tile numbers, and Arrow copies the bytes. Tile 0 is null.
"""
# Compiled by mypyc.

from __future__ import annotations

from typing import Final, final

from librt.strings import BytesWriter, read_i32_le, write_i32_le
from mypy_extensions import i32, i64

NULL_TILE: Final = 0


@final
class Tiles:
    """The tiles of a buffer, in the order of its bytes, and values that are in no buffer.

    Between two tiles is an unused one, so their numbers are even. Values that had to be written
    again, *extras*, have negative numbers until `extras_at` says where they begin. Arrow trusts the
    offsets it is given, so values outside of the message are refused here.
    """

    def __init__(self) -> None:
        self.offsets = BytesWriter()
        write_i32_le(self.offsets, 0)
        write_i32_le(self.offsets, 0)
        self.last: i64 = 0
        self.extras: list[bytes] = []
        self._at: i64 = 0
        self._limit: i64 = 0

    def enter(self, start: i64, end: i64) -> None:
        """From now on tiles are cut from this range, which is after all earlier ones."""
        self._at = start
        self._limit = end

    def cut(self, start: i64, end: i64) -> i64:
        """The number of a new tile; ValueError if it begins before the end of the last one."""
        if start < self._at or end < start or end > self._limit:
            raise ValueError("a value is outside of its message")
        self._at = end
        write_i32_le(self.offsets, i32(start))
        write_i32_le(self.offsets, i32(end))
        self.last += 2
        return self.last

    def extra(self, value: bytes) -> i64:
        """The number of a value that is not in the buffer in the form to be shown."""
        self.extras.append(value)
        return -len(self.extras)

    def count(self) -> int:
        """The number of tiles, including unused ones."""
        return self.last + 1


@final
class TileColumn:
    """The tile of each row; rows that are left out are null."""

    def __init__(self) -> None:
        self._numbers = BytesWriter()
        self._count: i64 = 0
        self._has_extras = False

    def put(self, row: i64, tile: i64) -> None:
        """Set the tile of a row; ValueError if this or a later row already has one."""
        if self._count > row:
            raise ValueError("a second value")
        while self._count < row:
            write_i32_le(self._numbers, NULL_TILE)
            self._count += 1
        write_i32_le(self._numbers, i32(tile))
        self._count += 1
        if tile < 0:
            self._has_extras = True

    def is_null(self) -> bool:
        return self._count == 0

    def numbers(self, count: int, extras_at: int) -> bytes:
        """The tiles of `count` rows, four bytes each; extras are those from `extras_at` on."""
        missing: i64 = count - self._count
        while missing > 0:
            write_i32_le(self._numbers, NULL_TILE)
            missing -= 1
        self._count = count
        packed = self._numbers.getvalue()
        return _resolved(packed, extras_at) if self._has_extras else packed


@final
class MapColumn:
    """Pairs of texts for each row, in the order of rows."""

    def __init__(self) -> None:
        self.keys = TileColumn()
        self.values = TileColumn()
        self.pair_count: i64 = 0
        self.ends = BytesWriter()
        write_i32_le(self.ends, 0)

    def put(self, key: i64, value: i64) -> None:
        self.keys.put(self.pair_count, key)
        if value != NULL_TILE:
            self.values.put(self.pair_count, value)
        self.pair_count += 1

    def end_row(self) -> None:
        write_i32_le(self.ends, i32(self.pair_count))


def _resolved(packed: bytes, extras_at: i64) -> bytes:
    resolved = BytesWriter()
    at: i64 = 0
    while at < len(packed):
        number: i64 = i64(read_i32_le(packed, at))
        if number < 0:
            number = extras_at - number - 1
        write_i32_le(resolved, i32(number))
        at += 4
    return resolved.getvalue()
