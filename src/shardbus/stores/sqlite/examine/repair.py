"""Writes the sound part of a damaged store into a new file, which replaces the old one.

The old file stays beside it as `NAME.damaged-1`, `-2` and so on. The old file is replaced only when
the new one is complete and durable, so a repair may be killed at any moment and run again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, final

from shardbus.core.fragment.change import Counters, new_counters
from shardbus.core.fragment.records import LIFECYCLE
from shardbus.core.lifecycle.journal import LIFECYCLE_STAGE, RECORD_KEY, Journal
from shardbus.core.lifecycle.rows import unpacked
from shardbus.core.message import MAIN_LINE, SET_ASIDE, Entry
from shardbus.stores.base.check import Progress, Repaired
from shardbus.stores.base.record import HOLE, SIZE_BYTES, is_whole
from shardbus.stores.chunked.chunk import (
    CHUNK_SPAN_MAX,
    COUNTER_MAX,
    assembled,
    due_of,
    local_of,
    pack_counters,
    pack_gap,
    pack_head,
    pack_record,
    pack_state,
    sequence_of,
    unpack_session_state,
    unpack_spots,
)
from shardbus.stores.chunked.journal import blocks_in
from shardbus.stores.chunked.staged import StagedPiece
from shardbus.stores.sqlite.database import (
    FileLock,
    open_writer,
    prepare,
    store_error,
)
from shardbus.stores.sqlite.examine.check import examine, not_there
from shardbus.stores.sqlite.examine.finding import (
    Aside,
    FoundPiece,
    FoundPlace,
    Nowhere,
    Owner,
    Stored,
    count_in,
)
from shardbus.stores.sqlite.examine.salvage import Salvage, blob, integer, open_unchanged
from shardbus.stores.sqlite.examine.swapping import fold_log, put_in_place, remove_file
from shardbus.stores.sqlite.log_check import keep_if_damaged

# Where counters are lost, or records of forwarded messages may be, sequence numbers continue this
# far after the last one found, so that none is given out twice.
COUNTER_SKIP: Final = 1 << 32
ROWS_PER_COMMIT: Final = 5_000


def repair_store(path: Path, progress: Progress) -> Repaired:
    """Repair one store if it is damaged. StoreError when it is being served or cannot be written.

    A sound file, and a file that cannot be read at all, are left as they are.
    """
    real = path.resolve()
    if not real.exists():
        return Repaired(not_there(path), "", 0, 0)
    lock = FileLock(real)
    try:
        if keep_if_damaged(real):
            fold_log(real)
        found, survey = examine(real, path.name, Nowhere(), progress)
        if found.is_sound() or survey is None:
            return Repaired(found, "", found.messages, found.set_aside)
        return _rewrite(real, path.name, progress)
    except (sqlite3.Error, OSError) as error:
        raise store_error(real, error) from error
    finally:
        lock.release()


def _rewrite(path: Path, name: str, progress: Progress) -> Repaired:
    fold_log(path)
    new = path.with_name(path.name + ".repaired")
    remove_file(new)
    prepare(new)
    connection = open_writer(new, "full")
    try:
        copy = Copy(connection)
        report, _ = examine(path, name, copy, progress)
        _copy_evidence(path, copy)
        copy.belong(report.namespace_id, report.highest_entity_id)
        # Strays are judged by how much was readable, which is known only now.
        copy.finish(is_torn=report.is_torn)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    finally:
        connection.close()
    kept = put_in_place(path, new)
    return Repaired(report, kept.name, copy.served, copy.set_aside)


def _copy_evidence(path: Path, copy: Copy) -> None:
    old = open_unchanged(path)
    try:
        for row in Salvage(old).rows("evidence", "key", "head, body"):
            copy.keep(integer(row[0]), blob(row[1]), blob(row[2]))
    finally:
        old.close()


@final
class Copy:
    """The new file. A `survey.Sink`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.served = 0
        self.set_aside = 0
        self._connection = connection
        self._owners: dict[int, Owner] = {}
        self._counters: dict[int, Counters] = {}
        # None for a fragment whose journal has its record.
        self._journals: dict[int, Journal | None] = {}
        self._next_number = 1
        self._rows = 0
        connection.execute("CREATE TEMP TABLE stray (key INT, gone TEXT, head BLOB, body BLOB)")
        connection.execute("BEGIN IMMEDIATE")

    def belong(self, namespace_id: str, highest_entity_id: int) -> None:
        """Let the new file belong to the namespace of the old one, with the same highest entity
        id.
        """
        highest = max([highest_entity_id, *(each.entity_id for each in self._owners.values())])
        self._write("UPDATE entity_ids SET highest = ?", (highest,))
        if namespace_id:
            self._write("INSERT INTO namespace VALUES (1, ?)", (namespace_id,))

    def fragment(self, owner: Owner) -> None:
        self._owners[owner.local] = owner
        self._counters[owner.local] = new_counters()
        row = (owner.local, owner.entity_id, owner.number, b"")
        sql = "INSERT OR IGNORE INTO fragment (local, entity_id, number, counters) "
        self._write(sql + "VALUES (?, ?, ?, ?)", row)

    def piece(self, owner: Owner, piece: FoundPiece) -> None:
        first = piece.place.first
        if piece.records is None:
            self.keep(first, piece.head, piece.body)
            for at in piece.lost:
                self._set_aside(owner, first + at, MAIN_LINE, 0)
            return
        for at in piece.lost:
            record = piece.records[at]
            self.keep(first + at, pack_head(first + at, [record]), piece.payload(at))
            self._set_aside(owner, first + at, MAIN_LINE, record[SIZE_BYTES])
            piece.gone |= 1 << at
        self._add_chunk(owner, piece)

    def aside(self, owner: Owner, aside: Aside) -> None:
        if aside.is_lost:
            self.keep(aside.key, aside.head or aside.data, aside.body)
            self._set_aside(owner, aside.key, MAIN_LINE, aside.size_bytes)
            return
        number = self._add_bytes(owner, aside.stored) if aside.head else 0
        entry = aside.entry(owner.base)
        due_at_ms = aside.due_at_ms if entry is None else entry.due_ms()
        name = aside.session_name(owner.base)
        session = None if name is None else self._session(owner, name)
        row = (aside.key, aside.line, aside.state, aside.size_bytes, due_at_ms, number)
        self._enter(*row, aside.data, session)
        self._count(owner, aside.key, aside.line, aside.size_bytes, aside.state)

    def state(self, owner: Owner, name: bytes, set_at_ms: int, data: bytes) -> None:
        session = self._session(owner, name)
        sql = "INSERT OR IGNORE INTO session_state VALUES (?, ?, ?)"
        if self._write(sql, (session, set_at_ms, data)):
            found = unpack_session_state(data)
            assert found is not None, "a survey must report only sound states"
            counters = self._counters[owner.local]
            counters.states += 1
            counters.state_bytes += len(found.state)

    def remembered(self, owner: Owner, key: int, at_ms: int, data: bytes) -> None:
        self._write("INSERT INTO remembered VALUES (?, ?, ?)", (key, at_ms, data))

    def record(self, owner: Owner, kind: int, key: bytes, data: bytes) -> None:
        sql = "INSERT OR IGNORE INTO record (local, kind, key, data) VALUES (?, ?, ?, ?)"
        self._write(sql, (owner.local, kind, key, data))
        if kind == LIFECYCLE:
            self._journals[owner.local] = None

    def staged(self, owner: Owner, piece: StagedPiece, bodies: Mapping[int, bytes]) -> None:
        sql = (
            "INSERT OR IGNORE INTO stage (local, stage, piece, data, parts) VALUES (?, ?, ?, ?, ?)"
        )
        row = (owner.local, piece.stage, piece.piece, piece.pack(), str(piece.part_numbers()))
        if self._write(sql, row):
            self._use_parts(piece.part_numbers(), bodies)
            if piece.stage == LIFECYCLE_STAGE:
                journal = self._journals.setdefault(owner.local, Journal(None, 0, is_on=False))
                if journal is not None:
                    _recover(journal, piece)

    def stray(self, owner: Owner | None, piece: FoundPiece) -> None:
        gone = "-1" if owner is None else str(piece.gone)
        # Several chunks may share parts, so each part is written once here too.
        self._add_part_bodies(piece.stored.parts)
        body = b"" if piece.stored.parts else piece.body
        row = (piece.place.first, gone, piece.head, body)
        self._write("INSERT INTO temp.stray VALUES (?, ?, ?, ?)", row)

    def finish(self, *, is_torn: bool) -> None:
        """Decide about strays and store the counters."""
        for key, gone, head, body in self._connection.execute("SELECT * FROM temp.stray"):
            chunk = self._with_parts(head) or Stored(head, body)
            piece = FoundPiece(FoundPlace(key, 0, 0, len(chunk.body), 0), chunk)
            piece.gone = int(gone)
            if not (is_torn and self._restore(piece)):
                self.keep(key, head, piece.body)
        self._write("DELETE FROM part WHERE id NOT IN (SELECT part FROM part_users)", ())
        for local, journal in self._journals.items():
            if journal is not None:
                # Without it the numbers of blocks would begin again, and meet those that are kept.
                data = pack_record(local, LIFECYCLE, RECORD_KEY, journal.record())
                self.record(self._owners[local], LIFECYCLE, RECORD_KEY, data)
        for local, counters in self._counters.items():
            owner = self._owners[local]
            stored = owner.stored
            found = max(counters.last_counter, owner.counted.last_counter)
            if stored is not None:
                found = max(found, stored.last_counter)
            # Messages may have been forwarded under numbers above the last message.
            if stored is None or owner.has_lost_records or is_torn:
                found = min(found + COUNTER_SKIP, COUNTER_MAX)
            counters.last_counter = found
            counters.duplicates = 0 if stored is None else stored.duplicates
            packed = pack_counters(local, counters)
            self._write("UPDATE fragment SET counters = ? WHERE local = ?", (packed, local))
        self._connection.execute("COMMIT")

    def _restore(self, piece: FoundPiece) -> bool:
        """Serve a whole chunk that lost its row again, except messages that were found elsewhere.

        Not where there are sessions: the session of such a message is unknown.
        """
        start, records = piece.place.first, piece.records
        owner = self._owners.get(local_of(start))
        if records is None or owner is None or piece.gone < 0 or self._has_sessions(owner):
            return False
        end = start + len(records)
        if self._is_placed(start, end) or not _is_whole(piece):
            return False
        sql = "SELECT key FROM entry WHERE key >= ? AND key < ?"
        for (key,) in self._connection.execute(sql, (start, end)).fetchall():
            piece.gone |= 1 << (key - start)
        self._add_chunk(owner, piece)
        return True

    def _is_placed(self, start: int, end: int) -> bool:
        sql = (
            "SELECT 1 FROM place WHERE first > ?1 - ?3 AND first < ?2 AND first + count > ?1 "
            "LIMIT 1"
        )
        row = (start, end, CHUNK_SPAN_MAX)
        return self._connection.execute(sql, row).fetchone() is not None

    def _add_chunk(self, owner: Owner, piece: FoundPiece) -> None:
        records = piece.records
        assert records is not None
        first, count = piece.place.first, len(records)
        if piece.gone == (1 << count) - 1:
            return
        number = self._add_bytes(owner, piece.stored)
        due_at_ms, is_mixed = due_of(records, piece.gone)
        size = sum(record[SIZE_BYTES] for record in records)
        row = (first, number, count, size, due_at_ms, int(is_mixed))
        self._write("INSERT INTO place VALUES (?, ?, ?, ?, ?, ?)", row)
        if piece.gone:
            gap = pack_gap(first, piece.gone, count)
            self._write("INSERT INTO gap VALUES (?, ?)", (number, gap))
        for position, record in enumerate(records):
            if not piece.gone >> position & 1:
                self._count(owner, first + position, MAIN_LINE, record[SIZE_BYTES], 0)

    def _add_bytes(self, owner: Owner, stored: Stored) -> int:
        number, self._next_number = self._next_number, self._next_number + 1
        parts = unpack_spots(stored.head)[1]
        body = self._add_parts(owner, stored, parts) if parts else stored.body
        self._write("INSERT INTO chunk VALUES (?, ?, ?)", (number, stored.head, body))
        return number

    def _add_parts(self, owner: Owner, stored: Stored, parts: list[int]) -> str:
        """The list in place of the body: parts keep their numbers, because the head has them."""
        self._use_parts(parts, stored.parts)
        self._write("UPDATE fragment SET has_parts = 1 WHERE local = ?", (owner.local,))
        return str(parts)

    def _use_parts(self, parts: list[int], bodies: Mapping[int, bytes]) -> None:
        self._add_part_bodies(bodies)
        for part in parts:
            self._write(
                "INSERT INTO part_users VALUES (?, 1) "
                "ON CONFLICT (part) DO UPDATE SET users = users + 1",
                (part,),
            )

    def _add_part_bodies(self, bodies: Mapping[int, bytes]) -> None:
        for part, body in bodies.items():
            self._write("INSERT OR IGNORE INTO part VALUES (?, ?)", (part, body))

    def _with_parts(self, head: bytes) -> Stored | None:
        """A stray chunk with its parts, None for a chunk without parts."""
        named = unpack_spots(head)[1]
        bodies: dict[int, bytes] = {}
        for part in named:
            sql = "SELECT body FROM part WHERE id = ?"
            for (body,) in self._connection.execute(sql, (part,)).fetchall():
                bodies[part] = body
        return Stored(head, assembled(head, bodies), bodies) if named else None

    def _set_aside(self, owner: Owner, key: int, line: int, size_bytes: int) -> None:
        entry = Entry(
            sequence_of(owner.base, key), None, size_bytes, enqueued_at_ms=0, state=SET_ASIDE
        )
        self._enter(key, line, SET_ASIDE, size_bytes, 0, 0, pack_state(key, entry), None)
        self._count(owner, key, line, size_bytes, SET_ASIDE)

    def _enter(self, *row: int | bytes | None) -> None:
        # Triggers of the new file maintain the ranks of its sessions.
        self._write("INSERT OR IGNORE INTO entry VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)

    def _session(self, owner: Owner, name: bytes) -> int:
        row = (owner.local, name)
        self._write("INSERT OR IGNORE INTO session (local, name) VALUES (?, ?)", row)
        sql = "SELECT id FROM session WHERE local = ? AND name = ?"
        return int(self._connection.execute(sql, row).fetchone()[0])

    def _has_sessions(self, owner: Owner) -> bool:
        sql = "SELECT 1 FROM session WHERE local = ? LIMIT 1"
        return self._connection.execute(sql, (owner.local,)).fetchone() is not None

    def keep(self, key: int, head: bytes, body: bytes) -> None:
        """Keep a chunk as evidence; it is never served."""
        self._write("INSERT OR IGNORE INTO evidence VALUES (?, ?, ?)", (key, head, body))

    def _count(self, owner: Owner, key: int, line: int, size_bytes: int, state: int) -> None:
        counters = self._counters[owner.local]
        counters.last_counter = max(counters.last_counter, key & COUNTER_MAX)
        if state == SET_ASIDE:
            counters.set_aside += 1
            self.set_aside += 1
            return
        count_in(counters.lines[line], state, size_bytes)
        self.served += 1

    def _write(self, sql: str, row: tuple[int | str | bytes | None, ...]) -> bool:
        """Execute a statement; returns whether it changed anything."""
        is_new = self._connection.execute(sql, row).rowcount > 0
        self._rows += 1
        if self._rows % ROWS_PER_COMMIT == 0:
            self._connection.execute("COMMIT")
            self._connection.execute("BEGIN IMMEDIATE")
        return is_new


def _recover(journal: Journal, piece: StagedPiece) -> None:
    blocks = blocks_in(piece.data) if piece.has_blocks else [(piece.piece, piece.data)]
    for number, block in blocks or ():
        journal.recover(number, len(block), _last_ms(block, journal.at_ms))


def _last_ms(block: bytes, otherwise_ms: int) -> int:
    """The moment of the last row of a block, unless another build made it."""
    with suppress(ValueError):
        return unpacked(block).at_ms[-1]
    return otherwise_ms


def _is_whole(piece: FoundPiece) -> bool:
    offset = 0
    for record in piece.records or []:
        end = offset + record[SIZE_BYTES]
        if record != HOLE and not is_whole(piece.body[offset:end], record):
            return False
        offset = end
    return True
