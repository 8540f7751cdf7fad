"""Bulk reads of a SQLite store by another process: many messages at a time, without the broker.

Each slab is one short transaction, because the log cannot be truncated during a read.
"""
# Compiled by mypyc.

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Final, Self, final

from shardbus.core.message import ACTIVE, MAIN_LINE
from shardbus.stores.base.bulk import BulkAsk, ChunkPart, Slab
from shardbus.stores.base.store import FragmentId, UnknownFragment
from shardbus.stores.sqlite.chunk import (
    COUNTER_MAX,
    assembled,
    holes_of,
    key_of,
    parts_of,
    sequence_base,
    sequence_of,
    unpack_head,
    unpack_state,
)
from shardbus.stores.sqlite.database import open_reader
from shardbus.stores.sqlite.page import ChunkRow, EntryRow, chunk_rows, entry_rows
from shardbus.stores.sqlite.reader import (
    BROWSABLE,
    CHUNKS_FROM,
    ENTRIES_FROM,
    Bytes,
    ReadSnapshot,
    StoreLookup,
)
from shardbus.stores.sqlite.store import Translated

SLAB_BYTES: Final = 4 * 1024 * 1024
SLAB_CHUNKS_MAX: Final = 256
SLAB_ENTRIES_MAX: Final = 2_048
# This process needs little memory otherwise, and a mapped page is not copied.
MAPPED_BYTES: Final = 1 << 33
CACHE_KIB: Final = 8_192

_WHOLE: Final = "SELECT id, head, body FROM chunk WHERE id IN (SELECT value FROM json_each(?1))"
_PARTS: Final = "SELECT id, body FROM part WHERE id IN (SELECT value FROM json_each(?1))"


@final
class BulkReader(StoreLookup):
    """A BulkSource that reads one store file. Not thread-safe.

    If the file is replaced the reader still sees the old one: open it again to see the new one.
    """

    def __init__(
        self, path: Path, *, slab_bytes: int = SLAB_BYTES, entries_max: int = SLAB_ENTRIES_MAX
    ) -> None:
        """Raises StoreError when the file does not exist or is not a store. All methods raise
        StoreError when it cannot be read.
        """
        self._path = path
        self._slab_bytes = slab_bytes
        self._entries_max = entries_max
        # Read before the open: if the file is replaced in between, `is_current` must be false.
        self._file = _file_of(path)
        with Translated(path):
            super().__init__(open_reader(path))
            self.connection.execute(f"PRAGMA mmap_size = {MAPPED_BYTES}")
            self.connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.connection.close()

    def is_current(self) -> bool:
        """Whether the file is still the one that was opened."""
        return self._file is not None and self._file == _file_of(self._path)

    def local(self, fragment: FragmentId) -> int:
        """The local number of a fragment in this file; UnknownFragment when the file does not have
        it.
        """
        with Translated(self._path):
            found = self.connection.execute(
                "SELECT local FROM fragment WHERE entity_id = ? AND number = ? AND is_deleted = 0",
                fragment,
            ).fetchone()
        if found is None:
            raise UnknownFragment(
                f"there is no fragment {fragment.number} of entity {fragment.entity_id}"
            )
        return int(found[0])

    def first_number(self, local: int, number: int, line: int) -> int:
        """The lowest sequence number on a line of a fragment, 0 if it is empty."""
        low_key, high_key = key_of(local, 0), key_of(local, COUNTER_MAX)
        keys: list[int] = []
        with Translated(self._path), ReadSnapshot(self.connection):
            for state in BROWSABLE:
                asked = (line, state, low_key, high_key, 1)
                keys += [row.key for row in entry_rows(self.text(ENTRIES_FROM, asked))]
            if line == MAIN_LINE:
                rows = chunk_rows(self.text(CHUNKS_FROM, (low_key, low_key, high_key, 1)))
                keys += [_first_left(row) for row in rows]
        return sequence_of(sequence_base(number), min(keys)) if keys else 0

    def slab(self, local: int, ask: BulkAsk, start: int) -> Slab:
        """The requested messages from a sequence number on, about SLAB_BYTES."""
        slab = Slab()
        base = sequence_base(ask.number)
        start_key = key_of(local, max(start - base, 0))
        last = ask.ranges[-1][1]
        end_key = key_of(local, min(last - base, COUNTER_MAX))
        if start_key > end_key:
            return slab
        with Translated(self._path), ReadSnapshot(self.connection):
            rows, covered_key = self._chunk_rows(local, ask, start_key, end_key)
            entries, covered_key = self._entry_rows(ask, start_key, covered_key)
            found = self._read([row.number for row in rows if row.first <= covered_key])
            self._add_entries(slab, ask, base, entries)
        for row in rows:
            if row.first <= covered_key:
                head, body = found.get(row.number, (b"", b""))
                kept = _kept(ask, base, row, start_key, covered_key)
                _add_chunk(slab, base, row, kept, head, body)
        if covered_key < end_key:
            slab.next_start = sequence_of(base, covered_key) + 1
        return slab

    def _read(self, numbers: list[int]) -> Bytes:
        """Like `chunks`, but row by row: nobody else waits for the interpreter's lock here, and
        joined rows would be copied twice more.
        """
        found: Bytes = {}
        shared: dict[int, bytes] = {}
        for number, head, body in self.connection.execute(_WHOLE, (str(numbers),)):
            if isinstance(body, bytes):
                found[number] = (head, body)
            else:
                shared[number] = head
        if shared:
            parts = sorted({part for head in shared.values() for part in parts_of(head)})
            bodies: dict[int, bytes] = dict(self.connection.execute(_PARTS, (str(parts),)))
            for number, head in shared.items():
                found[number] = (head, assembled(head, bodies))
        return found

    def _chunk_rows(
        self, local: int, ask: BulkAsk, start_key: int, end_key: int
    ) -> tuple[list[ChunkRow], int]:
        """Chunks of about one slab, and the key up to which they are complete."""
        if ask.line != MAIN_LINE or ACTIVE not in ask.states:
            return [], end_key
        parameters = (key_of(local, 0), start_key, end_key, SLAB_CHUNKS_MAX)
        rows = chunk_rows(self.text(CHUNKS_FROM, parameters))
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
            found = (ask.line, state, start_key, covered_key, self._entries_max + 1)
            rows += entry_rows(self.text(ENTRIES_FROM, found))
        rows.sort(key=lambda row: row.key)
        size_bytes = 0
        for position, row in enumerate(rows):
            size_bytes += row.size_bytes
            if position and (position >= self._entries_max or size_bytes > self._slab_bytes):
                return rows[:position], row.key - 1
        return rows, covered_key

    def _add_entries(self, slab: Slab, ask: BulkAsk, base: int, rows: list[EntryRow]) -> None:
        wanted = [row for row in rows if ask.wants(sequence_of(base, row.key))]
        for row, payload in self.own_payloads(wanted):
            entry = None if payload is None else unpack_state(row.key, base, row.data)
            if entry is None:
                slab.damaged.append(sequence_of(base, row.key))
            else:
                entry.payload = payload
                slab.entries.append(entry)


def _first_left(row: ChunkRow) -> int:
    """The key of the first message that is still in a chunk; a lower key if that is unknown."""
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


def _file_of(path: Path) -> tuple[int, int] | None:
    """The identity of a file, which no other file of its name has; None when there is no file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
