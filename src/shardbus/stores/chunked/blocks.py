"""Journals in a store with chunks, for readers beside the broker.

The oldest number that is kept and the blocks come from one transaction: a reader that is too slow
finds out, and never mistakes dropped blocks for numbers that were not used.
"""
# Compiled by mypyc.

from __future__ import annotations

from typing import Final, final

from shardbus.core.fragment.records import LIFECYCLE
from shardbus.core.lifecycle.journal import LIFECYCLE_STAGE, RECORD_KEY, first_kept
from shardbus.core.limits import BATCH_MAX
from shardbus.stores.base.bulk import BlockSlab
from shardbus.stores.base.store import StoreError
from shardbus.stores.chunked.chunk import unpack_record
from shardbus.stores.chunked.journal import PIECE_SPAN_MAX, Block, unpack_open, unpack_piece
from shardbus.stores.chunked.lookup import Lookup, ReadSnapshot

SLAB_BYTES: Final = 1024 * 1024
SPAN: Final = 256


@final
class BlockReader:
    """Reads blocks of journals. Only one thread at a time may use it."""

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup

    def blocks(self, local: int, after: int, until: int) -> BlockSlab:
        """As `BulkSource.blocks`."""
        with ReadSnapshot(self._lookup):
            slab = BlockSlab(self._first(local), until)
            at = max(after, slab.first - 1)
            size_bytes = 0
            while at < until and size_bytes < SLAB_BYTES:
                end = min(at + SPAN, until)
                for number, block in read_blocks(self._lookup, local, at, end).items():
                    slab.numbers.append(number)
                    slab.blocks.append(block)
                    size_bytes += 0 if block is None else len(block)
                at = end
            slab.until = max(at, after)
        return slab

    def _first(self, local: int) -> int:
        data = self._lookup.record(local, LIFECYCLE, RECORD_KEY)
        if not data:
            return 1
        found = unpack_record(data)
        if found is None or found[:3] != (local, LIFECYCLE, RECORD_KEY):
            raise StoreError("the record of a fragment's journal is damaged")
        return first_kept(found[3])


def read_blocks(lookup: Lookup, local: int, after: int, until: int) -> dict[int, bytes | None]:
    """Blocks with numbers from above `after` to `until`; None for what is damaged.

    Of a damaged piece only the last number is known, or, if that is beyond `until` or the piece is
    open, that it begins after all earlier blocks.
    """
    found: dict[int, bytes | None] = {}
    beyond = min(until + PIECE_SPAN_MAX - 1, BATCH_MAX)
    for number, packed in lookup.pieces(local, LIFECYCLE_STAGE, after, beyond):
        _add(found, unpack_piece(local, number, packed), number, after, until)
        if number >= until:
            break
    packed = lookup.open_piece(local)
    if packed:
        _add(found, unpack_open(local, packed), BATCH_MAX, after, until)
    return dict(sorted(found.items()))


def _add(
    found: dict[int, bytes | None], blocks: list[Block] | None, number: int, after: int, until: int
) -> None:
    if blocks is None:
        lost = number if number <= until else max(found, default=after) + 1
        if lost <= until:
            found[lost] = None
        return
    for at, data in blocks:
        if after < at <= until:
            found[at] = data
