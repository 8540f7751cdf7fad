"""A commit as rows for the view `work`: decided in memory first, then stored in one statement."""

from __future__ import annotations

from typing import Final, final

from shardbus.core.change import Append, Change, Remove
from shardbus.core.message import Entry
from shardbus.stores.base import StoreError
from shardbus.stores.chunk import (
    CHUNK_BYTES_MAX,
    CHUNK_COUNT_MAX,
    COUNTER_MAX,
    Record,
    counter_of,
    due_at,
    due_of,
    is_plain,
    key_of,
    pack_gap,
    pack_head,
    pack_state,
    record_of,
)
from shardbus.stores.directory import Chunk, Directory

APPEND: Final = 1
COUNTERS: Final = 2
GAP: Final = 3
DROP: Final = 4
DUE: Final = 5
ENTER: Final = 6
CHANGE: Final = 7
KEEP: Final = 8
COPY: Final = 9
FORGET: Final = 10
EVIDENCE: Final = 11

Cell = int | bytes | None
COLUMNS: Final = 9


@final
class Delta:
    """What a list of changes comes to for one fragment, message by message."""

    def __init__(self, local: int) -> None:
        self.local = local
        self.appended: list[Entry] = []
        self.updated: dict[int, Entry] = {}
        self.removed: dict[int, None] = {}

    def collect(self, changes: list[Change]) -> None:
        for change in changes:
            if isinstance(change, Append):
                self.appended += change.entries
            elif isinstance(change, Remove):
                for number in change.sequence_numbers:
                    self.removed[counter_of(number)] = None
            else:
                for entry in change.entries:
                    self.updated[counter_of(entry.sequence_number)] = entry

    def stored_keys(self, last_counter: int) -> list[int]:
        """Keys of the changed messages that were stored by an earlier commit."""
        local = self.local
        keys = [key_of(local, counter) for counter in self.removed if counter <= last_counter]
        for counter in self.updated:
            if counter <= last_counter and counter not in self.removed:
                keys.append(key_of(local, counter))
        return keys


@final
class Batch:
    """The rows of one commit. Chunks in `directory` change with it, before they are stored."""

    def __init__(self, directory: Directory, next_chunk: int) -> None:
        self.directory = directory
        self.next_chunk = next_chunk
        self.cells: list[Cell] = []
        self._touched: dict[int, Chunk] = {}

    def row_count(self) -> int:
        return len(self.cells) // COLUMNS

    def counters(self, local: int, packed: bytes) -> None:
        self.cells += (COUNTERS, local, None, None, None, None, None, packed, None)

    def append(self, delta: Delta, last_counter: int) -> int:
        """Chunks of what is new and unchanged, entries of what is new and changed.

        Returns the last counter. Numbers that were used before mean that the caller's picture of
        the fragment is not the stored one.
        """
        is_simple = not delta.updated and not delta.removed
        run = Run(self)
        last = last_counter
        for entry in delta.appended:
            counter = counter_of(entry.sequence_number)
            if counter <= last or counter > COUNTER_MAX:
                raise StoreError(
                    f"sequence number {entry.sequence_number} cannot follow counter {last}: "
                    "the fragment must be loaded again"
                )
            is_next = counter == last + 1
            last = counter
            payload = entry.payload
            assert payload is not None, "an appended message has a payload"
            latest = entry
            if not is_simple:
                if counter in delta.removed:
                    run.close()
                    continue
                latest = delta.updated.get(counter, entry)
            key = key_of(delta.local, counter)
            if is_plain(latest):
                run.add(key, latest, payload, is_next)
            else:
                run.close()
                self._enter(key, latest, len(payload))
                self._keep(key, latest, payload)
        run.close()
        return last

    def _enter(self, key: int, entry: Entry, size: int) -> None:
        data = pack_state(key, entry)
        due_at_ms = due_at(entry)
        self.cells += (ENTER, key, None, entry.line, size, due_at_ms, entry.state, data, None)

    def _keep(self, key: int, entry: Entry, payload: bytes) -> None:
        head = pack_head(key, [record_of(entry, payload)])
        self.cells += (KEEP, key, None, None, None, None, None, head, payload)

    def remove(self, key: int, chunk: Chunk | None) -> None:
        """A message that an earlier commit stored is gone; without a chunk it was an entry."""
        if chunk is None or not chunk.holds(key):
            self.cells += (FORGET, key, None, None, None, None, None, None, None)
            return
        self._leave(key, chunk)

    def update(
        self, key: int, entry: Entry, chunk: Chunk | None, records: list[Record] | None
    ) -> None:
        """A message that an earlier commit stored has changed.

        From its chunk (of which `records` is the head, None if damaged) it moves to `kept`.
        """
        if chunk is None or not chunk.holds(key):
            data = pack_state(key, entry)
            line = entry.line
            self.cells += (CHANGE, key, None, line, None, due_at(entry), entry.state, data, None)
            return
        position = key - chunk.first
        if records is not None and position < len(records):
            record = records[position]
            offset = 0
            for before in records[:position]:
                offset += before[2]
            self._enter(key, entry, record[2])
            head = pack_head(key, [record])
            self.cells += (COPY, key, chunk.number, offset, record[2], None, None, head, None)
        else:
            number = chunk.number
            self.cells += (EVIDENCE, chunk.first, number, None, None, None, None, None, None)
            self._enter(key, entry, entry.size_bytes)
            if entry.payload is not None:
                self._keep(key, entry, entry.payload)
        self._leave(key, chunk)

    def _leave(self, key: int, chunk: Chunk) -> None:
        chunk.gone |= 1 << (key - chunk.first)
        self._touched[chunk.first] = chunk

    def mixed_left(self) -> list[Chunk]:
        """Touched chunks whose due time cannot be told without their heads."""
        return [c for c in self._touched.values() if c.is_mixed and not c.is_empty()]

    def close_chunks(self, heads: dict[int, list[Record] | None]) -> None:
        """Drop the chunks that are empty now, and note the gaps of the others, each once."""
        for chunk in self._touched.values():
            if chunk.is_empty():
                self._drop(chunk)
                continue
            gap = pack_gap(chunk.first, chunk.gone, chunk.count)
            self.cells += (GAP, None, chunk.number, None, None, None, None, gap, None)
            chunk.has_gap = True
            records = heads.get(chunk.number) if chunk.is_mixed else None
            if records is not None:
                self._set_due(chunk, records)

    def _drop(self, chunk: Chunk) -> None:
        self.cells += (
            DROP,
            chunk.first,
            chunk.number,
            1 if chunk.has_gap else 0,
            None,
            None,
            1 if chunk.is_recent else 0,
            None,
            None,
        )
        self.directory.drop(chunk)

    def _set_due(self, chunk: Chunk, records: list[Record]) -> None:
        due_at_ms, is_mixed = due_of(records, chunk.gone)
        if due_at_ms == chunk.due_at_ms and is_mixed == chunk.is_mixed:
            return
        chunk.due_at_ms = due_at_ms
        chunk.is_mixed = is_mixed
        flag = 1 if is_mixed else 0
        self.cells += (DUE, chunk.first, chunk.number, None, None, due_at_ms, flag, None, None)


@final
class Run:
    """Consecutive new messages on their way into chunks."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._first = 0
        self._size_bytes = 0
        self._records: list[Record] = []
        self._payloads: list[bytes] = []

    def add(self, key: int, entry: Entry, payload: bytes, is_next: bool) -> None:
        count = len(self._records)
        size = len(payload)
        if count > 0 and (
            not is_next or count >= CHUNK_COUNT_MAX or self._size_bytes + size > CHUNK_BYTES_MAX
        ):
            self.close()
            count = 0
        if count == 0:
            self._first = key
        self._records.append(record_of(entry, payload))
        self._payloads.append(payload)
        self._size_bytes += size

    def close(self) -> None:
        if not self._records:
            return
        batch = self._batch
        due_at_ms, is_mixed = due_of(self._records, 0)
        count = len(self._records)
        chunk = Chunk(batch.next_chunk, self._first, count, self._size_bytes, due_at_ms, is_mixed)
        batch.next_chunk += 1
        batch.cells += (
            APPEND,
            chunk.first,
            chunk.number,
            count,
            self._size_bytes,
            due_at_ms,
            1 if is_mixed else 0,
            pack_head(self._first, self._records),
            b"".join(self._payloads),
        )
        batch.directory.add(chunk)
        self._size_bytes = 0
        self._records = []
        self._payloads = []
