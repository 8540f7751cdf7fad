"""Fills a slot, or the catalogue, from a copy that `copy` made.

Fragments get new local numbers, because those of several files would collide, and every record is
sealed again. A fragment is one transaction, and `moved_fragment` says which are done, so that an
interrupted load continues where it was.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Final, TypeVar, final

from shardbus.core.message import SET_ASIDE
from shardbus.stores.base.backup import Watch
from shardbus.stores.base.store import StoreError
from shardbus.stores.chunked.chunk import COUNTER_MAX, LOCALS_MAX, encoded, key_of
from shardbus.stores.chunked.renumber import Renumbering
from shardbus.stores.postgres.link import Link
from shardbus.stores.postgres.lookup import keys_of
from shardbus.stores.sqlite.database import recognise, store_error

T = TypeVar("T")

Cell = int | str | bytes | None
Row = tuple[Cell, ...]

# The most rows, and the most bytes of rows, in one statement.
ROWS_MAX: Final = 1_024
BYTES_MAX: Final = 4 * 1024 * 1024

PROGRESS_TABLE: Final = """
CREATE TABLE IF NOT EXISTS moved_fragment (
    slot integer NOT NULL,
    old bigint NOT NULL,
    local bigint NOT NULL UNIQUE,
    is_done boolean NOT NULL DEFAULT false,
    PRIMARY KEY (slot, old)
)
"""
_LOCALS: Final = "SELECT old, local, is_done FROM moved_fragment WHERE slot = $1"
_NEXT_LOCAL: Final = "SELECT coalesce(max(local) + 1, 0) FROM moved_fragment"
_NUMBER: Final = """
INSERT INTO moved_fragment (slot, old, local) SELECT $1, u.old, u.local
FROM unnest($2::bigint[], $3::bigint[]) AS u(old, local)
"""
_DONE: Final = "UPDATE moved_fragment SET is_done = true WHERE slot = $1 AND old = $2"
_SLOT: Final = """
INSERT INTO slot (slot, epoch, commits, owner, namespace_id, highest_entity_id)
VALUES ($1, 0, 0, '', $2, $3)
"""
_FRAGMENT: Final = """
INSERT INTO fragment (local, slot, entity_id, number, counters, is_deleted, forgotten_at,
    forgotten_to, has_parts, journal) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
"""
_SESSIONS: Final = """
INSERT INTO session (local, name, rank)
SELECT $1, u.name, u.rank FROM unnest($2::bytea[], $3::bigint[]) AS u(name, rank)
RETURNING id, name
"""
_PARTS: Final = """
INSERT INTO part (id, users, body)
SELECT u.id, u.users, u.body FROM unnest($1::bigint[], $2::integer[], $3::bytea[])
    AS u(id, users, body)
ON CONFLICT DO NOTHING
"""
_CHUNKS: Final = """
INSERT INTO chunk (first, span, size, due_at, is_mixed, head, body, parts)
SELECT u.first, u.span, u.size, u.due_at, u.is_mixed = 1, u.head, u.body,
    translate(u.parts, '[]', '{}')::bigint[]
FROM unnest($1::bigint[], $2::integer[], $3::bigint[], $4::bigint[], $5::smallint[], $6::bytea[],
    $7::bytea[], $8::text[]) AS u(first, span, size, due_at, is_mixed, head, body, parts)
"""
_ENTRIES: Final = """
INSERT INTO entry (key, line, state, size, due_at, session, data, head, body, parts)
SELECT u.key, u.line, u.state, u.size, u.due_at, u.session, u.data, u.head, u.body,
    translate(u.parts, '[]', '{}')::bigint[]
FROM unnest($1::bigint[], $2::smallint[], $3::smallint[], $4::bigint[], $5::bigint[],
    $6::bigint[], $7::bytea[], $8::bytea[], $9::bytea[], $10::text[])
    AS u(key, line, state, size, due_at, session, data, head, body, parts)
"""
_GAPS: Final = """
INSERT INTO gap (first, bitmap)
SELECT u.first, u.bitmap FROM unnest($1::bigint[], $2::bytea[]) AS u(first, bitmap)
"""
_STATES: Final = """
INSERT INTO session_state (session, set_at, data)
SELECT u.session, u.set_at, u.data FROM unnest($1::bigint[], $2::bigint[], $3::bytea[])
    AS u(session, set_at, data)
"""
_REMEMBERED: Final = """
INSERT INTO remembered (key, at_ms, data)
SELECT u.key, u.at_ms, u.data FROM unnest($1::bigint[], $2::bigint[], $3::bytea[])
    AS u(key, at_ms, data)
"""
_EVIDENCE: Final = """
INSERT INTO evidence (key, head, body)
SELECT u.key, u.head, u.body FROM unnest($1::bigint[], $2::bytea[], $3::bytea[])
    AS u(key, head, body)
"""
_RECORDS: Final = """
INSERT INTO record (local, kind, key, data)
SELECT u.local, u.kind, u.key, u.data
FROM unnest($1::bigint[], $2::bigint[], $3::bytea[], $4::bytea[]) AS u(local, kind, key, data)
"""
_PIECES: Final = """
INSERT INTO stage (local, stage, piece, data, parts)
SELECT u.local, u.stage, u.piece, u.data, translate(u.parts, '[]', '{}')::bigint[]
FROM unnest($1::bigint[], $2::bytea[], $3::bigint[], $4::bytea[], $5::text[])
    AS u(local, stage, piece, data, parts)
"""

_PLACED: Final = """
SELECT first, count, size, due_at, is_mixed, head, body FROM {0} JOIN chunk ON chunk.id = {0}.chunk
WHERE first BETWEEN ? AND ? ORDER BY first
"""
_GAPS_OF: Final = """
SELECT first, bitmap FROM {0} JOIN gap USING (chunk) WHERE first BETWEEN ? AND ? ORDER BY first
"""
_ENTRIES_OF: Final = """
SELECT key, line, state, size, due_at, session, data, head, body
FROM entry LEFT JOIN chunk ON chunk.id = entry.chunk WHERE key BETWEEN ? AND ? ORDER BY key
"""


def load_store(link: Link, slot: int, path: Path, watch: Watch) -> None:
    """Create a slot and fill it. StoreError if the copy is damaged."""
    recognise(path)
    try:
        with closing(_opened(path)) as file:
            _Load(link, slot, file, path.name, watch).run()
    except sqlite3.Error as error:
        raise store_error(path, error) from error


def load_catalogue(link: Link, path: Path) -> None:
    """Fill the catalogue, all or nothing."""
    try:
        with closing(_opened(path)) as file:
            only = file.execute(
                "SELECT namespace_id, next_entity_id, created_at_ms, rules, rules_checksum "
                "FROM namespace"
            ).fetchone()
            entities = file.execute("SELECT id, name_key, document, checksum FROM entity")
            notes = file.execute("SELECT id, document, checksum, is_final FROM unfinished")
            link.begin()
            link.fetch(
                "INSERT INTO namespace VALUES (true, $1, $2, $3, $4, $5, 0, '')",
                *only[:3],
                encoded(only[3]),
                only[4],
            )
            for row in entities:
                texts = (encoded(row[1]), encoded(row[2]))
                link.fetch("INSERT INTO entity VALUES ($1, $2, $3, $4)", row[0], *texts, row[3])
            for row in notes:
                values = (row[0], encoded(row[1]), row[2], bool(row[3]))
                link.fetch("INSERT INTO unfinished VALUES ($1, $2, $3, $4)", *values)
            link.commit()
    except sqlite3.Error as error:
        raise store_error(path, error) from error


def _opened(path: Path) -> sqlite3.Connection:
    # No other process uses the copy, and this mode leaves no files beside it.
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)


@final
class _Load:
    def __init__(
        self, link: Link, slot: int, file: sqlite3.Connection, name: str, watch: Watch
    ) -> None:
        self._link = link
        self._slot = slot
        self._file = file
        self._name = name
        self._watch = watch
        self._done_bytes = 0

    def run(self) -> None:
        self._check_parts()
        locals_ = self._numbered()
        self._load_parts()
        columns = "entity_id, number, counters, is_deleted, forgotten_at, forgotten_to, has_parts"
        rows = self._file.execute(f"SELECT local, {columns} FROM fragment ORDER BY local")
        for old, *fragment in rows.fetchall():
            new, is_done = locals_[old]
            if not is_done:
                self._load_fragment(Renumbering(old, new, self._part), fragment)
        namespace = self._file.execute("SELECT namespace_id FROM namespace").fetchone()
        highest = self._file.execute("SELECT max(highest) FROM entity_ids").fetchone()
        namespace_id = "" if namespace is None else namespace[0]
        self._link.fetch(_SLOT, self._slot, namespace_id, highest[0])

    def _numbered(self) -> dict[int, tuple[int, bool]]:
        """The new number of each fragment, and whether it is loaded."""
        found = self._link.fetch(_LOCALS, self._slot)
        if not found:
            rows = self._file.execute("SELECT local FROM fragment ORDER BY local").fetchall()
            first = int(self._link.fetch(_NEXT_LOCAL)[0][0])
            if first + len(rows) > LOCALS_MAX:
                raise StoreError(f"a database holds at most {LOCALS_MAX} fragments")
            new = list(range(first, first + len(rows)))
            self._link.fetch(_NUMBER, self._slot, [row[0] for row in rows], new)
            found = self._link.fetch(_LOCALS, self._slot)
        return {row[0]: (row[1], row[2]) for row in found}

    def _check_parts(self) -> None:
        """Part numbers begin with the slot; the parts of a file must have a single slot."""
        sql = f"SELECT count(DISTINCT id / {1 << 43}) FROM part"
        if self._file.execute(sql).fetchone()[0] > 1:
            raise StoreError(f"{self._name} has parts with numbers of several slots")

    def _part(self, old: int) -> int:
        return key_of(self._slot, old & COUNTER_MAX)

    def _load_parts(self) -> None:
        sql = "SELECT max(id) FROM part WHERE id BETWEEN $1 AND $2"
        last = self._link.fetch(sql, *keys_of(self._slot))[0][0]
        rows = self._file.execute(
            "SELECT id, users, body FROM part JOIN part_users ON part = id "
            f"WHERE id % {1 << 43} > ? ORDER BY id",
            (0 if last is None else last & COUNTER_MAX,),
        )
        self._put(_PARTS, ((self._part(row[0]), *row[1:]) for row in rows))

    def _load_fragment(self, to: Renumbering, fragment: list[int | bytes]) -> None:
        entity_id, number, counters, is_deleted, forgotten_at, forgotten_to, has_parts = fragment
        assert isinstance(counters, bytes) and isinstance(forgotten_to, int)
        low, high = keys_of(to.old)
        self._link.begin()
        sessions = self._load_sessions(to)
        for table in ("place", "recent"):
            placed = self._file.execute(_PLACED.format(table), (low, high))
            self._put(_CHUNKS, (self._chunk(to, row) for row in placed))
            gaps = self._file.execute(_GAPS_OF.format(table), (low, high))
            self._put(_GAPS, ((to.key(k), self._sound(to.gap(k, gap))) for k, gap in gaps))
        entries = self._file.execute(_ENTRIES_OF, (low, high))
        self._put(_ENTRIES, (self._entry(to, row, sessions) for row in entries))
        self._load_kept(to, low, high)
        self._link.fetch(
            _FRAGMENT,
            to.new,
            self._slot,
            entity_id,
            number,
            self._sound(to.counters(counters)),
            bool(is_deleted),
            forgotten_at,
            to.key(forgotten_to) if forgotten_to else 0,
            bool(has_parts),
            self._sound(to.open_piece(counters)),
        )
        self._link.fetch(_DONE, self._slot, to.old)
        self._link.commit()

    def _load_sessions(self, to: Renumbering) -> dict[int, int]:
        """Sessions and their states; the new number of each session."""
        sql = "SELECT id, name, rank FROM session WHERE local = ?"
        rows = self._file.execute(sql, (to.old,)).fetchall()
        ranks = [None if row[2] is None else to.key(row[2]) for row in rows]
        made = self._link.fetch(_SESSIONS, to.new, [row[1] for row in rows], ranks)
        by_name = {bytes(row[1]): int(row[0]) for row in made}
        numbers = {row[0]: by_name[row[1]] for row in rows}
        states = self._file.execute(
            "SELECT session, set_at, session_state.data FROM session_state JOIN session "
            "ON session.id = session_state.session WHERE local = ?",
            (to.old,),
        )
        self._put(
            _STATES,
            ((numbers[row[0]], row[1], self._sound(to.session_state(row[2]))) for row in states),
        )
        return numbers

    def _load_kept(self, to: Renumbering, low: int, high: int) -> None:
        """The contents of a fragment other than its messages."""
        evidence = self._file.execute(
            "SELECT key, head, body FROM evidence WHERE key BETWEEN ? AND ?", (low, high)
        )
        self._put(_EVIDENCE, ((to.key(row[0]), *row[1:]) for row in evidence))
        ids = self._file.execute(
            "SELECT key, at_ms, data FROM remembered WHERE key BETWEEN ? AND ?", (low, high)
        )
        self._put(
            _REMEMBERED,
            ((to.key(row[0]), row[1], self._sound(to.remembered(row[2]))) for row in ids),
        )
        records = self._file.execute(
            "SELECT kind, key, data FROM record WHERE local = ?", (to.old,)
        )
        self._put(
            _RECORDS,
            ((to.new, row[0], row[1], self._sound(to.record(row[2]))) for row in records),
        )
        pieces = self._file.execute(
            "SELECT stage, piece, data FROM stage WHERE local = ? ORDER BY id", (to.old,)
        )
        self._put(_PIECES, (self._piece(to, *row) for row in pieces))

    def _chunk(self, to: Renumbering, row: Row) -> Row:
        first, span, size, due_at, is_mixed, head, body = row
        assert isinstance(first, int) and isinstance(head, bytes)
        bytes_ = self._bytes(to, self._sound(to.head(first, head)), body)
        return to.key(first), span, size, due_at, is_mixed, *bytes_

    def _entry(self, to: Renumbering, row: Row, sessions: dict[int, int]) -> Row:
        key, line, state, size, due_at, session, data, head, body = row
        assert isinstance(key, int) and isinstance(data, bytes)
        new_session = sessions[session] if isinstance(session, int) else None
        sealed = to.state(key, data)
        new_head = to.head(key, head) if isinstance(head, bytes) else None
        if state == SET_ASIDE:
            # Copied unchanged, even if damaged: under another key damaged bytes stay damaged.
            sealed = data if sealed is None else sealed
            new_head = head if new_head is None and isinstance(head, bytes) else new_head
        elif new_head is None:
            raise self._damaged()
        fields = (to.key(key), line, state, size, due_at, new_session, self._sound(sealed))
        return *fields, *self._bytes(to, new_head, body)

    def _bytes(self, to: Renumbering, head: bytes | None, body: Cell) -> Row:
        """Head, body and parts; a text in place of a body lists the parts."""
        if not isinstance(body, str):
            return head, body, None
        old = [int(part) for part in body.strip("[]").split(",") if part.strip()]
        return head, None, str([self._part(part) for part in old])

    def _piece(self, to: Renumbering, stage: bytes, piece: int, data: bytes) -> Row:
        packed, parts = self._sound(to.staged(data))
        return to.new, stage, piece, packed, str(parts)

    def _sound(self, found: T | None) -> T:
        if found is None:
            raise self._damaged()
        return found

    def _damaged(self) -> StoreError:
        return StoreError(
            f"{self._name} is damaged, and a database takes only what is sound: create a data "
            f"directory from it, repair that with `shardbus check --repair`, and move it"
        )

    def _put(self, sql: str, rows: Iterable[Row]) -> None:
        for batch in _batches(rows, self._tell):
            columns = [list(column) for column in zip(*batch, strict=True)]
            self._link.fetch(sql, *columns)

    def _tell(self, size_bytes: int) -> None:
        self._done_bytes += size_bytes
        self._watch(self._done_bytes)


def _batches(rows: Iterable[Row], tell: Callable[[int], None]) -> Iterator[list[Row]]:
    batch: list[Row] = []
    size_bytes = 0
    for row in rows:
        batch.append(row)
        size_bytes += sum(len(cell) for cell in row if isinstance(cell, bytes))
        if len(batch) >= ROWS_MAX or size_bytes >= BYTES_MAX:
            tell(size_bytes)
            yield batch
            batch, size_bytes = [], 0
    if batch:
        tell(size_bytes)
        yield batch
