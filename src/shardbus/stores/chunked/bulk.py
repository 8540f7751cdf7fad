"""Large reads of a store with chunks: many messages at a time.

Each slab is one short transaction: a long one keeps a database from removing deleted rows.
"""
# Compiled by mypyc.

from __future__ import annotations

from typing import Final, final

from shardbus.core.message import ACTIVE, MAIN_LINE
from shardbus.stores.base.bulk import BulkAsk, ChunkPart, Slab
from shardbus.stores.chunked.chunk import (
    COUNTER_MAX,
    holes_of,
    key_of,
    sequence_base,
    sequence_of,
    unpack_head,
    unpack_state,
)
from shardbus.stores.chunked.lookup import Lookup, ReadSnapshot
from shardbus.stores.chunked.page import ChunkRow, EntryRow
from shardbus.stores.chunked.reader import BROWSABLE

SLAB_BYTES: Final = 4 * 1024 * 1024
SLAB_CHUNKS_MAX: Final = 256
SLAB_ENTRIES_MAX: Final = 2_048


@final
class SlabReader:
    """Reads the slabs of a store. Only one thread at a time may use it."""

    def __init__(
        self, lookup: Lookup, *, slab_bytes: int = SLAB_BYTES, entries_max: int = SLAB_ENTRIES_MAX
    ) -> None:
        self._lookup = lookup
        self._slab_bytes = slab_bytes
        self._entries_max = entries_max

    def first_number(self, local: int, number: int, line: int) -> int:
        """The lowest sequence number on a line of a fragment, 0 if it is empty."""
        low_key, high_key = key_of(local, 0), key_of(local, COUNTER_MAX)
        keys: list[int] = []
        with ReadSnapshot(self._lookup):
            for state in BROWSABLE:
                found = self._lookup.entries_from(line, state, low_key, high_key, 1)
                keys += [row.key for row in found]
            if line == MAIN_LINE:
                rows = self._lookup.chunks_from(low_key, low_key, high_key, 1)
                keys += [_first_left(row) for row in rows]
        return sequence_of(sequence_base(number), min(keys)) if keys else 0

    def slab(self, local: int, ask: BulkAsk, start: int) -> Slab:
        """What is asked for from a sequence number on, about SLAB_BYTES of it."""
        slab = Slab()
        base = sequence_base(ask.number)
        start_key = key_of(local, max(start - base, 0))
        last = ask.ranges[-1][1]
        end_key = key_of(local, min(last - base, COUNTER_MAX))
        if start_key > end_key:
            return slab
        with ReadSnapshot(self._lookup):
            rows, covered_key = self._chunk_rows(local, ask, start_key, end_key)
            entries, covered_key = self._entry_rows(ask, start_key, covered_key)
            found = self._lookup.whole_chunks(
                [row.number for row in rows if row.first <= covered_key]
            )
            self._add_entries(slab, ask, base, entries)
        for row in rows:
            if row.first <= covered_key:
                head, body = found.get(row.number, (b"", b""))
                kept = _kept(ask, base, row, start_key, covered_key)
                _add_chunk(slab, base, row, kept, head, body)
        if covered_key < end_key:
            slab.next_start = sequence_of(base, covered_key) + 1
        return slab

    def _chunk_rows(
        self, local: int, ask: BulkAsk, start_key: int, end_key: int
    ) -> tuple[list[ChunkRow], int]:
        """Chunks of about a slab, and the key up to which they are all there are."""
        if ask.line != MAIN_LINE or ACTIVE not in ask.states:
            return [], end_key
        low_key = key_of(local, 0)
        rows = self._lookup.chunks_from(low_key, start_key, end_key, SLAB_CHUNKS_MAX)
        size_bytes = 0
        for position, row in enumerate(rows):
            if position and size_bytes + row.size_bytes > self._slab_bytes:
                return rows[:position], row.first - 1
            size_bytes += row.size_bytes
        if len(rows) == SLAB_CHUNKS_MAX:
            return rows, min(rows[-1].first + rows[-1].span - 1, end_key)
        return rows, end_key

    def _entry_rows(
        self, ask: BulkAsk, start_key: int, covered_key: int
    ) -> tuple[list[EntryRow], int]:
        rows: list[EntryRow] = []
        for state in ask.states:
            rows += self._lookup.entries_from(
                ask.line, state, start_key, covered_key, self._entries_max + 1
            )
        rows.sort(key=lambda row: row.key)
        size_bytes = 0
        for position, row in enumerate(rows):
            size_bytes += row.size_bytes
            if position and (position >= self._entries_max or size_bytes > self._slab_bytes):
                return rows[:position], row.key - 1
        return rows, covered_key

    def _add_entries(self, slab: Slab, ask: BulkAsk, base: int, rows: list[EntryRow]) -> None:
        wanted = [row for row in rows if ask.wants(sequence_of(base, row.key))]
        for row, payload in self._lookup.own_payloads(wanted):
            entry = None if payload is None else unpack_state(row.key, base, row.data)
            if entry is None:
                slab.damaged.append(sequence_of(base, row.key))
            else:
                entry.payload = payload
                slab.entries.append(entry)


def _first_left(row: ChunkRow) -> int:
    """The key of the first message that is still in a chunk; a lower one if that is not known."""
    gone = max(row.gone, 0)
    return row.first + (~gone & (gone + 1)).bit_length() - 1


def _kept(ask: BulkAsk, base: int, row: ChunkRow, start_key: int, covered_key: int) -> int:
    """A bit for each message of a chunk that is wanted and still in it; -1 for all of them."""
    bits = ask.bits(sequence_of(base, row.first), row.span)
    is_inside = start_key <= row.first and row.first + row.span - 1 <= covered_key
    if is_inside and row.gone == 0:
        return bits
    whole = (1 << row.span) - 1
    below = max(start_key - row.first, 0)
    count = min(covered_key - row.first + 1, row.span)
    inside = (whole >> below << below) & ((1 << count) - 1)
    return bits & inside & ~max(row.gone, 0)


def _add_chunk(slab: Slab, base: int, row: ChunkRow, kept: int, head: bytes, body: bytes) -> None:
    records = unpack_head(row.first, head)
    first_number = sequence_of(base, row.first)
    if records is not None and row.gone >= 0:
        if kept:
            slab.chunks.append(ChunkPart(first_number, records, kept, body))
        return
    holes = 0 if records is None else holes_of(records)
    for position in range(row.span):
        if (kept & ~holes) >> position & 1:
            slab.damaged.append(first_number + position)
