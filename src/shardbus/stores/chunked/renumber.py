"""Records of a fragment that gets another local number: the same contents, sealed again.

Every record has the local number of its fragment in its bytes or in its checksum, so that a record
in a wrong place is noticed. A store in which the number is taken gives the fragment another one.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Final, final

from xxhash import xxh3_64_intdigest

from shardbus.stores.chunked.chunk import (
    CHECKSUM_BYTES,
    COUNTER_MAX,
    COUNTERS_BYTES,
    key_of,
    parts_of,
    unpack_counters,
    unpack_gap,
    unpack_head,
    unpack_record,
    unpack_remembered,
    unpack_session_state,
    unpack_state,
)
from shardbus.stores.chunked.journal import open_in, unpack_open
from shardbus.stores.chunked.staged import unpack_staged

_NUMBER: Final = Struct("<q")
_CHECKSUM: Final = Struct("<Q")
# Where the key is in a head, and where key or local number are in all other records that have it.
_IN_HEAD: Final = 4
_IN_RECORD: Final = 2


@final
class Renumbering:
    """From the local number `old` to `new`; `part_of` gives the new number of a part.

    Every method returns None for a record that is damaged.
    """

    def __init__(self, old: int, new: int, part_of: Callable[[int], int]) -> None:
        self.old = old
        self.new = new
        self._part_of = part_of

    def key(self, key: int) -> int:
        return key_of(self.new, key & COUNTER_MAX)

    def counters(self, data: bytes) -> bytes | None:
        if unpack_counters(self.old, data) is None:
            return None
        return _sealed(data[: COUNTERS_BYTES - CHECKSUM_BYTES], self.new)

    def open_piece(self, counters: bytes) -> bytes | None:
        """The open piece that follows counters, empty if there is none."""
        data = open_in(counters)
        if not data:
            return b""
        return None if unpack_open(self.old, data) is None else _renumbered(data, self.new)

    def head(self, key: int, data: bytes) -> bytes | None:
        if unpack_head(key, data) is None:
            return None
        head = bytearray(data[:-CHECKSUM_BYTES])
        _NUMBER.pack_into(head, _IN_HEAD, self.key(key))
        parts = parts_of(data)
        at = len(head) - len(parts) * _NUMBER.size
        for part in parts:
            _NUMBER.pack_into(head, at, self._part_of(part))
            at += _NUMBER.size
        return _sealed(bytes(head))

    def gap(self, key: int, data: bytes) -> bytes | None:
        if unpack_gap(key, data) < 0:
            return None
        return _sealed(data[:-CHECKSUM_BYTES], self.key(key))

    def state(self, key: int, data: bytes) -> bytes | None:
        if unpack_state(key, 0, data) is None:
            return None
        return _renumbered(data, self.key(key))

    def session_state(self, data: bytes) -> bytes | None:
        found = unpack_session_state(data)
        if found is None or found.local != self.old:
            return None
        return _renumbered(data, self.new)

    def remembered(self, data: bytes) -> bytes | None:
        if unpack_remembered(self.old, data) is None:
            return None
        return _sealed(data[:-CHECKSUM_BYTES], self.new)

    def record(self, data: bytes) -> bytes | None:
        found = unpack_record(data)
        if found is None or found[0] != self.old:
            return None
        return _renumbered(data, self.new)

    def staged(self, data: bytes) -> tuple[bytes, list[int]] | None:
        """A piece of a stage, and its parts."""
        piece = unpack_staged(data)
        if piece is None or piece.local != self.old:
            return None
        piece.local = self.new
        for part in piece.parts:
            part.number = self._part_of(part.number)
        return piece.pack(), piece.part_numbers()


def _renumbered(data: bytes, number: int) -> bytes:
    record = bytearray(data[:-CHECKSUM_BYTES])
    _NUMBER.pack_into(record, _IN_RECORD, number)
    return _sealed(bytes(record))


def _sealed(data: bytes, seed: int = 0) -> bytes:
    return data + _CHECKSUM.pack(xxh3_64_intdigest(data, seed=seed))
