"""How a SQLite store is written: one statement, one transaction, one fsync per commit."""
# Compiled by mypyc.

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final, final

from shardbus.core.fragment.change import new_counters
from shardbus.core.lifecycle.journal import LIFECYCLE_STAGE
from shardbus.stores.base.store import FragmentCommit, FragmentId, NotStored, StoreError
from shardbus.stores.chunked.batch import Batch, planned
from shardbus.stores.chunked.chunk import (
    COUNTER_MAX,
    LOCALS_MAX,
    key_of,
    pack_counters,
    unpack_counters,
)
from shardbus.stores.chunked.directory import Known, StoreDirectory
from shardbus.stores.chunked.journal import ClosedPiece, open_in
from shardbus.stores.chunked.rows import COLUMNS, Cell, Rows
from shardbus.stores.chunked.stages import FoundPiece, StageTables, StageWriter, drop_pieces
from shardbus.stores.sqlite.lookup import SqliteLookup

# Rows of one INSERT; a larger commit takes several in one transaction.
ROWS_MAX: Final = 512
# Statements are padded with unused rows to one of these sizes, so that few are ever prepared.
STATEMENT_ROWS: Final = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
# What one call of `sweep` removes at most.
SWEEP_CHUNKS_MAX: Final = 256
SWEEP_ENTRIES_MAX: Final = 1024
SWEEP_SESSIONS_MAX: Final = 64
SWEEP_RECORDS_MAX: Final = 16
SWEEP_PIECES_MAX: Final = 16
# Closed pieces of journals in one statement.
CLOSED_ROWS_MAX: Final = 16

_ROW: Final = "(" + ",".join("?" * COLUMNS) + ")"
_INSERT: Final = tuple(
    (size, "INSERT INTO work VALUES " + ",".join([_ROW] * size)) for size in STATEMENT_ROWS
)
_NO_ROW: Final[list[Cell]] = [None] * COLUMNS
_NEXT: Final = """
SELECT 1 + coalesce((SELECT max(id) FROM chunk), 0), 1 + max(
    coalesce((SELECT max(id) FROM part), 0), coalesce((SELECT max(part) FROM part_users), 0))
"""
_MOVE: Final = (
    """
    INSERT INTO place (first, chunk, count, size, due_at, is_mixed)
    SELECT first, chunk, count, size, due_at, is_mixed FROM recent ORDER BY first
    """,
    "DELETE FROM recent",
)
# The first free number at or above another one.
_FREE_LOCAL: Final = """
SELECT CASE WHEN NOT EXISTS (SELECT 1 FROM fragment WHERE local = ?1) THEN ?1
ELSE (SELECT local + 1 FROM fragment AS f
    WHERE local >= ?1 AND NOT EXISTS (SELECT 1 FROM fragment WHERE local = f.local + 1)
    ORDER BY local LIMIT 1) END
"""
_NOTE_ID: Final = "UPDATE entity_ids SET highest = ?1 WHERE highest < ?1"
_GOING_CHUNKS: Final = """
SELECT part, count(*) AS count FROM chunk_part WHERE chunk IN (
    SELECT chunk FROM place WHERE first BETWEEN ?1 AND ?2 ORDER BY first LIMIT ?3)
GROUP BY part
"""
_GOING_ENTRIES: Final = """
SELECT part, count(*) AS count FROM chunk_part WHERE chunk IN (
    SELECT chunk FROM entry WHERE key BETWEEN ?1 AND ?2 ORDER BY key LIMIT ?3)
GROUP BY part
"""
# Does for many chunks what `Rows.release_chunk` does for one; {} is one of the queries above.
_RELEASE: Final = (
    """
    UPDATE part_users SET users = users - count FROM ({}) AS going
    WHERE part_users.part = going.part
    """,
    """
    DELETE FROM part WHERE id IN (
        SELECT part FROM ({}) JOIN part_users USING (part) WHERE users <= 0)
    """,
    "DELETE FROM part_users WHERE users <= 0 AND part IN (SELECT part FROM ({}))",
)
_SWEEP: Final = (
    """
    DELETE FROM gap WHERE chunk IN (
        SELECT chunk FROM (
            SELECT chunk FROM place WHERE first BETWEEN ?1 AND ?2 ORDER BY first LIMIT ?3))
    """,
    """
    DELETE FROM chunk WHERE id IN (
        SELECT chunk FROM place WHERE first BETWEEN ?1 AND ?2 ORDER BY first LIMIT ?3)
    """,
    """
    DELETE FROM place WHERE first IN (
        SELECT first FROM place WHERE first BETWEEN ?1 AND ?2 ORDER BY first LIMIT ?3)
    """,
)
_SWEEP_KEYED: Final = (
    """
    DELETE FROM chunk WHERE id IN (
        SELECT chunk FROM entry WHERE key BETWEEN ?1 AND ?2 ORDER BY key LIMIT ?3)
    """,
    """
    DELETE FROM entry WHERE key IN (
        SELECT key FROM entry WHERE key BETWEEN ?1 AND ?2 ORDER BY key LIMIT ?3)
    """,
    """
    DELETE FROM evidence WHERE key IN (
        SELECT key FROM evidence WHERE key BETWEEN ?1 AND ?2 ORDER BY key LIMIT ?3)
    """,
    """
    DELETE FROM remembered WHERE key IN (
        SELECT key FROM remembered WHERE key BETWEEN ?1 AND ?2 ORDER BY key LIMIT ?3)
    """,
)
# Only when no entry refers to them: a new session may get the number of a removed one.
_SWEEP_SESSIONS: Final = (
    """
    DELETE FROM session_state WHERE session IN (
        SELECT id FROM session WHERE local = ?1 ORDER BY name LIMIT ?2)
    """,
    """
    DELETE FROM session WHERE id IN (
        SELECT id FROM session WHERE local = ?1 ORDER BY name LIMIT ?2)
    """,
)
_SWEEP_RECORDS: Final = """
DELETE FROM record WHERE id IN (SELECT id FROM record WHERE local = ?1 LIMIT ?2)
"""
_SWEPT_PIECES: Final = "SELECT id, parts FROM stage WHERE local = ?1 LIMIT ?2"
# Not through the view: every row of every commit would then evaluate one more trigger.
_PUT_PIECE: Final = "INSERT INTO stage (local, stage, piece, data, parts) VALUES (?, ?, ?, ?, ?)"
_PUT_CLOSED: Final = tuple(
    "INSERT INTO stage (local, stage, piece, data) VALUES " + ",".join(["(?, ?, ?, ?)"] * count)
    for count in range(1, CLOSED_ROWS_MAX + 1)
)
_PIECES: Final = """
SELECT id, parts FROM stage WHERE local = ? AND stage = ? AND piece BETWEEN ? AND ?
"""
_PIECE_DATA: Final = "SELECT id, data FROM stage WHERE local = ? AND stage = ? AND piece = ?"
_DROP_PIECES: Final = "DELETE FROM stage WHERE id IN (SELECT value FROM json_each(?))"
_PUT_PART: Final = "INSERT INTO part VALUES (?, ?)"
_USE_PART: Final = "INSERT INTO part_users VALUES (?, 1)"
_DROP_PARTS: Final = (
    "DELETE FROM part WHERE id IN (SELECT value FROM json_each(?))",
    "DELETE FROM part_users WHERE part IN (SELECT value FROM json_each(?))",
)


@final
class SqliteStages(StageTables):
    """The stages of a store, within the transaction of its writer."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def insert_rows(self, rows: Rows) -> None:
        insert_cells(self._connection, rows.cells)

    def find_pieces(self, local: int, stage: bytes, first: int, last: int) -> list[FoundPiece]:
        return self.find(_PIECES, (local, stage, first, last))

    def find(self, sql: str, parameters: tuple[int | bytes, ...]) -> list[FoundPiece]:
        """Pieces that a query of rows and lists of parts finds."""
        found: list[FoundPiece] = []
        for number, listed in self._connection.execute(sql, parameters):
            found.append((number, [int(part) for part in listed[1:-1].split(",") if part]))
        return found

    def piece_row(self, local: int, stage: bytes, piece: int) -> tuple[int, bytes]:
        row = self._connection.execute(_PIECE_DATA, (local, stage, piece)).fetchone()
        return (0, b"") if row is None or not isinstance(row[1], bytes) else (row[0], row[1])

    def put_piece(
        self, local: int, stage: bytes, piece: int, packed: bytes, parts: list[int]
    ) -> None:
        self._connection.execute(_PUT_PIECE, (local, stage, piece, packed, str(parts)))

    def put_closed(self, pieces: list[ClosedPiece]) -> None:
        for start in range(0, len(pieces), CLOSED_ROWS_MAX):
            some = pieces[start : start + CLOSED_ROWS_MAX]
            values: list[int | bytes] = []
            for local, number, packed in some:
                values += (local, LIFECYCLE_STAGE, number, packed)
            self._connection.execute(_PUT_CLOSED[len(some) - 1], values)

    def put_part(self, number: int, body: bytes) -> None:
        self._connection.execute(_PUT_PART, (number, body))
        self._connection.execute(_USE_PART, (number,))

    def drop_rows(self, pieces: list[int]) -> None:
        self._connection.execute(_DROP_PIECES, (str(pieces),))

    def drop_parts(self, parts: list[int]) -> None:
        for statement in _DROP_PARTS:
            self._connection.execute(statement, (str(parts),))


@final
class StoreWriter(SqliteLookup):
    """Everything that changes a store. Its memory is thrown away when a statement fails."""

    def __init__(self, connection: sqlite3.Connection, recent_max: int) -> None:
        super().__init__(connection)
        self._recent_max = recent_max
        self._directory: StoreDirectory | None = None
        self._known = Known()
        self._stages = SqliteStages(connection)
        # All lower local numbers are taken.
        self._free_from = 0

    def fragments(self) -> dict[FragmentId, int]:
        """The local numbers of all fragments that exist."""
        sql = "SELECT entity_id, number, local FROM fragment WHERE is_deleted = 0"
        return {
            FragmentId(entity_id, number): local
            for entity_id, number, local in self.connection.execute(sql)
        }

    def create(self, fragments: Sequence[FragmentId]) -> dict[FragmentId, int]:
        created: dict[FragmentId, int] = {}
        self.connection.execute("BEGIN IMMEDIATE")
        free_from = self._free_from
        for fragment in fragments:
            local = int(self.connection.execute(_FREE_LOCAL, (free_from,)).fetchone()[0])
            free_from = local + 1
            if local >= LOCALS_MAX:
                raise StoreError(f"a store has at most {LOCALS_MAX} fragments; add a broker")
            counters = pack_counters(local, new_counters())
            self.connection.execute(
                "INSERT INTO fragment (local, entity_id, number, counters) VALUES (?, ?, ?, ?)",
                (local, *fragment, counters),
            )
            created[fragment] = local
        highest = max(fragment.entity_id for fragment in fragments)
        self.connection.execute(_NOTE_ID, (highest,))
        self.connection.execute("COMMIT")
        self._free_from = free_from
        for local in created.values():
            self._known.last_counters[local] = 0
            self._known.has_parts.discard(local)
            self._known.open_pieces.pop(local, None)
        return created

    def delete(self, locals_: Sequence[int]) -> None:
        self.connection.execute("BEGIN IMMEDIATE")
        self._move_recent()
        for local in locals_:
            self.connection.execute("UPDATE fragment SET is_deleted = 1 WHERE local = ?", (local,))
        self.connection.execute("COMMIT")
        self._directory = None

    def sweep(self) -> bool:
        sql = "SELECT local, has_parts FROM fragment WHERE is_deleted = 1 ORDER BY local LIMIT 1"
        row = self.connection.execute(sql).fetchone()
        if row is None:
            return False
        local, has_parts = row
        low, high = key_of(local, 0), key_of(local, COUNTER_MAX)
        self.connection.execute("BEGIN IMMEDIATE")
        removed = 0
        for sql in _RELEASE if has_parts else ():
            for going, limit in (
                (_GOING_CHUNKS, SWEEP_CHUNKS_MAX),
                (_GOING_ENTRIES, SWEEP_ENTRIES_MAX),
            ):
                self.connection.execute(sql.format(going), (low, high, limit))
        for sql in _SWEEP:
            removed += self.connection.execute(sql, (low, high, SWEEP_CHUNKS_MAX)).rowcount
        for sql in _SWEEP_KEYED:
            removed += self.connection.execute(sql, (low, high, SWEEP_ENTRIES_MAX)).rowcount
        removed += self.connection.execute(_SWEEP_RECORDS, (local, SWEEP_RECORDS_MAX)).rowcount
        pieces = self._stages.find(_SWEPT_PIECES, (local, SWEEP_PIECES_MAX))
        drop_pieces(self._stages, pieces)
        removed += len(pieces)
        if removed == 0:
            for sql in _SWEEP_SESSIONS:
                removed += self.connection.execute(sql, (local, SWEEP_SESSIONS_MAX)).rowcount
        if removed == 0:
            self.connection.execute("DELETE FROM fragment WHERE local = ?", (local,))
            self._free_from = 0
        self.connection.execute("COMMIT")
        return True

    def commit(self, commits: Sequence[tuple[int, FragmentCommit]]) -> None:
        try:
            directory = self._loaded()
            batch = planned(self, directory, self._known, commits)
        except (StoreError, sqlite3.Error, OSError):
            raise
        except Exception as bug:
            # The commit is invalid, and nothing is written before everything is planned.
            raise NotStored(f"internal error: {bug!r}") from bug
        self._store(batch)

    def roll_back(self) -> None:
        """After a failure: nothing was stored, and the memory must be loaded again."""
        self._directory = None
        if self.connection.in_transaction:
            self.connection.execute("ROLLBACK")

    def _loaded(self) -> StoreDirectory:
        if self._directory is not None:
            return self._directory
        directory = StoreDirectory()
        for chunk in self.recent():
            directory.add_recent(chunk)
        known = Known()
        known.next_chunk, known.next_part = self.connection.execute(_NEXT).fetchone()
        sql = "SELECT local, counters, has_parts FROM fragment"
        for local, data, has_parts in self.connection.execute(sql):
            counters = unpack_counters(local, data)
            known.last_counters[local] = COUNTER_MAX if counters is None else counters.last_counter
            if has_parts:
                known.has_parts.add(local)
            known.load_open(local, open_in(data))
        self._directory, self._known = directory, known
        return directory

    def _store(self, batch: Batch) -> None:
        cells = batch.rows.cells
        is_full = batch.directory.recent_count > self._recent_max
        if batch.rows.count() <= ROWS_MAX and not is_full and not batch.has_stages():
            insert_cells(self.connection, cells)
            return
        self.connection.execute("BEGIN IMMEDIATE")
        step = ROWS_MAX * COLUMNS
        for start in range(0, len(cells), step):
            insert_cells(self.connection, cells[start : start + step])
        if batch.has_stages():
            StageWriter(self._stages, batch).store()
        if batch.directory.recent_count > self._recent_max:
            self._move_recent()
            batch.directory.age()
        self.connection.execute("COMMIT")

    def _move_recent(self) -> None:
        for sql in _MOVE:
            self.connection.execute(sql)


def insert_cells(connection: sqlite3.Connection, cells: list[Cell]) -> None:
    """Rows for the view `work`, in one statement; not more than ROWS_MAX."""
    count = len(cells) // COLUMNS
    if count == 0:
        return
    size, sql = next(statement for statement in _INSERT if statement[0] >= count)
    connection.execute(sql, cells + _NO_ROW * (size - count))
