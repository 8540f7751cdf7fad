"""How a SQLite store is read: a page takes a few statements, however small its chunks are.

Python releases the interpreter lock for every row that it fetches from SQLite and may then wait for
it behind a busy event loop. So each query here returns one row, in which SQLite has joined the
results.
"""
# Compiled by mypyc.

from __future__ import annotations

import sqlite3
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from types import TracebackType
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
from shardbus.stores.base.record import HOLE, SIZE_BYTES, Record, is_whole
from shardbus.stores.base.store import Page
from shardbus.stores.sqlite.chunk import (
    COUNTER_MAX,
    assembled,
    is_shared,
    key_of,
    parts_of,
    sequence_base,
    session_of,
    unpack_head,
    unpack_state,
)
from shardbus.stores.sqlite.page import (
    ChunkRow,
    EntryRow,
    PageBuilder,
    chunk_rows,
    cut,
    entry_of,
    entry_rows,
)

# The payload bytes of one query, unless a single message is larger.
READ_BYTES_MAX: Final = 1024 * 1024
# Heads that one query returns when payloads are not needed.
HEADS_MAX: Final = 64

CHUNKS_FROM: Final = """
SELECT group_concat(first || ' ' || count || ' ' || size || ' ' || chunk || ' ' ||
    coalesce(hex(bitmap), ''), ';')
FROM (
    SELECT first, count, size, chunk, bitmap FROM (
        SELECT * FROM (
            SELECT first, count, size, chunk FROM place
            WHERE first >= coalesce(
                (SELECT max(first) FROM place WHERE first >= ?1 AND first <= ?2), ?1)
            AND first <= ?3 AND first + count > ?2
            ORDER BY first LIMIT ?4)
        UNION ALL
        SELECT first, count, size, chunk FROM recent
        WHERE first >= ?1 AND first <= ?3 AND first + count > ?2)
    LEFT JOIN gap USING (chunk)
    ORDER BY first LIMIT ?4)
"""
_CHUNKS_OF: Final = """
SELECT group_concat(first || ' ' || count || ' ' || size || ' ' || chunk || ' ' ||
    coalesce(hex(bitmap), ''), ';')
FROM (
    SELECT first, count, size, chunk FROM place WHERE first IN (
        SELECT (SELECT max(first) FROM place WHERE first <= value) FROM json_each(?1))
    UNION ALL
    SELECT first, count, size, chunk FROM recent WHERE first <= ?3 AND first + count > ?2)
LEFT JOIN gap USING (chunk)
"""
_BYTES: Final = """
SELECT group_concat(id || ' ' || length(CAST(head AS BLOB)) || ' ' || length(CAST(body AS BLOB)),
    ';'), CAST(group_concat(head, '') AS BLOB), CAST(group_concat(body, '') AS BLOB)
FROM chunk WHERE id IN (SELECT value FROM json_each(?1))
"""
_HEADS: Final = """
SELECT group_concat(id || ' ' || length(CAST(head AS BLOB)) || ' 0', ';'),
    CAST(group_concat(head, '') AS BLOB), x''
FROM chunk WHERE id IN (SELECT value FROM json_each(?1))
"""
_PARTS: Final = """
SELECT group_concat(id || ' 0 ' || length(CAST(body AS BLOB)), ';'), x'',
    CAST(group_concat(body, '') AS BLOB)
FROM part WHERE id IN (SELECT value FROM json_each(?1))
"""
ENTRIES_FROM: Final = """
SELECT group_concat(key || ' ' || size || ' ' || chunk || ' ' || hex(data), ';')
FROM (
    SELECT key, size, chunk, data FROM entry
    WHERE line = ?1 AND state = ?2 AND key >= ?3 AND key <= ?4 ORDER BY key LIMIT ?5)
"""
_ENTRIES_IN_SESSION: Final = """
SELECT group_concat(key || ' ' || size || ' ' || chunk || ' ' || hex(data), ';')
FROM (
    SELECT key, size, chunk, data FROM entry
    WHERE session = (SELECT id FROM session WHERE local = ?1 AND name = ?2)
    AND state = ?3 AND key >= ?4 AND key <= ?5 ORDER BY key LIMIT ?6)
"""
_ENTRIES_OF: Final = """
SELECT group_concat(key || ' ' || size || ' ' || chunk || ' ' || hex(data), ';')
FROM entry WHERE key IN (SELECT value FROM json_each(?1))
"""
READABLE: Final = (ACTIVE,)
BROWSABLE: Final = (ACTIVE, DEFERRED, SCHEDULED, DELAYED)
NOTHING: Final = (b"", b"")

Bytes = dict[int, tuple[bytes, bytes]]
"""Head and body by chunk number."""


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


class StoreLookup:
    """The queries that the reader and the writer share, each on its own connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection

    def text(self, sql: str, parameters: Sequence[int | str | bytes]) -> str | None:
        """The first column of the only row."""
        value = self.connection.execute(sql, parameters).fetchone()[0]
        assert value is None or isinstance(value, str)
        return value

    def chunks(self, numbers: list[int]) -> Bytes:
        """Chunks by their numbers; those with parts as if they shared nothing."""
        found = self._cut(_BYTES, numbers)
        shared = [number for number, (head, _) in found.items() if is_shared(head)]
        if shared:
            parts = {part for number in shared for part in parts_of(found[number][0])}
            bodies = {part: body for part, (_, body) in self._cut(_PARTS, sorted(parts)).items()}
            for number in shared:
                head = found[number][0]
                found[number] = (head, assembled(head, bodies))
        return found

    def heads_of(self, numbers: list[int]) -> dict[int, bytes]:
        return {number: head for number, (head, _) in self._cut(_HEADS, numbers).items()}

    def _cut(self, sql: str, numbers: list[int]) -> Bytes:
        text, heads, bodies = self.connection.execute(sql, (str(numbers),)).fetchone()
        return cut(text, heads or b"", bodies or b"")

    def records_of(self, chunks: dict[int, int]) -> dict[int, list[Record] | None]:
        """The records of chunks (number to first key), None for a damaged head."""
        if not chunks:
            return {}
        found = self.heads_of(list(chunks))
        return {
            number: unpack_head(first, found.get(number, b"")) for number, first in chunks.items()
        }

    def own_payloads(self, rows: list[EntryRow]) -> Iterator[tuple[EntryRow, bytes | None]]:
        """Messages with chunks of their own, and their payloads where these are undamaged."""
        for start, end in _groups([row.size_bytes for row in rows]):
            group = rows[start:end]
            found = self.chunks([row.chunk for row in group])
            for row in group:
                yield row, _whole(row.key, found.get(row.chunk, NOTHING))


@final
class StoreReader(StoreLookup):
    """The reads of a store, each of them on one state of the database."""

    def page(self, ask: StoreQuestion) -> Page:
        """The one scan: entries that left their chunks and the chunks, merged until a bound is
        reached.
        """
        builder = PageBuilder(ask.base, ask.count_max, ask.bytes_max)
        if ask.is_beyond or ask.count_max < 1:
            return builder.finish(False)
        with ReadSnapshot(self.connection):
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
            with ReadSnapshot(self.connection):
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
            with ReadSnapshot(self.connection):
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
        for row in entry_rows(self.text(_ENTRIES_OF, (str(keys),))):
            own.add(row.key)
            entry = unpack_state(row.key, base, row.data)
            if entry is not None and entry.state != SET_ASIDE:
                found[row.key] = entry
        return own

    def _describe_chunks(self, base: int, keys: list[int], found: dict[int, Entry]) -> None:
        if not keys:
            return
        holding = self._holding(keys)
        heads = self.records_of({row.number: row.first for row, _ in holding})
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
        for row, payload in self.own_payloads(rows[:stop]):
            entry = None if payload is None else unpack_state(row.key, ask.base, row.data)
            if entry is not None and ask.session not in (None, session_of(entry)):
                entry = None
            if entry is not None:
                entry.payload = payload
            builder.aside.append((row.key, entry))

    def _entries_from(self, ask: StoreQuestion, state: int) -> list[EntryRow]:
        limit = ask.count_max + 1
        if ask.session is None:
            line = (ask.line, state, ask.start_key, ask.high_key, limit)
            return entry_rows(self.text(ENTRIES_FROM, line))
        session = (ask.local, ask.session, state, ask.start_key, ask.high_key, limit)
        return entry_rows(self.text(_ENTRIES_IN_SESSION, session))

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
        parameters = (ask.low_key, start_key, ask.high_key, limit)
        return chunk_rows(self.text(CHUNKS_FROM, parameters))

    def _add_group(self, builder: PageBuilder, ask: StoreQuestion, rows: list[ChunkRow]) -> None:
        numbers = [row.number for row in rows]
        if ask.is_for_heads:
            heads = self.heads_of(numbers)
            for row in rows:
                builder.add_chunk(row, ask.start_key, heads.get(row.number, b""), None)
            return
        found = self.chunks(numbers)
        for row in rows:
            head, body = found.get(row.number, NOTHING)
            builder.add_chunk(row, ask.start_key, head, body)

    def _find_in_chunks(self, keys: list[int], found: dict[int, bytes]) -> None:
        held = self._holding(keys)
        rows = [row for row, _ in held]
        for start, end in _groups([row.size_bytes for row in rows]):
            chunks = self.chunks([row.number for row in rows[start:end]])
            for row, inside in held[start:end]:
                head, body = chunks.get(row.number, NOTHING)
                _slice(row, head, body, inside, found)

    def _holding(self, keys: list[int]) -> list[tuple[ChunkRow, list[int]]]:
        """The chunks in which some of these keys (ascending, not empty) are left, and which."""
        text = self.text(_CHUNKS_OF, (str(keys), keys[0], keys[-1]))
        holding: list[tuple[ChunkRow, list[int]]] = []
        for row in chunk_rows(text):
            start = bisect_left(keys, row.first)
            end = bisect_left(keys, row.first + row.span)
            held = [key for key in keys[start:end] if not row.gone >> (key - row.first) & 1]
            if held and row.gone >= 0:
                holding.append((row, held))
        return holding

    def _find_among_entries(self, keys: list[int], found: dict[int, bytes]) -> None:
        if not keys:
            return
        rows = entry_rows(self.text(_ENTRIES_OF, (str(keys),)))
        for row, payload in self.own_payloads(rows):
            if payload is not None:
                found[row.key] = payload


@final
class ReadSnapshot:
    """Statements that see one state of the database, whatever is committed in between."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def __enter__(self) -> None:
        self._connection.execute("BEGIN")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")


def _key_in(local: int, base: int, sequence_number: int) -> int:
    """The key of a message, -1 if the fragment cannot have such a message."""
    counter = sequence_number - base
    return key_of(local, counter) if 0 <= counter <= COUNTER_MAX else -1


def _key(row: EntryRow) -> int:
    return row.key


def _whole(key: int, record: tuple[bytes, bytes]) -> bytes | None:
    """The payload of a chunk of one message, None if it is damaged or missing."""
    head, body = record
    records = unpack_head(key, head)
    if records is None or len(records) != 1 or not is_whole(body, records[0]):
        return None
    return body


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


def _groups(sizes: list[int]) -> list[tuple[int, int]]:
    """Ranges of at most READ_BYTES_MAX together, or of one element."""
    groups: list[tuple[int, int]] = []
    start = 0
    total = 0
    for at, size in enumerate(sizes):
        if at > start and total + size > READ_BYTES_MAX:
            groups.append((start, at))
            start = at
            total = 0
        total += size
    if sizes:
        groups.append((start, len(sizes)))
    return groups


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
