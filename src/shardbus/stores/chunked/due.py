"""How a store with chunks finds the messages whose time has come."""
# Compiled by mypyc.

from __future__ import annotations

from typing import Final, final

from shardbus.core.message import NEVER_MS, SCHEDULED, Entry
from shardbus.core.runs import Runs
from shardbus.stores.base.record import EXPIRES_AT_MS, Record
from shardbus.stores.base.store import Due
from shardbus.stores.chunked.chunk import sequence_base, sequence_of, unpack_state
from shardbus.stores.chunked.lookup import DueRow, Lookup, ReadSnapshot
from shardbus.stores.chunked.page import ChunkRow, EntryRow, entry_of

# Heads that one query returns in the search for expired messages.
HEADS_MAX: Final = 64


@final
class Found:
    """A message that is due. `row` is its entry's row, None for a message that never left its
    chunk.
    """

    def __init__(
        self, due_ms: int, entry: Entry, row: EntryRow | None = None, *, is_damaged: bool = False
    ) -> None:
        self.due_ms = due_ms
        self.entry = entry
        self.row = row
        self.is_damaged = is_damaged
        self.scheduled_bytes = entry.size_bytes if entry.state == SCHEDULED else 0


@final
class DueReader:
    """Finds what is due, each time on one state of the database."""

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup

    def due(
        self,
        local: int,
        number: int,
        *,
        now_ms: int,
        count_max: int,
        bytes_max: int,
        claimed: Runs | None = None,
    ) -> Due:
        base = sequence_base(number)
        limit = count_max + 1
        held = Runs() if claimed is None else claimed
        with ReadSnapshot(self._lookup):
            next_due_ms = self._lookup.next_due_ms(local, now_ms)
            found = self._entries(base, local, now_ms, limit, held)
            chunks = self._chunks(base, local, now_ms, limit, held)
            later_ms = self._open_chunks(base, chunks, now_ms, count_max, found, held)
            found.sort(key=_order)
            taken = _fitting(found[:count_max], bytes_max)
            self._read_scheduled(taken)
        if len(taken) < len(found) or len(chunks) == limit:
            next_due_ms = now_ms
        return Due(
            [one.entry for one in taken if not one.is_damaged],
            _earlier(next_due_ms, later_ms),
            [one.entry for one in taken if one.is_damaged],
        )

    def _entries(
        self, base: int, local: int, now_ms: int, limit: int, claimed: Runs
    ) -> list[Found]:
        """Due messages that left their chunks, at most `limit`, without claimed ones."""
        found: list[Found] = []
        passed = 0
        while len(found) < limit:
            rows = _due_entries(base, self._lookup.due_entries(local, now_ms, limit, passed))
            found += [one for one in rows if not claimed.contains(one.entry.sequence_number)]
            passed += len(rows)
            if len(rows) < limit:
                break
        return found[:limit]

    def _chunks(
        self, base: int, local: int, now_ms: int, limit: int, claimed: Runs
    ) -> list[ChunkRow]:
        """Chunks with due messages, at most `limit`, without those that are claimed entirely."""
        found: list[ChunkRow] = []
        passed = 0
        while len(found) < limit:
            rows = self._lookup.due_chunks(local, now_ms, limit, passed)
            found += [row for row in rows if not _is_claimed(base, row, claimed)]
            passed += len(rows)
            if len(rows) < limit:
                break
        return found[:limit]

    def _open_chunks(
        self,
        base: int,
        rows: list[ChunkRow],
        now_ms: int,
        count_max: int,
        found: list[Found],
        claimed: Runs,
    ) -> int:
        """Add the expired messages of chunks until there are enough.

        Returns when the first of their other messages is due.
        """
        later_ms = NEVER_MS
        expired = 0
        for at in range(0, len(rows), HEADS_MAX):
            if expired > count_max:
                break
            group = rows[at : at + HEADS_MAX]
            heads = self._lookup.records_of({row.number: row.first for row in group})
            for row in group:
                records = heads[row.number]
                if records is None or row.gone < 0:
                    continue
                entries, moment_ms = _due_in_chunk(base, row, records, now_ms, claimed)
                found += [Found(entry.expires_at_ms, entry) for entry in entries]
                expired += len(entries)
                later_ms = _earlier(later_ms, moment_ms)
        return later_ms

    def _read_scheduled(self, taken: list[Found]) -> None:
        by_key = {
            one.row.key: one
            for one in taken
            if one.row is not None and one.entry.state == SCHEDULED and not one.is_damaged
        }
        rows = [one.row for one in by_key.values() if one.row is not None]
        for row, payload in self._lookup.own_payloads(rows):
            one = by_key[row.key]
            one.entry.payload = payload
            one.is_damaged = payload is None


def _due_entries(base: int, rows: list[DueRow]) -> list[Found]:
    found: list[Found] = []
    for due_ms, line, state, row in rows:
        entry = unpack_state(row.key, base, row.data)
        if entry is not None:
            found.append(Found(due_ms, entry, row))
            continue
        told = Entry(
            sequence_of(base, row.key),
            None,
            row.size_bytes,
            enqueued_at_ms=NEVER_MS,
            line=line,
            state=state,
        )
        found.append(Found(due_ms, told, row, is_damaged=True))
    return found


def _is_claimed(base: int, row: ChunkRow, claimed: Runs) -> bool:
    """Whether everything left in a chunk is claimed."""
    if claimed.count == 0 or row.gone < 0:
        return False
    first = sequence_of(base, row.first)
    if claimed.covers(first, first + row.span - 1):
        return True
    for position in range(row.span):
        if not row.gone >> position & 1 and not claimed.contains(first + position):
            return False
    return True


def _due_in_chunk(
    base: int, row: ChunkRow, records: list[Record], now_ms: int, claimed: Runs
) -> tuple[list[Entry], int]:
    """The expired messages of a chunk, without payloads, and when the next other message is due."""
    expired: list[Entry] = []
    next_due_ms = NEVER_MS
    for position, record in enumerate(records):
        expires_at = record[EXPIRES_AT_MS]
        if expires_at == NEVER_MS or row.gone >> position & 1:
            continue
        if claimed.count and claimed.contains(sequence_of(base, row.first + position)):
            continue
        if expires_at <= now_ms:
            expired.append(entry_of(base, row.first + position, record))
        else:
            next_due_ms = _earlier(next_due_ms, expires_at)
    return expired, next_due_ms


def _fitting(found: list[Found], bytes_max: int) -> list[Found]:
    """The first of these, until the payloads of scheduled ones reach `bytes_max`."""
    size_bytes = 0
    for at, one in enumerate(found):
        if size_bytes >= bytes_max:
            return found[:at]
        size_bytes += one.scheduled_bytes
    return found


def _earlier(first_ms: int, second_ms: int) -> int:
    if first_ms == NEVER_MS or second_ms == NEVER_MS:
        return max(first_ms, second_ms)
    return min(first_ms, second_ms)


def _order(one: Found) -> tuple[int, int]:
    return one.due_ms, one.entry.sequence_number
