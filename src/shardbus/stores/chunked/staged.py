"""The bytes of a piece of a stage, and how its payloads lie in parts until chunks adopt them.

A piece is a kept record (see `chunk`) whose kind is the number of the piece. Payloads beside it are
in parts, each of which becomes one chunk, and the record describes them:

    piece   record of version 2: bytes of data u32, data, parts u32,
            parts x (number i64, payloads u32, checksum of the part u64),
            for each payload (bytes u32, checksum u64)
"""
# Compiled by mypyc.

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import Final, final

from xxhash import xxh3_64_intdigest

from shardbus.core.fragment.change import Adopt
from shardbus.stores.chunked.chunk import (
    BLOCKS_VERSION,
    CHUNK_BYTES_MAX,
    CHUNK_COUNT_MAX,
    FORMAT_VERSION,
    PIECE_VERSION,
    due_of,
    pack_adopted,
    pack_versioned,
    unpack_versioned,
)

_COUNT: Final = Struct("<I")
_PART: Final = Struct("<qIQ")
_PAYLOAD: Final = Struct("<IQ")


@lru_cache(maxsize=64)
def _payloads_struct(count: int) -> Struct:
    return Struct("<" + "IQ" * count)


@lru_cache(maxsize=64)
def _sizes_struct(count: int) -> Struct:
    return Struct("<" + "I8x" * count)


@final
class StagedPart:
    """Consecutive payloads of a piece. `described` has the bytes and the checksum of each, as they
    are stored: nobody needs them one by one.
    """

    def __init__(self, number: int, digest: int, described: bytes) -> None:
        self.number = number
        self.digest = digest
        self.described = described
        self.count = len(described) // _PAYLOAD.size
        self.size_bytes = 0
        for size_bytes in _sizes_struct(self.count).unpack(described):
            self.size_bytes += size_bytes

    def is_whole(self, body: bytes) -> bool:
        return len(body) == self.size_bytes and int(xxh3_64_intdigest(body)) == self.digest


@final
class StagedPiece:
    """The description of a piece; without parts, all of it is in `data`.

    `has_blocks`: it is a piece of a journal, of several blocks (see `journal`).
    """

    def __init__(
        self, local: int, stage: bytes, piece: int, data: bytes, *, has_blocks: bool = False
    ) -> None:
        self.has_blocks = has_blocks
        self.local = local
        self.stage = stage
        self.piece = piece
        self.data = data
        self.parts: list[StagedPart] = []

    def count(self) -> int:
        count = 0
        for part in self.parts:
            count += part.count
        return count

    def name(self) -> tuple[int, bytes, int]:
        return self.local, self.stage, self.piece

    def part_numbers(self) -> list[int]:
        return [part.number for part in self.parts]

    def keep(self, payloads: list[bytes], next_part: int) -> list[bytes]:
        """Divide payloads into parts with numbers from `next_part` on; returns the bytes of each
        part.
        """
        bodies: list[bytes] = []
        start = 0
        size_bytes = 0
        for position, payload in enumerate(payloads):
            is_full = position - start >= CHUNK_COUNT_MAX
            if position > start and (is_full or size_bytes + len(payload) > CHUNK_BYTES_MAX):
                bodies.append(self._keep(payloads[start:position], next_part + len(bodies)))
                start = position
                size_bytes = 0
            size_bytes += len(payload)
        if payloads:
            bodies.append(self._keep(payloads[start:], next_part + len(bodies)))
        return bodies

    def _keep(self, payloads: list[bytes], number: int) -> bytes:
        body = b"".join(payloads)
        numbers: list[int] = []
        for payload in payloads:
            numbers.append(len(payload))
            numbers.append(int(xxh3_64_intdigest(payload)))
        described: bytes = _payloads_struct(len(payloads)).pack(*numbers)
        self.parts.append(StagedPart(number, int(xxh3_64_intdigest(body)), described))
        return body

    def pack(self) -> bytes:
        if not self.parts:
            version = BLOCKS_VERSION if self.has_blocks else FORMAT_VERSION
            return pack_versioned(version, self.local, self.piece, self.stage, self.data)
        packed = [_COUNT.pack(len(self.data)), self.data, _COUNT.pack(len(self.parts))]
        for part in self.parts:
            packed.append(_PART.pack(part.number, part.count, part.digest))
        for part in self.parts:
            packed.append(part.described)
        return pack_versioned(PIECE_VERSION, self.local, self.piece, self.stage, b"".join(packed))


def staged_data(packed: bytes) -> tuple[int, bytes, int, bytes] | None:
    """Local number, stage, number of the piece and its data; None if it is damaged."""
    found = unpack_versioned(packed)
    if found is None:
        return None
    version, local, number, stage, data = found
    if version == PIECE_VERSION:
        data = data[_COUNT.size : _COUNT.size + int(_COUNT.unpack_from(data, 0)[0])]
    return local, stage, number, data


def unpack_staged(packed: bytes) -> StagedPiece | None:
    """Read what `StagedPiece.pack` wrote; None if it is damaged."""
    found = unpack_versioned(packed)
    if found is None:
        return None
    version, local, number, stage, data = found
    if version != PIECE_VERSION:
        is_blocks = version == BLOCKS_VERSION
        return StagedPiece(local, stage, number, data, has_blocks=is_blocks)
    parts_at = _COUNT.size + int(_COUNT.unpack_from(data, 0)[0])
    piece = StagedPiece(local, stage, number, data[_COUNT.size : parts_at])
    parts: int = _COUNT.unpack_from(data, parts_at)[0]
    at = parts_at + _COUNT.size
    payloads_at = at + parts * _PART.size
    for part_number, count, digest in _PART.iter_unpack(data[at:payloads_at]):
        payloads_end = payloads_at + count * _PAYLOAD.size
        piece.parts.append(StagedPart(part_number, digest, data[payloads_at:payloads_end]))
        payloads_at = payloads_end
    return piece


@final
class Adopted:
    """The chunk that a part becomes."""

    def __init__(self, key: int, part: StagedPart, change: Adopt, position: int) -> None:
        """`position` is that of the part's first payload within the piece."""
        self.first = key
        self.count = part.count
        self.size_bytes = part.size_bytes
        self.part = part.number
        expiries_ms = change.expires_at_ms
        if len(expiries_ms) > 1:
            expiries_ms = expiries_ms[position : position + self.count]
        enqueued_at_ms = change.enqueued_at_ms
        self.head = pack_adopted(key, enqueued_at_ms, expiries_ms, part.described, part.number)
        self.due_at_ms, self.is_mixed = due_of([(0, at_ms, 0, 0) for at_ms in expiries_ms], 0)
