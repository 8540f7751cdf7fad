"""What the reads and the writer of a SQLite store ask of the file.

Python gives up the interpreter lock for every row it takes from SQLite and may wait for it
behind a busy event loop. So most queries here answer one row, in which SQLite has joined what
belongs together (`texts`).
"""
# Compiled by mypyc.

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from typing import Final

from shardbus.core.message import NEVER_MS
from shardbus.stores.chunked.chunk import COUNTERS_BYTES
from shardbus.stores.chunked.directory import Chunk
from shardbus.stores.chunked.lookup import Bytes, DueRow, Lookup, SpelledRow
from shardbus.stores.chunked.page import ChunkRow, EntryRow
from shardbus.stores.sqlite.texts import chunk_rows, cut, entry_rows, listed_chunks

_CHUNKS_FROM: Final = """
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
_ENTRIES_FROM: Final = """
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
_CHUNKS_DUE: Final = """
SELECT group_concat(due_at || ' ' || first || ' ' || count || ' ' || size || ' ' || chunk || ' ' ||
    coalesce(hex(bitmap), ''), ';')
FROM (
    SELECT * FROM (
        SELECT first, count, size, chunk, due_at FROM place
        WHERE first >> 43 = ?1 AND due_at > 0 AND due_at <= ?2
        ORDER BY due_at, first LIMIT ?3 + ?4)
    UNION ALL
    SELECT first, count, size, chunk, due_at FROM recent
    WHERE first >> 43 = ?1 AND due_at > 0 AND due_at <= ?2
    ORDER BY due_at, first LIMIT ?3 OFFSET ?4)
LEFT JOIN gap USING (chunk)
"""
# The moment comes before what the partial index asks for: SQLite searches by the first of the two
# and would walk over everything overdue the other way round.
NEXT_DUE: Final = """
SELECT min(due_at) FROM (
    SELECT min(due_at) AS due_at FROM place
    WHERE first >> 43 = ?1 AND due_at > ?2 AND due_at > 0
    UNION ALL
    SELECT min(due_at) FROM recent
    WHERE first >> 43 = ?1 AND due_at > ?2 AND due_at > 0
    UNION ALL
    SELECT min(due_at) FROM entry
    WHERE key >> 43 = ?1 AND due_at > ?2 AND due_at > 0)
"""
_ENTRIES_DUE: Final = """
SELECT group_concat(due_at || ' ' || line || ' ' || state || ' ' ||
    key || ' ' || size || ' ' || chunk || ' ' || hex(data), ';')
FROM (
    SELECT due_at, line, state, key, size, chunk, data FROM entry
    WHERE key >> 43 = ?1 AND due_at > 0 AND due_at <= ?2
    ORDER BY due_at, key LIMIT ?3 OFFSET ?4)
"""
# Rows of remembered ids that one query brings: SQLite joins no more than a gigabyte.
REMEMBERED_ROWS_MAX: Final = 16_384

_WAITING: Final = """
SELECT group_concat(rank || ' ' || hex(name), ';')
FROM (SELECT rank, name FROM session WHERE rank >= ?1 AND rank <= ?2 ORDER BY rank LIMIT ?3)
"""
# The name, and what tells how it is spelled: both ends of the record of a message, and the start of
# that of the state. A record may be large, a name has at most 512 bytes.
_SPELLED: Final = """
SELECT group_concat(hex(name) || ' ' || coalesce((
    SELECT hex(substr(data, 1, 64)) || ' ' || hex(substr(data, -520)) FROM entry
    WHERE key = coalesce(rank, (
        SELECT key FROM entry WHERE session = id ORDER BY state, key LIMIT 1))
), ' ') || ' ' || coalesce((
    SELECT hex(substr(data, 1, 534)) FROM session_state WHERE session = id
), ''), ';')
"""
_NAMES: Final = f"""
{_SPELLED} FROM (
    SELECT id, name, rank FROM session
    WHERE local = ?1 ORDER BY name LIMIT ?2 OFFSET ?3)
"""
_NAMES_UPDATED: Final = f"""
{_SPELLED} FROM (
    SELECT id, name, rank FROM session JOIN session_state ON session = id
    WHERE local = ?1 AND set_at > ?4 ORDER BY name LIMIT ?2 OFFSET ?3)
"""
_STATE: Final = """
SELECT data FROM session_state
WHERE session = (SELECT id FROM session WHERE local = ?1 AND name = ?2)
"""
_REMEMBERED: Final = """
SELECT max(key), group_concat(length(data), ' '), CAST(group_concat(data, '') AS BLOB)
FROM (
    SELECT key, CAST(data AS BLOB) AS data FROM remembered
    WHERE key > ?1 AND key <= ?2 ORDER BY key LIMIT ?3)
"""
_PIECES: Final = """
SELECT piece, data FROM stage
WHERE local = ? AND stage = ? AND piece > ? AND piece <= ? ORDER BY piece
"""
_OPEN_PIECE: Final = f"SELECT substr(counters, {COUNTERS_BYTES + 1}) FROM fragment WHERE local = ?"
_KEPT_PIECES: Final = """
SELECT piece FROM stage
WHERE local = ? AND stage = ? AND piece > ? AND piece <= ? AND parts <> '[]' ORDER BY piece
"""
_PIECE: Final = "SELECT data FROM stage WHERE local = ? AND stage = ? AND piece = ?"
_RECORD: Final = "SELECT data FROM record WHERE local = ? AND kind = ? AND key = ?"
_RECORDS: Final = "SELECT kind, key, data FROM record WHERE local = ? ORDER BY kind, key"
_RECENT: Final = """
SELECT group_concat(first || ' ' || count || ' ' || size || ' ' || chunk || ' ' || due_at || ' ' ||
    is_mixed || ' ' || coalesce(hex(bitmap), ''), ';')
FROM recent LEFT JOIN gap USING (chunk)
"""
_PLACES: Final = """
SELECT group_concat(first || ' ' || count || ' ' || size || ' ' || chunk || ' ' || due_at || ' ' ||
    is_mixed || ' ' || coalesce(hex(bitmap), ''), ';')
FROM place LEFT JOIN gap USING (chunk)
WHERE first IN (SELECT (SELECT max(first) FROM place WHERE first <= value) FROM json_each(?1))
"""


class SqliteLookup(Lookup):
    """One connection to the file of a store."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection

    def text(self, sql: str, parameters: Sequence[int | str | bytes]) -> str | None:
        """The first column of the one row."""
        value = self.connection.execute(sql, parameters).fetchone()[0]
        assert value is None or isinstance(value, str)
        return value

    def begin(self) -> None:
        self.connection.execute("BEGIN")

    def end(self) -> None:
        if self.connection.in_transaction:
            self.connection.execute("ROLLBACK")

    def recent(self) -> list[Chunk]:
        """The chunks that are listed in the order of commits."""
        return listed_chunks(self.text(_RECENT, ()), is_recent=True)

    def places(self, keys: list[int]) -> list[Chunk]:
        return listed_chunks(self.text(_PLACES, (str(keys),)), is_recent=False)

    def chunks_from(
        self, low_key: int, start_key: int, high_key: int, limit: int
    ) -> list[ChunkRow]:
        return chunk_rows(self.text(_CHUNKS_FROM, (low_key, start_key, high_key, limit)))

    def chunks_of(self, keys: list[int]) -> list[ChunkRow]:
        return chunk_rows(self.text(_CHUNKS_OF, (str(keys), keys[0], keys[-1])))

    def raw_chunks(self, numbers: list[int]) -> Bytes:
        return self._cut(_BYTES, numbers)

    def raw_own(self, numbers: list[int]) -> Bytes:
        return self._cut(_BYTES, numbers)

    def heads_of(self, numbers: list[int]) -> dict[int, bytes]:
        return {number: head for number, (head, _) in self._cut(_HEADS, numbers).items()}

    def part_bodies(self, numbers: list[int]) -> dict[int, bytes]:
        return {number: body for number, (_, body) in self._cut(_PARTS, numbers).items()}

    def _cut(self, sql: str, numbers: list[int]) -> Bytes:
        text, heads, bodies = self.connection.execute(sql, (str(numbers),)).fetchone()
        return cut(text, heads or b"", bodies or b"")

    def entries_from(
        self, line: int, state: int, start_key: int, high_key: int, limit: int
    ) -> list[EntryRow]:
        return entry_rows(self.text(_ENTRIES_FROM, (line, state, start_key, high_key, limit)))

    def entries_in_session(
        self, local: int, name: bytes, state: int, start_key: int, high_key: int, limit: int
    ) -> list[EntryRow]:
        session = (local, name, state, start_key, high_key, limit)
        return entry_rows(self.text(_ENTRIES_IN_SESSION, session))

    def entries_of(self, keys: list[int]) -> list[EntryRow]:
        return entry_rows(self.text(_ENTRIES_OF, (str(keys),)))

    def due_chunks(self, local: int, now_ms: int, limit: int, passed: int) -> list[ChunkRow]:
        text = self.text(_CHUNKS_DUE, (local, now_ms, limit, passed))
        dues: list[tuple[int, ChunkRow]] = []
        for line in text.split(";") if text else ():
            due_at, rest = line.split(" ", 1)
            dues.append((int(due_at), chunk_rows(rest)[0]))
        dues.sort(key=_moment)
        return [row for _, row in dues]

    def due_entries(self, local: int, now_ms: int, limit: int, passed: int) -> list[DueRow]:
        text = self.text(_ENTRIES_DUE, (local, now_ms, limit, passed))
        found: list[DueRow] = []
        for line_text in text.split(";") if text else ():
            due_at, line, state, rest = line_text.split(" ", 3)
            found.append(DueRow(int(due_at), int(line), int(state), entry_rows(rest)[0]))
        return found

    def next_due_ms(self, local: int, after_ms: int) -> int:
        earliest = self.connection.execute(NEXT_DUE, (local, after_ms)).fetchone()[0]
        return NEVER_MS if earliest is None else int(earliest)

    def waiting(self, start_key: int, high_key: int, limit: int) -> list[tuple[int, bytes]]:
        text = self.text(_WAITING, (start_key, high_key, limit))
        found: list[tuple[int, bytes]] = []
        for line in text.split(";") if text else ():
            rank, name = line.split(" ")
            found.append((int(rank), bytes.fromhex(name)))
        return found

    def spelled(self, local: int, limit: int, skip: int, updated_after_ms: int) -> list[SpelledRow]:
        if updated_after_ms < 0:
            text = self.text(_NAMES, (local, limit, skip))
        else:
            text = self.text(_NAMES_UPDATED, (local, limit, skip, updated_after_ms))
        found: list[SpelledRow] = []
        for line in text.split(";") if text else ():
            name, start, end, state = line.split(" ")
            found.append(
                SpelledRow(
                    bytes.fromhex(name),
                    bytes.fromhex(start),
                    bytes.fromhex(end),
                    bytes.fromhex(state),
                )
            )
        return found

    def session_state(self, local: int, name: bytes) -> bytes | None:
        row = self.connection.execute(_STATE, (local, name)).fetchone()
        return None if row is None else _bytes(row[0])

    def counters(self, local: int) -> bytes:
        sql = "SELECT counters FROM fragment WHERE local = ?"
        row = self.connection.execute(sql, (local,)).fetchone()
        return b"" if row is None else bytes(row[0])

    def all_counters(self) -> list[tuple[int, bytes]]:
        rows = self.connection.execute("SELECT local, counters FROM fragment")
        return [(int(local), bytes(data)) for local, data in rows]

    def records(self, local: int) -> list[tuple[int, bytes, bytes]]:
        rows = self.connection.execute(_RECORDS, (local,))
        return [(int(kind), _bytes(key), _bytes(data)) for kind, key, data in rows]

    def record(self, local: int, kind: int, key: bytes) -> bytes:
        row = self.connection.execute(_RECORD, (local, kind, key)).fetchone()
        return b"" if row is None else _bytes(row[0])

    def recorded(self, kinds: list[int]) -> set[int]:
        marks = ", ".join("?" * len(kinds))
        sql = f"SELECT DISTINCT local FROM record WHERE kind IN ({marks})"
        return {int(row[0]) for row in self.connection.execute(sql, tuple(kinds))}

    def remembered(self, after: int, high: int) -> tuple[int, list[bytes]]:
        row = self.connection.execute(_REMEMBERED, (after, high, REMEMBERED_ROWS_MAX)).fetchone()
        if row[0] is None:
            return high, []
        found: list[bytes] = []
        at = 0
        for size in row[1].split(" "):
            end = at + int(size)
            found.append(row[2][at:end])
            at = end
        return int(row[0]), found

    def pieces(
        self, local: int, stage: bytes, after: int, until: int
    ) -> Iterator[tuple[int, bytes]]:
        for piece, data in self.connection.execute(_PIECES, (local, stage, after, until)):
            yield piece, _bytes(data)

    def open_piece(self, local: int) -> bytes:
        row = self.connection.execute(_OPEN_PIECE, (local,)).fetchone()
        return b"" if row is None else _bytes(row[0])

    def kept_pieces(self, local: int, stage: bytes, after: int, until: int) -> list[int]:
        rows = self.connection.execute(_KEPT_PIECES, (local, stage, after, until))
        return [int(row[0]) for row in rows]

    def piece(self, local: int, stage: bytes, number: int) -> bytes:
        row = self.connection.execute(_PIECE, (local, stage, number)).fetchone()
        return b"" if row is None else _bytes(row[0])


def _bytes(value: object) -> bytes:
    """A cell that is to hold bytes; damage may have made something else of it."""
    return value if isinstance(value, bytes) else b""


def _moment(due: tuple[int, ChunkRow]) -> int:
    return due[0]
