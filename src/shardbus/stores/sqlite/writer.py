"""How a SQLite store is written: one statement, one transaction, one fsync per commit."""
# Compiled by mypyc.

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final, final

from shardbus.core.fragment.change import Adopt, StagePut, new_counters
from shardbus.stores.base.store import FragmentCommit, FragmentId, NotStored, StoreError
from shardbus.stores.sqlite.batch import Batch
from shardbus.stores.sqlite.chunk import (
    COUNTER_MAX,
    LOCALS_MAX,
    counter_of,
    key_of,
    pack_counters,
    unpack_counters,
)
from shardbus.stores.sqlite.directory import Chunk, Known, StoreDirectory, listed_chunks
from shardbus.stores.sqlite.head import Head
from shardbus.stores.sqlite.reader import StoreLookup
from shardbus.stores.sqlite.rows import COLUMNS, Cell, Rows
from shardbus.stores.sqlite.staged import Adopted, StagedPiece, unpack_staged

# Rows of one INSERT; a larger commit takes several in one transaction.
ROWS_MAX: Final = 512
# Statements are padded with unused rows to one of these sizes, so that few are ever prepared.
STATEMENT_ROWS: Final = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
# Chunks that one INSERT adopts: their heads alone have two megabytes. A piece adds some.
ADOPT_ROWS_MAX: Final = 256
# The maximum that one call of `sweep` removes.
SWEEP_CHUNKS_MAX: Final = 256
SWEEP_ENTRIES_MAX: Final = 1024
SWEEP_SESSIONS_MAX: Final = 64
SWEEP_RECORDS_MAX: Final = 16
SWEEP_PIECES_MAX: Final = 16

_ROW: Final = "(" + ",".join("?" * COLUMNS) + ")"
_INSERT: Final = tuple(
    (size, "INSERT INTO work VALUES " + ",".join([_ROW] * size)) for size in STATEMENT_ROWS
)
_NO_ROW: Final[list[Cell]] = [None] * COLUMNS
_RECENT: Final = """
SELECT group_concat(first || ' ' || count || ' ' || size || ' ' || chunk || ' ' || due_at || ' ' ||
    is_mixed || ' ' || coalesce(hex(bitmap), ''), ';')
FROM recent LEFT JOIN gap USING (chunk)
"""
_NEXT: Final = """
SELECT 1 + coalesce((SELECT max(id) FROM chunk), 0), 1 + max(
    coalesce((SELECT max(id) FROM part), 0), coalesce((SELECT max(part) FROM part_users), 0))
"""
_PLACES: Final = """
SELECT group_concat(first || ' ' || count || ' ' || size || ' ' || chunk || ' ' || due_at || ' ' ||
    is_mixed || ' ' || coalesce(hex(bitmap), ''), ';')
FROM place LEFT JOIN gap USING (chunk)
WHERE first IN (SELECT (SELECT max(first) FROM place WHERE first <= value) FROM json_each(?1))
"""
_MOVE: Final = (
    """
    INSERT INTO place (first, chunk, count, size, due_at, is_mixed)
    SELECT first, chunk, count, size, due_at, is_mixed FROM recent ORDER BY first
    """,
    "DELETE FROM recent",
)
_FREE_LOCAL: Final = """
SELECT CASE WHEN NOT EXISTS (SELECT 1 FROM fragment WHERE local = 0) THEN 0
ELSE (SELECT min(local) + 1 FROM fragment AS f
    WHERE NOT EXISTS (SELECT 1 FROM fragment WHERE local = f.local + 1)) END
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
_PIECE: Final = "SELECT id, parts FROM stage WHERE local = ? AND stage = ? AND piece = ?"
_PIECES: Final = "SELECT id, parts FROM stage WHERE local = ? AND stage = ? AND piece <= ?"
_PIECE_DATA: Final = "SELECT id, data FROM stage WHERE local = ? AND stage = ? AND piece = ?"
_DROP_PIECES: Final = "DELETE FROM stage WHERE id IN (SELECT value FROM json_each(?))"
_PUT_PART: Final = "INSERT INTO part VALUES (?, ?)"
_USE_PART: Final = "INSERT INTO part_users VALUES (?, 1)"
_DROP_PARTS: Final = (
    "DELETE FROM part WHERE id IN (SELECT value FROM json_each(?))",
    "DELETE FROM part_users WHERE part IN (SELECT value FROM json_each(?))",
)


@final
class StoreWriter(StoreLookup):
    """Everything that changes a store. Its memory is thrown away when a statement fails."""

    def __init__(self, connection: sqlite3.Connection, recent_max: int) -> None:
        super().__init__(connection)
        self._recent_max = recent_max
        self._directory: StoreDirectory | None = None
        self._known = Known()

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
        for fragment in fragments:
            local = int(self.connection.execute(_FREE_LOCAL).fetchone()[0])
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
        for local in created.values():
            self._known.last_counters[local] = 0
            self._known.has_parts.discard(local)
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
        removed += self._drop_pieces(_SWEPT_PIECES, (local, SWEEP_PIECES_MAX))
        if removed == 0:
            for sql in _SWEEP_SESSIONS:
                removed += self.connection.execute(sql, (local, SWEEP_SESSIONS_MAX)).rowcount
        if removed == 0:
            self.connection.execute("DELETE FROM fragment WHERE local = ?", (local,))
        self.connection.execute("COMMIT")
        return True

    def commit(self, commits: Sequence[tuple[int, FragmentCommit]]) -> None:
        try:
            batch = self._planned(commits)
        except (StoreError, sqlite3.Error, OSError):
            raise
        except Exception as bug:
            # The commit is invalid, and nothing is written before everything is planned.
            raise NotStored(f"internal error: {bug!r}") from bug
        self._store(batch)

    def _planned(self, commits: Sequence[tuple[int, FragmentCommit]]) -> Batch:
        batch = Batch(self._loaded(), self._known)
        for local, commit in commits:
            batch.add(local, commit)
        missing = batch.find()
        if missing:
            text = self.text(_PLACES, (str(missing),))
            batch.learn(missing, listed_chunks(text, is_recent=False))
        needed = batch.unread()
        heads = self.heads_of(list(needed)) if needed else {}
        batch.plan(
            {number: Head(first, heads.get(number, b"")) for number, first in needed.items()}
        )
        return batch

    def roll_back(self) -> None:
        """After a failure: nothing was stored, and the memory must be loaded again."""
        self._directory = None
        if self.connection.in_transaction:
            self.connection.execute("ROLLBACK")

    def _loaded(self) -> StoreDirectory:
        if self._directory is not None:
            return self._directory
        directory = StoreDirectory()
        for chunk in listed_chunks(self.text(_RECENT, ()), is_recent=True):
            directory.add_recent(chunk)
        known = Known()
        known.next_chunk, known.next_part = self.connection.execute(_NEXT).fetchone()
        sql = "SELECT local, counters, has_parts FROM fragment"
        for local, data, has_parts in self.connection.execute(sql):
            counters = unpack_counters(local, data)
            known.last_counters[local] = COUNTER_MAX if counters is None else counters.last_counter
            if has_parts:
                known.has_parts.add(local)
        self._directory, self._known = directory, known
        return directory

    def _store(self, batch: Batch) -> None:
        cells = batch.rows.cells
        is_full = batch.directory.recent_count > self._recent_max
        if batch.rows.count() <= ROWS_MAX and not is_full and not batch.stages:
            self._insert(cells)
            return
        self.connection.execute("BEGIN IMMEDIATE")
        step = ROWS_MAX * COLUMNS
        for start in range(0, len(cells), step):
            self._insert(cells[start : start + step])
        if batch.stages:
            self._store_stages(batch)
        if batch.directory.recent_count > self._recent_max:
            self._move_recent()
            batch.directory.age()
        self.connection.execute("COMMIT")

    def _store_stages(self, batch: Batch) -> None:
        rows = Rows()
        adopted: list[int] = []
        for local, change in batch.stages:
            if isinstance(change, Adopt):
                adopted.append(self._adopt(local, change, batch, rows))
                if rows.count() >= ADOPT_ROWS_MAX:
                    self._insert(rows.cells)
                    rows = Rows()
                continue
            if adopted:
                # Before the end of their stage, which would remove their parts too.
                self.connection.execute(_DROP_PIECES, (str(adopted),))
                adopted = []
            if isinstance(change, StagePut):
                self._put_piece(local, change, batch.known)
            else:
                self._drop_pieces(_PIECES, (local, change.stage, change.until))
        self._insert(rows.cells)
        if adopted:
            self.connection.execute(_DROP_PIECES, (str(adopted),))

    def _put_piece(self, local: int, change: StagePut, known: Known) -> None:
        self._drop_pieces(_PIECE, (local, change.stage, change.piece))
        piece = StagedPiece(local, change.stage, change.piece, change.data)
        for body in piece.keep(change.payloads, known.next_part):
            self.connection.execute(_PUT_PART, (known.next_part, body))
            self.connection.execute(_USE_PART, (known.next_part,))
            known.next_part += 1
        row = (local, change.stage, change.piece, piece.pack(), str(piece.part_numbers()))
        self.connection.execute(_PUT_PIECE, row)

    def _drop_pieces(self, sql: str, parameters: tuple[int | bytes, ...]) -> int:
        """Remove pieces with their parts; returns how many."""
        pieces: list[int] = []
        parts: list[str] = []
        for number, listed in self.connection.execute(sql, parameters):
            pieces.append(number)
            if listed != "[]":
                parts.append(listed[1:-1])
        if parts:
            for statement in _DROP_PARTS:
                self.connection.execute(statement, (f"[{','.join(parts)}]",))
        if pieces:
            self.connection.execute(_DROP_PIECES, (str(pieces),))
        return len(pieces)

    def _adopt(self, local: int, change: Adopt, batch: Batch, rows: Rows) -> int:
        """Make chunks of the parts of a piece in place; returns the row of the piece."""
        name = (local, change.stage, change.piece)
        row = self.connection.execute(_PIECE_DATA, name).fetchone()
        piece = unpack_staged(row[1]) if row is not None and isinstance(row[1], bytes) else None
        if piece is None or piece.name() != name or piece.count() != change.count:
            raise NotStored(
                f"piece {change.piece} of a stage differs from what is to be published: the "
                "fragment must be loaded again"
            )
        known = batch.known
        if local not in known.has_parts:
            known.has_parts.add(local)
            rows.has_parts(local)
        position = 0
        for part in piece.parts:
            key = key_of(local, counter_of(change.first) + position)
            self._add_adopted(Adopted(key, part, change, position), batch, rows)
            position += len(part.sizes)
        number: int = row[0]
        return number

    def _add_adopted(self, adopted: Adopted, batch: Batch, rows: Rows) -> None:
        number = batch.known.next_chunk
        batch.known.next_chunk += 1
        chunk = Chunk(
            number,
            adopted.first,
            adopted.count,
            adopted.size_bytes,
            adopted.due_at_ms,
            adopted.is_mixed,
        )
        rows.append(chunk, adopted.head, str([adopted.part]))
        batch.directory.add_recent(chunk)

    def _insert(self, cells: list[Cell]) -> None:
        count = len(cells) // COLUMNS
        if count == 0:
            return
        size, sql = next(statement for statement in _INSERT if statement[0] >= count)
        self.connection.execute(sql, cells + _NO_ROW * (size - count))

    def _move_recent(self) -> None:
        for sql in _MOVE:
            self.connection.execute(sql)
