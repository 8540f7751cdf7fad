"""Journals in a store with chunks, for readers beside the broker.

The oldest number that is kept and the blocks come from one transaction: a reader that is too slow
finds out, and never mistakes dropped blocks for numbers that were not used.
"""
# Compiled by mypyc.

from __future__ import annotations

from typing import Final, final

from shardbus.core.fragment.records import LIFECYCLE
from shardbus.core.lifecycle.journal import LIFECYCLE_STAGE, RECORD_KEY, first_kept
from shardbus.stores.base.bulk import BlockSlab
from shardbus.stores.base.store import StoreError
from shardbus.stores.chunked.chunk import unpack_record
from shardbus.stores.chunked.lookup import Lookup, ReadSnapshot
from shardbus.stores.chunked.staged import staged_data

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
                for number, packed in self._lookup.pieces(local, LIFECYCLE_STAGE, at, end):
                    found = staged_data(packed)
                    is_sound = found is not None and found[:3] == (local, LIFECYCLE_STAGE, number)
                    slab.numbers.append(number)
                    slab.blocks.append(found[3] if found is not None and is_sound else None)
                    size_bytes += len(packed)
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
