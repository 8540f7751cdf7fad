"""The queries of the readers and the writer of a slot."""
# Compiled by mypyc.

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from shardbus.core.message import ACTIVE, NEVER_MS
from shardbus.stores.chunked.chunk import CHUNK_SPAN_MAX, key_of, unpack_gap
from shardbus.stores.chunked.directory import Chunk
from shardbus.stores.chunked.lookup import Bytes, DueRow, Lookup, SpelledRow
from shardbus.stores.chunked.page import ChunkRow, EntryRow
from shardbus.stores.postgres.link import Link, Row

# Rows of remembered ids, and pieces of stages, that one query returns.
REMEMBERED_ROWS_MAX: Final = 16_384
PIECES_MAX: Final = 16

# The chunk with a key begins less than a span before it. Without that bound the search would read
# all removed rows that are not vacuumed yet.
_CHUNKS_FROM: Final = """
SELECT c.first, c.span, c.size, g.bitmap FROM chunk c LEFT JOIN gap g ON g.first = c.first
WHERE c.first BETWEEN $1 AND $3 AND c.first + c.span > $2 ORDER BY c.first LIMIT $4
"""
_CHUNKS_OF: Final = """
SELECT c.first, c.span, c.size, c.due_at, c.is_mixed, g.bitmap
FROM unnest($1::bigint[]) AS asked(key) CROSS JOIN LATERAL (
    SELECT * FROM chunk
    WHERE first BETWEEN asked.key - $2 AND asked.key AND first >= asked.key >> 43 << 43
    ORDER BY first DESC LIMIT 1) AS c
LEFT JOIN gap g ON g.first = c.first
"""
_HEADS: Final = "SELECT first, head FROM chunk WHERE first = ANY ($1::bigint[])"
_CHUNKS: Final = "SELECT first, head, body FROM chunk WHERE first = ANY ($1::bigint[])"
_OWN: Final = "SELECT key, head, body FROM entry WHERE key = ANY ($1::bigint[])"
_PARTS: Final = "SELECT id, body FROM part WHERE id = ANY ($1::bigint[])"
_ENTRIES_FROM: Final = """
SELECT key, size, data FROM entry
WHERE line = $1 AND state = $2 AND key BETWEEN $3 AND $4 ORDER BY key LIMIT $5
"""
# The latest session of a name: all earlier ones are gone. Nothing active is before its rank.
_SESSION: Final = """
SELECT {} FROM session WHERE local = $1 AND name = $2 ORDER BY id DESC, turn DESC LIMIT 1
"""
_ENTRIES_IN_SESSION: Final = f"""
SELECT e.key, e.size, e.data FROM ({_SESSION.format("id, rank")}) AS s CROSS JOIN LATERAL (
    SELECT * FROM entry WHERE session = s.id AND state = $3
    AND key BETWEEN greatest($4, CASE $3 WHEN {ACTIVE} THEN s.rank END) AND $5
    ORDER BY key LIMIT $6) AS e ORDER BY e.key
"""
_ENTRIES_OF: Final = "SELECT key, size, data FROM entry WHERE key = ANY ($1::bigint[]) ORDER BY key"
_CHUNKS_DUE: Final = """
SELECT c.first, c.span, c.size, g.bitmap FROM (
    SELECT * FROM chunk WHERE first >> 43 = $1 AND due_at > 0 AND due_at <= $2
    ORDER BY due_at, first LIMIT $3 OFFSET $4) AS c
LEFT JOIN gap g ON g.first = c.first ORDER BY c.due_at, c.first
"""
_ENTRIES_DUE: Final = """
SELECT due_at, line, state, key, size, data FROM entry
WHERE key >> 43 = $1 AND due_at > 0 AND due_at <= $2 ORDER BY due_at, key LIMIT $3 OFFSET $4
"""
_NEXT_DUE: Final = """
SELECT least(
    (SELECT min(due_at) FROM chunk WHERE first >> 43 = $1 AND due_at > $2 AND due_at > 0),
    (SELECT min(due_at) FROM entry WHERE key >> 43 = $1 AND due_at > $2 AND due_at > 0))
"""
_TIMED: Final = """
SELECT local FROM unnest($1::bigint[]) AS local WHERE
EXISTS (SELECT FROM chunk WHERE first >> 43 = local AND due_at > 0)
OR EXISTS (SELECT FROM entry WHERE key >> 43 = local AND due_at > 0)
"""
_WAITING: Final = """
SELECT rank, name FROM session WHERE rank BETWEEN $1 AND $2 ORDER BY rank LIMIT $3
"""
# The part of a record that contains the spelling of a session (`chunked.session`).
_SPELLED: Final = """
SELECT s.name, substring(e.data FOR 64), substring(e.data FROM greatest(length(e.data) - 519, 1)),
    (SELECT substring(x.data FOR 534) FROM session_state x WHERE x.session = s.id)
FROM ({}) AS s LEFT JOIN LATERAL (
    SELECT data FROM entry WHERE session = s.id ORDER BY state, key LIMIT 1) AS e ON true
ORDER BY s.name
"""
_NAMES: Final = _SPELLED.format(
    "SELECT id, name FROM session WHERE local = $1 ORDER BY name LIMIT $2 OFFSET $3"
)
_NAMES_UPDATED: Final = _SPELLED.format(
    "SELECT id, name FROM session JOIN session_state ON session = id "
    "WHERE local = $1 AND set_at > $4 ORDER BY name LIMIT $2 OFFSET $3"
)
_STATE: Final = f"SELECT data FROM session_state WHERE session = ({_SESSION.format('id')})"
_COUNTERS: Final = "SELECT counters FROM fragment WHERE local = $1"
_ALL_COUNTERS: Final = "SELECT local, counters FROM fragment WHERE slot = $1"
_RECORD: Final = "SELECT data FROM record WHERE local = $1 AND kind = $2 AND key = $3"
_RECORDS: Final = "SELECT kind, key, data FROM record WHERE local = $1 ORDER BY kind, key"
_RECORDED: Final = """
SELECT local FROM fragment f WHERE slot = $1 AND EXISTS (
    SELECT FROM record r WHERE r.local = f.local AND r.kind = ANY ($2::bigint[]))
"""
_REMEMBERED: Final = """
SELECT key, data FROM remembered WHERE key > $1 AND key <= $2 ORDER BY key LIMIT $3
"""
_PIECES: Final = """
SELECT piece, data FROM stage
WHERE local = $1 AND stage = $2 AND piece > $3 AND piece <= $4 ORDER BY piece LIMIT $5
"""
# Also if the schema has no such column yet, because nodes of the build before serve.
_OPEN_PIECE: Final = "SELECT to_jsonb(f) ->> 'journal' FROM fragment f WHERE local = $1"
_KEPT_PIECES: Final = """
SELECT piece FROM stage WHERE local = $1 AND stage = $2 AND piece > $3 AND piece <= $4
AND parts <> '{}' ORDER BY piece
"""
_PIECE: Final = "SELECT data FROM stage WHERE local = $1 AND stage = $2 AND piece = $3"


class PostgresLookup(Lookup):
    """One connection. If it is lost, its user starts the read again."""

    def __init__(self, link: Link, slot: int) -> None:
        self.link = link
        self._slot = slot

    def begin(self) -> None:
        self.link.begin("ISOLATION LEVEL REPEATABLE READ READ ONLY")

    def end(self) -> None:
        self.link.roll_back()

    def ask(self, sql: str, *arguments: object) -> list[Row]:
        return self.link.fetch(sql, *arguments)

    def chunks_from(
        self, low_key: int, start_key: int, high_key: int, limit: int
    ) -> list[ChunkRow]:
        lowest = max(low_key, start_key - CHUNK_SPAN_MAX + 1)
        return [_chunk(row) for row in self.ask(_CHUNKS_FROM, lowest, start_key, high_key, limit)]

    def chunks_of(self, keys: list[int]) -> list[ChunkRow]:
        return [
            ChunkRow(chunk.first, chunk.span, chunk.size_bytes, chunk.number, gone)
            for chunk, gone in self._found(keys)
        ]

    def places(self, keys: list[int]) -> list[Chunk]:
        return [chunk for chunk, _ in self._found(keys)]

    def _found(self, keys: list[int]) -> list[tuple[Chunk, int]]:
        """The distinct chunks before these keys; the number of removed messages is -1 if it is
        damaged.
        """
        found: dict[int, tuple[Chunk, int]] = {}
        for first, span, size, due_at, is_mixed, bitmap in self.ask(
            _CHUNKS_OF, keys, CHUNK_SPAN_MAX - 1
        ):
            if first in found:
                continue
            chunk = Chunk(first, first, min(span, CHUNK_SPAN_MAX), size, due_at, is_mixed)
            chunk.is_recent = False
            gone = 0
            if bitmap is not None:
                gone = unpack_gap(first, bitmap)
                chunk.has_gap = True
                chunk.gone = max(gone, 0)
            found[first] = (chunk, gone)
        return [found[first] for first in sorted(found)]

    def raw_chunks(self, numbers: list[int]) -> Bytes:
        return {row[0]: (row[1], row[2] or b"") for row in self.ask(_CHUNKS, numbers)}

    def raw_own(self, numbers: list[int]) -> Bytes:
        return {row[0]: (row[1] or b"", row[2] or b"") for row in self.ask(_OWN, numbers)}

    def heads_of(self, numbers: list[int]) -> dict[int, bytes]:
        return {row[0]: row[1] for row in self.ask(_HEADS, numbers)}

    def part_bodies(self, numbers: list[int]) -> dict[int, bytes]:
        return {row[0]: row[1] for row in self.ask(_PARTS, numbers)}

    def entries_from(
        self, line: int, state: int, start_key: int, high_key: int, limit: int
    ) -> list[EntryRow]:
        rows = self.ask(_ENTRIES_FROM, line, state, start_key, high_key, limit)
        return [_entry(*row) for row in rows]

    def entries_in_session(
        self, local: int, name: bytes, state: int, start_key: int, high_key: int, limit: int
    ) -> list[EntryRow]:
        asked = (local, name, state, start_key, high_key, limit)
        return [_entry(*row) for row in self.ask(_ENTRIES_IN_SESSION, *asked)]

    def entries_of(self, keys: list[int]) -> list[EntryRow]:
        return [_entry(*row) for row in self.ask(_ENTRIES_OF, keys)]

    def due_chunks(self, local: int, now_ms: int, limit: int, passed: int) -> list[ChunkRow]:
        return [_chunk(row) for row in self.ask(_CHUNKS_DUE, local, now_ms, limit, passed)]

    def due_entries(self, local: int, now_ms: int, limit: int, passed: int) -> list[DueRow]:
        return [
            DueRow(due_at, line, state, _entry(key, size, data))
            for due_at, line, state, key, size, data in self.ask(
                _ENTRIES_DUE, local, now_ms, limit, passed
            )
        ]

    def next_due_ms(self, local: int, after_ms: int) -> int:
        earliest = self.ask(_NEXT_DUE, local, after_ms)[0][0]
        return NEVER_MS if earliest is None else int(earliest)

    def timed(self, locals_: list[int]) -> set[int]:
        return {row[0] for row in self.ask(_TIMED, locals_)}

    def waiting(self, start_key: int, high_key: int, limit: int) -> list[tuple[int, bytes]]:
        return [(row[0], row[1]) for row in self.ask(_WAITING, start_key, high_key, limit)]

    def spelled(self, local: int, limit: int, skip: int, updated_after_ms: int) -> list[SpelledRow]:
        if updated_after_ms < 0:
            rows = self.ask(_NAMES, local, limit, skip)
        else:
            rows = self.ask(_NAMES_UPDATED, local, limit, skip, updated_after_ms)
        return [SpelledRow(row[0], row[1] or b"", row[2] or b"", row[3] or b"") for row in rows]

    def session_state(self, local: int, name: bytes) -> bytes | None:
        rows = self.ask(_STATE, local, name)
        return bytes(rows[0][0]) if rows else None

    def counters(self, local: int) -> bytes:
        rows = self.ask(_COUNTERS, local)
        return bytes(rows[0][0]) if rows else b""

    def all_counters(self) -> list[tuple[int, bytes]]:
        return [(row[0], row[1]) for row in self.ask(_ALL_COUNTERS, self._slot)]

    def records(self, local: int) -> list[tuple[int, bytes, bytes]]:
        return [(row[0], row[1], row[2]) for row in self.ask(_RECORDS, local)]

    def record(self, local: int, kind: int, key: bytes) -> bytes:
        rows = self.ask(_RECORD, local, kind, key)
        return bytes(rows[0][0]) if rows else b""

    def recorded(self, kinds: list[int]) -> set[int]:
        return {row[0] for row in self.ask(_RECORDED, self._slot, kinds)}

    def remembered(self, after: int, high: int) -> tuple[int, list[bytes]]:
        rows = self.ask(_REMEMBERED, after, high, REMEMBERED_ROWS_MAX)
        return (rows[-1][0] if rows else high), [row[1] for row in rows]

    def pieces(
        self, local: int, stage: bytes, after: int, until: int
    ) -> Iterator[tuple[int, bytes]]:
        while True:
            rows = self.ask(_PIECES, local, stage, after, until, PIECES_MAX)
            for piece, data in rows:
                yield piece, data
                after = piece
            if len(rows) < PIECES_MAX:
                return

    def open_piece(self, local: int) -> bytes:
        rows = self.ask(_OPEN_PIECE, local)
        return unpack_bytea(rows[0][0]) if rows else b""

    def kept_pieces(self, local: int, stage: bytes, after: int, until: int) -> list[int]:
        return [row[0] for row in self.ask(_KEPT_PIECES, local, stage, after, until)]

    def piece(self, local: int, stage: bytes, number: int) -> bytes:
        rows = self.ask(_PIECE, local, stage, number)
        return bytes(rows[0][0]) if rows else b""


def unpack_bytea(shown: str | None) -> bytes:
    """Bytes as they are shown in JSON; none where there is no such column."""
    return b"" if shown is None else bytes.fromhex(shown[2:])


def keys_of(local: int) -> tuple[int, int]:
    """The lowest and the highest key of a fragment."""
    return key_of(local, 0), key_of(local + 1, 0) - 1


def _chunk(row: Row) -> ChunkRow:
    first, span, size, bitmap = row
    gone = 0 if bitmap is None else unpack_gap(first, bitmap)
    return ChunkRow(first, min(span, CHUNK_SPAN_MAX), size, first, gone)


def _entry(key: int, size_bytes: int, data: bytes) -> EntryRow:
    return EntryRow(key, size_bytes, key, data)
