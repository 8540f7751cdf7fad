"""Reads of a store with chunks: pages, payloads and messages by their numbers."""
# Compiled by mypyc.

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final, final

from shardbus.core.message import (
    ACTIVE,
    DEFERRED,
    DELAYED,
    MAIN_LINE,
    SCHEDULED,
    SET_ASIDE,
    Entry,
)
from shardbus.stores.base.record import HOLE, SIZE_BYTES, is_whole
from shardbus.stores.base.store import Page
from shardbus.stores.chunked.chunk import (
    COUNTER_MAX,
    key_of,
    sequence_base,
    session_of,
    unpack_head,
    unpack_state,
)
from shardbus.stores.chunked.lookup import NOTHING, READ_BYTES_MAX, Lookup, ReadSnapshot, groups
from shardbus.stores.chunked.page import ChunkRow, EntryRow, PageBuilder, entry_of

# Heads that one query brings when payloads are not asked for.
HEADS_MAX: Final = 64

READABLE: Final = (ACTIVE,)
BROWSABLE: Final = (ACTIVE, DEFERRED, SCHEDULED, DELAYED)


@final
class StoreQuestion:
    """A request for messages of one line of one fragment, from a sequence number on.

    With `session`, the encoded name of a session of the main line, only messages of that session.
    Only active messages, unless `states` says otherwise; with payloads, unless it `is_for_heads`.
    """

    def __init__(  # noqa: PLR0913 - a record: all but the first three go by keyword
        self,
        local: int,
        number: int,
        line: int,
        *,
        start: int,
        count_max: int,
        bytes_max: int,
        session: bytes | None = None,
    ) -> None:
        self.local = local
        self.session = session
        self.states: tuple[int, ...] = READABLE
        self.is_for_heads = False
        self.base = sequence_base(number)
        self.line = line
        self.count_max = count_max
        self.bytes_max = bytes_max
        counter = min(max(start - self.base, 0), COUNTER_MAX + 1)
        self.is_beyond = counter > COUNTER_MAX
        self.start_key = key_of(local, counter)
        self.low_key = key_of(local, 0)
        self.high_key = key_of(local, COUNTER_MAX)


@final
class StoreReader:
    """The reads of a store, each of them on one state of the database."""

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup

    def page(self, ask: StoreQuestion) -> Page:
        """The one scan: entries that left their chunks and the chunks, merged until a bound is
        reached.
        """
        builder = PageBuilder(ask.base, ask.count_max, ask.bytes_max)
        if ask.is_beyond or ask.count_max < 1:
            return builder.finish(False)
        with ReadSnapshot(self._lookup):
            self._add_aside(builder, ask)
            # Messages with a session are always in chunks of their own.
            has_chunks = ask.line == MAIN_LINE and ask.session is None
            has_more = has_chunks and self._add_chunks(builder, ask)
        return builder.finish(has_more)

    def payloads(
        self, local: int, number: int, sequence_numbers: Sequence[int]
    ) -> list[bytes | None]:
        base = sequence_base(number)
        wanted = [_key_in(local, base, asked) for asked in sequence_numbers]
        keys = sorted({key for key in wanted if key >= 0})
        found: dict[int, bytes] = {}
        if keys:
            with ReadSnapshot(self._lookup):
                self._find_in_chunks(keys, found)
                self._find_among_entries([key for key in keys if key not in found], found)
        return [found.get(key) for key in wanted]

    def entries(
        self, local: int, number: int, sequence_numbers: Sequence[int], bytes_max: int
    ) -> list[Entry | None]:
        """See `MessageStore.read_entries`; a payload that is left out is not read either."""
        base = sequence_base(number)
        wanted = [_key_in(local, base, asked) for asked in sequence_numbers]
        keys = sorted({key for key in wanted if key >= 0})
        found: dict[int, Entry] = {}
        if keys:
            with ReadSnapshot(self._lookup):
                own = self._describe_entries(base, keys, found)
                self._describe_chunks(base, [key for key in keys if key not in own], found)
                read = _first_bytes([key for key in wanted if key in found], found, bytes_max)
                payloads: dict[int, bytes] = {}
                self._find_among_entries([key for key in read if key in own], payloads)
                others = [key for key in read if key not in own]
                if others:
                    self._find_in_chunks(others, payloads)
            for key in read:
                found[key].payload = payloads.get(key)
                if key not in payloads:
                    del found[key]
        return [found.get(key) for key in wanted]

    def _describe_entries(self, base: int, keys: list[int], found: dict[int, Entry]) -> set[int]:
        """Add messages with chunks of their own, without payloads; returns the keys of all of
        them.
        """
        own: set[int] = set()
        for row in self._lookup.entries_of(keys):
            own.add(row.key)
            entry = unpack_state(row.key, base, row.data)
            if entry is not None and entry.state != SET_ASIDE:
                found[row.key] = entry
        return own

    def _describe_chunks(self, base: int, keys: list[int], found: dict[int, Entry]) -> None:
        if not keys:
            return
        holding = self._holding(keys)
        heads = self._lookup.records_of({row.number: row.first for row, _ in holding})
        for row, held in holding:
            records = heads[row.number] or []
            for key in held:
                position = key - row.first
                if position < len(records) and records[position] != HOLE:
                    found[key] = entry_of(base, key, records[position])

    def _add_aside(self, builder: PageBuilder, ask: StoreQuestion) -> None:
        """Add as many entries as the builder may need; it is told where more begin."""
        rows: list[EntryRow] = []
        for state in ask.states:
            rows += self._entries_from(ask, state)
        rows.sort(key=_key)
        size_bytes = 0
        stop = 0
        for row in rows:
            size_bytes += row.size_bytes
            if stop == ask.count_max or (stop > 0 and size_bytes > ask.bytes_max):
                builder.barrier = row.key
                break
            stop += 1
        if ask.is_for_heads:
            for row in rows[:stop]:
                builder.aside.append((row.key, unpack_state(row.key, ask.base, row.data)))
            return
        for row, payload in self._lookup.own_payloads(rows[:stop]):
            entry = None if payload is None else unpack_state(row.key, ask.base, row.data)
            if entry is not None and ask.session not in (None, session_of(entry)):
                entry = None
            if entry is not None:
                entry.payload = payload
            builder.aside.append((row.key, entry))

    def _entries_from(self, ask: StoreQuestion, state: int) -> list[EntryRow]:
        limit = ask.count_max + 1
        if ask.session is None:
            return self._lookup.entries_from(ask.line, state, ask.start_key, ask.high_key, limit)
        return self._lookup.entries_in_session(
            ask.local, ask.session, state, ask.start_key, ask.high_key, limit
        )

    def _add_chunks(self, builder: PageBuilder, ask: StoreQuestion) -> bool:
        """Give the builder chunks until it is full; True if there is more than it took."""
        limit = HEADS_MAX if ask.is_for_heads else ask.count_max + 2
        rows = self._chunk_rows(ask, ask.start_key, limit)
        while rows and builder.has_room():
            at = 0
            while at < len(rows) and builder.has_room():
                stop = len(rows) if ask.is_for_heads else _enough(rows, at, builder)
                self._add_group(builder, ask, rows[at:stop])
                at = stop
            if at < len(rows) or builder.is_stopped:
                return True
            if len(rows) < limit:
                return False
            rows = self._chunk_rows(ask, rows[-1].first + rows[-1].span, limit)
        return len(rows) > 0

    def _chunk_rows(self, ask: StoreQuestion, start_key: int, limit: int) -> list[ChunkRow]:
        return self._lookup.chunks_from(ask.low_key, start_key, ask.high_key, limit)

    def _add_group(self, builder: PageBuilder, ask: StoreQuestion, rows: list[ChunkRow]) -> None:
        numbers = [row.number for row in rows]
        if ask.is_for_heads:
            heads = self._lookup.heads_of(numbers)
            for row in rows:
                builder.add_chunk(row, ask.start_key, heads.get(row.number, b""), None)
            return
        found = self._lookup.chunks(numbers)
        for row in rows:
            head, body = found.get(row.number, NOTHING)
            builder.add_chunk(row, ask.start_key, head, body)

    def _find_in_chunks(self, keys: list[int], found: dict[int, bytes]) -> None:
        held = self._holding(keys)
        rows = [row for row, _ in held]
        for start, end in groups([row.size_bytes for row in rows]):
            chunks = self._lookup.chunks([row.number for row in rows[start:end]])
            for row, inside in held[start:end]:
                head, body = chunks.get(row.number, NOTHING)
                _slice(row, head, body, inside, found)

    def _holding(self, keys: list[int]) -> list[tuple[ChunkRow, list[int]]]:
        """The chunks in which some of these keys (rising, not none) are left, and which."""
        holding: list[tuple[ChunkRow, list[int]]] = []
        for row in self._lookup.chunks_of(keys):
            start = bisect_left(keys, row.first)
            end = bisect_left(keys, row.first + row.span)
            held = [key for key in keys[start:end] if not row.gone >> (key - row.first) & 1]
            if held and row.gone >= 0:
                holding.append((row, held))
        return holding

    def _find_among_entries(self, keys: list[int], found: dict[int, bytes]) -> None:
        if not keys:
            return
        rows = self._lookup.entries_of(keys)
        for row, payload in self._lookup.own_payloads(rows):
            if payload is not None:
                found[row.key] = payload


def _key_in(local: int, base: int, sequence_number: int) -> int:
    """The key of a message, -1 if the fragment cannot have such a message."""
    counter = sequence_number - base
    return key_of(local, counter) if 0 <= counter <= COUNTER_MAX else -1


def _key(row: EntryRow) -> int:
    return row.key


def _slice(
    row: ChunkRow, head: bytes, body: bytes, keys: list[int], found: dict[int, bytes]
) -> None:
    """Add the undamaged payloads of some messages of a chunk."""
    records = unpack_head(row.first, head)
    if records is None:
        return
    wanted = set(keys)
    offset = 0
    for position, record in enumerate(records):
        key = row.first + position
        end = offset + record[SIZE_BYTES]
        if key in wanted:
            payload = body[offset:end]
            if is_whole(payload, record):
                found[key] = payload
        offset = end


def _first_bytes(keys: list[int], found: dict[int, Entry], bytes_max: int) -> list[int]:
    """The first of these keys, ascending, whose payloads have at most `bytes_max` bytes; at least
    one.
    """
    read: set[int] = set()
    size_bytes = 0
    for key in keys:
        size_bytes += found[key].size_bytes
        if read and size_bytes > bytes_max:
            break
        read.add(key)
    return sorted(read)


def _enough(rows: list[ChunkRow], start: int, builder: PageBuilder) -> int:
    """Where to stop, so that the next chunks may fill the page without using too much memory."""
    count, size_bytes = builder.room()
    size_bytes = min(size_bytes, READ_BYTES_MAX)
    stop = start
    while stop < len(rows) and count > 0 and size_bytes > 0:
        row = rows[stop]
        if stop > start and row.size_bytes > READ_BYTES_MAX:
            break
        count -= row.span - max(row.gone, 0).bit_count()
        size_bytes -= row.size_bytes
        stop += 1
    return max(stop, start + 1)
