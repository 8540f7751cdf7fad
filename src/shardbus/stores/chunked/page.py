"""Pages of messages, assembled from chunks and from entries that left their chunks."""
# Compiled by mypyc.

from __future__ import annotations

from typing import final

from shardbus.core.message import Entry
from shardbus.stores.base.record import (
    ENQUEUED_AT_MS,
    EXPIRES_AT_MS,
    HOLE,
    SIZE_BYTES,
    Record,
    is_whole,
)
from shardbus.stores.base.store import Page
from shardbus.stores.chunked.chunk import (
    holes_of,
    sequence_of,
    unpack_head,
)


@final
class ChunkRow:
    """The place of a chunk and what is left in it. `gone` is -1 when that is unknown.

    Numbers between the first and the last (`span`) that no message of the chunk has are in `gone`
    too.
    """

    def __init__(self, first: int, span: int, size_bytes: int, number: int, gone: int) -> None:
        self.first = first
        self.span = span
        self.size_bytes = size_bytes
        self.number = number
        self.gone = gone


@final
class EntryRow:
    """The row of a message that left its chunk for one of its own."""

    def __init__(self, key: int, size_bytes: int, chunk: int, data: bytes) -> None:
        self.key = key
        self.size_bytes = size_bytes
        self.chunk = chunk
        self.data = data


@final
class PageBuilder:
    """Takes messages in ascending order until a bound is reached.

    `aside` has the entries that left their chunks, in ascending order (None for a damaged one), to
    be merged with the chunks. Beyond `barrier` (if not 0) there are more of them, which are not
    read yet.
    """

    def __init__(self, base: int, count_max: int, bytes_max: int) -> None:
        self.base = base
        self.count_max = count_max
        self.bytes_max = bytes_max
        self.entries: list[Entry] = []
        self.damaged: list[int] = []
        self.aside: list[tuple[int, Entry | None]] = []
        self.barrier = 0
        self.is_stopped = False
        self._aside_at = 0
        self._bytes = 0

    def has_room(self) -> bool:
        """Whether another message may be asked for."""
        return not self.is_stopped and (
            len(self.entries) + len(self.damaged) < self.count_max
            and (self._bytes < self.bytes_max or not self.entries)
        )

    def room(self) -> tuple[int, int]:
        """How many messages and bytes still fit."""
        count = self.count_max - len(self.entries) - len(self.damaged)
        return count, max(self.bytes_max - self._bytes, 1)

    def add_chunk(self, row: ChunkRow, start_key: int, head: bytes, body: bytes | None) -> None:
        """Add what is left of a chunk from a key on; without payloads if `body` is None."""
        records = unpack_head(row.first, head)
        if records is None or row.gone < 0:
            holes = 0 if records is None else holes_of(records)
            self._add_damaged_chunk(row, start_key, max(row.gone, 0) | holes)
            return
        offset = 0
        key = row.first
        gone = row.gone
        for record in records:
            end = offset + record[SIZE_BYTES]
            if key >= start_key and not gone & 1:
                self._add_aside_before(key)
                if self.is_stopped or not self._takes(key, record[SIZE_BYTES]):
                    self.is_stopped = True
                    return
                self._add_record(key, record, None if body is None else body[offset:end])
            offset = end
            key += 1
            gone >>= 1

    def finish(self, has_more_chunks: bool) -> Page:
        """The page; the remaining entries belong to it if all chunks do."""
        if has_more_chunks:
            self.is_stopped = True
        elif not self.is_stopped:
            self._add_aside_before(0)
        is_end = not self.is_stopped and self.barrier == 0
        return Page(self.entries, self.damaged, is_end)

    def _add_record(self, key: int, record: Record, payload: bytes | None) -> None:
        if record == HOLE:
            return
        if payload is not None and not is_whole(payload, record):
            self.damaged.append(sequence_of(self.base, key))
            return
        self._bytes += record[SIZE_BYTES]
        entry = entry_of(self.base, key, record)
        entry.payload = payload
        self.entries.append(entry)

    def _add_damaged_chunk(self, row: ChunkRow, start_key: int, gone: int) -> None:
        for position in range(row.span):
            key = row.first + position
            if key < start_key or gone >> position & 1:
                continue
            self._add_aside_before(key)
            if self.is_stopped or not self._takes(key, 0):
                self.is_stopped = True
                return
            self.damaged.append(sequence_of(self.base, key))

    def _takes(self, key: int, size_bytes: int) -> bool:
        if self.barrier != 0 and key >= self.barrier:
            return False
        if len(self.entries) + len(self.damaged) >= self.count_max:
            return False
        return self._bytes + size_bytes <= self.bytes_max or not self.entries

    def _add_aside_before(self, key: int) -> None:
        """Add the entries before a key; all of them for key 0."""
        while self._aside_at < len(self.aside):
            aside_key, entry = self.aside[self._aside_at]
            if key != 0 and aside_key > key:
                return
            if not self._takes(aside_key, 0 if entry is None else entry.size_bytes):
                self.is_stopped = True
                return
            self._aside_at += 1
            if entry is None:
                self.damaged.append(sequence_of(self.base, aside_key))
            else:
                self._bytes += entry.size_bytes
                self.entries.append(entry)


def entry_of(base: int, key: int, record: Record) -> Entry:
    """A message that is as its sender left it, without its payload."""
    return Entry(
        sequence_of(base, key),
        None,
        record[SIZE_BYTES],
        enqueued_at_ms=record[ENQUEUED_AT_MS],
        expires_at_ms=record[EXPIRES_AT_MS],
    )
