"""One moment of a slot, or of the catalogue, copied into a file of the embedded store.

Records are the same bytes in both, so a copy is a normal file: backups consist of such files, and
`shardbus check` examines them.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Final, final

from shardbus.stores.base.backup import Copied, Watch
from shardbus.stores.base.store import StoreError
from shardbus.stores.chunked.chunk import decoded
from shardbus.stores.postgres.link import Address, Link, Row
from shardbus.stores.postgres.lookup import keys_of, unpack_bytea
from shardbus.stores.postgres.schema import settings_of
from shardbus.stores.sqlite.catalogue import SqliteCatalogue
from shardbus.stores.sqlite.database import prepare
from shardbus.stores.sqlite.snapshot import copied_file, whole_or_removed

# Maximum number of rows with bytes that one query returns; a chunk has at most 256 KiB, or is a
# single message.
ROWS_MAX: Final = 64
MANY_ROWS_MAX: Final = 4_096

_MESSAGES: Final = (
    "chunk, gap, entry, evidence, session, session_state, remembered, record, part, stage"
)
_CATALOGUE: Final = "namespace, entity, unfinished"
_SIZE: Final = "SELECT sum(pg_total_relation_size(name::regclass)) FROM unnest($1::text[]) AS name"
# For each table, the column by which the read continues, the columns, and the number of rows at a
# time.
_KEYED: Final = {
    "chunk": ("first", "first, span, size, due_at, is_mixed, head, body, parts", ROWS_MAX),
    "gap": ("first", "first, bitmap", MANY_ROWS_MAX),
    "entry": ("key", "key, line, state, size, due_at, session, data, head, body, parts", ROWS_MAX),
    "evidence": ("key", "key, head, body", ROWS_MAX),
    "remembered": ("key", "key, at_ms, data", ROWS_MAX),
}
_BY_FRAGMENT: Final = {
    "session": "SELECT id, local, name, rank FROM session WHERE local = $1",
    "session_state": "SELECT x.session, x.set_at, x.data FROM session_state x "
    "JOIN session s ON s.id = x.session WHERE s.local = $1",
    "record": "SELECT local, kind, key, data FROM record WHERE local = $1",
}
_FRAGMENTS: Final = """
SELECT local, entity_id, number, counters, is_deleted::integer, forgotten_at, forgotten_to,
    has_parts::integer, to_jsonb(f) ->> 'journal'
FROM fragment f WHERE slot = $1 ORDER BY local
"""
_PARTS: Final = "SELECT id, users, body FROM part WHERE id > $1 AND id <= $2 ORDER BY id LIMIT $3"
_PIECES: Final = """
SELECT id, local, stage, piece, data, parts FROM stage WHERE local = $1 AND id > $2
ORDER BY id LIMIT $3
"""


class Moment:
    """A connection on which a read has begun, so that it sees one moment until it is closed."""

    def __init__(self, address: Address) -> None:
        settings = settings_of("copy", is_reader=True)
        # A copy has no time limit.
        self.link = Link(address, {**settings, "idle_in_transaction_session_timeout": "0"})
        try:
            self.link.begin("ISOLATION LEVEL REPEATABLE READ READ ONLY")
            # The snapshot is taken by the first statement, not by BEGIN.
            self.link.fetch("SELECT txid_current_snapshot()")
        except BaseException:
            self.link.close()
            raise

    def close(self) -> None:
        self.link.close()


@final
class PostgresSnapshot(Moment):
    """A slot at one moment. A `base_backup.Snapshot`."""

    def __init__(self, address: Address, slot: int) -> None:
        super().__init__(address)
        self._slot = slot
        self._address = address
        self._copied_bytes = 0

    def size_bytes(self) -> int:
        return slot_bytes(self._address, self._slot)

    def copy(self, target: Path, watch: Watch) -> Copied:
        _reserve(target)
        with whole_or_removed(target):
            target.unlink()
            prepare(target)
            with closing(sqlite3.connect(target, isolation_level=None)) as file:
                # An incomplete copy is removed; a complete one is synchronized at the end.
                file.execute("PRAGMA synchronous = OFF")
                file.execute("BEGIN IMMEDIATE")
                self._fill(file, watch)
                file.execute("COMMIT")
            copied = copied_file(target, watch)
        return copied

    def _fill(self, file: sqlite3.Connection, watch: Watch) -> None:
        slot = self.link.row(
            "SELECT namespace_id, highest_entity_id FROM slot WHERE slot = $1", self._slot
        )
        if slot is None:
            raise StoreError(f"{self._address.shown} has no slot {self._slot}")
        if slot[0]:
            file.execute("INSERT INTO namespace VALUES (1, ?)", (slot[0],))
        file.execute("UPDATE entity_ids SET highest = ?", (slot[1],))
        fragments = [
            (*row[:3], row[3] + unpack_bytea(row[8]), *row[4:8])
            for row in self.link.fetch(_FRAGMENTS, self._slot)
        ]
        file.executemany("INSERT INTO fragment VALUES (?, ?, ?, ?, ?, ?, ?, ?)", fragments)
        numbers = count(1)
        for fragment in fragments:
            self._fill_fragment(file, int(fragment[0]), numbers, watch)
        low, high = keys_of(self._slot)
        after = low
        while rows := self.link.fetch(_PARTS, after, high, ROWS_MAX):
            file.executemany("INSERT INTO part VALUES (?, ?)", [(row[0], row[2]) for row in rows])
            file.executemany("INSERT INTO part_users VALUES (?, ?)", [row[:2] for row in rows])
            self._watch(watch, sum(len(row[2]) for row in rows))
            after = rows[-1][0]

    def _fill_fragment(
        self, file: sqlite3.Connection, local: int, numbers: count[int], watch: Watch
    ) -> None:
        for table, sql in _BY_FRAGMENT.items():
            found = [tuple(row) for row in self.link.fetch(sql, local)]
            columns = "(local, kind, key, data) " if table == "record" else ""
            if found:
                marks = ", ".join("?" * len(found[0]))
                file.executemany(f"INSERT INTO {table} {columns}VALUES ({marks})", found)
        chunks: dict[int, int] = {}
        for row in self._keyed("chunk", local):
            first, span, size, due_at, is_mixed, head, body, parts = row
            number = next(numbers)
            chunks[first] = number
            _put_bytes(file, number, head, body, parts)
            place = (first, number, span, size, due_at, int(is_mixed))
            file.execute("INSERT INTO place VALUES (?, ?, ?, ?, ?, ?)", place)
            self._watch(watch, size)
        for row in self._keyed("gap", local):
            if row[0] in chunks:
                file.execute("INSERT INTO gap VALUES (?, ?)", (chunks[row[0]], row[1]))
        # Ranks were copied with the sessions, and do not change.
        triggers = _without_triggers(file)
        for row in self._keyed("entry", local):
            key, line, state, size, due_at, session, data, head, body, parts = row
            number = 0 if head is None else next(numbers)
            if number:
                _put_bytes(file, number, head, body, parts)
            entry = (key, line, state, size, due_at, number, data, session)
            file.execute("INSERT INTO entry VALUES (?, ?, ?, ?, ?, ?, ?, ?)", entry)
            self._watch(watch, size)
        for sql in triggers:
            file.execute(sql)
        for table in ("evidence", "remembered"):
            for row in self._keyed(table, local):
                file.execute(f"INSERT INTO {table} VALUES (?, ?, ?)", tuple(row))
        after = -1
        while rows := self.link.fetch(_PIECES, local, after, ROWS_MAX):
            pieces = [(*row[:5], str(list(row[5]))) for row in rows]
            file.executemany("INSERT INTO stage VALUES (?, ?, ?, ?, ?, ?)", pieces)
            after = rows[-1][0]

    def _keyed(self, table: str, local: int) -> Iterator[Row]:
        at, columns, limit = _KEYED[table]
        low, high = keys_of(local)
        after = low - 1
        sql = f"SELECT {columns} FROM {table} WHERE {at} > $1 AND {at} <= $2 ORDER BY {at} LIMIT $3"
        while rows := self.link.fetch(sql, after, high, limit):
            yield from rows
            after = rows[-1][0]

    def _watch(self, watch: Watch, size_bytes: int) -> None:
        self._copied_bytes += size_bytes
        watch(self._copied_bytes)


@final
class CatalogueSnapshot(Moment):
    """The catalogue at one moment. A `base_backup.Snapshot`."""

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        self._address = address

    def size_bytes(self) -> int:
        return catalogue_bytes(self._address)

    def copy(self, target: Path, watch: Watch) -> Copied:
        _reserve(target)
        with whole_or_removed(target):
            only = self.link.row(
                "SELECT namespace_id, created_at_ms, next_entity_id, rules, rules_checksum "
                "FROM namespace"
            )
            if only is None:
                raise StoreError(f"{self._address.shown} has no catalogue")
            SqliteCatalogue(target, now_ms=only[1], namespace_id=only[0]).close()
            with closing(sqlite3.connect(target, isolation_level=None)) as file:
                file.execute("BEGIN IMMEDIATE")
                file.execute(
                    "UPDATE namespace SET next_entity_id = ?, rules = ?, rules_checksum = ?",
                    (only[2], decoded(only[3]), only[4]),
                )
                for row in self.link.fetch("SELECT id, name_key, document, checksum FROM entity"):
                    entity = (row[0], decoded(row[1]), decoded(row[2]), row[3])
                    file.execute("INSERT INTO entity VALUES (?, ?, ?, ?)", entity)
                for row in self.link.fetch(
                    "SELECT id, document, checksum, is_final FROM unfinished"
                ):
                    note = (row[0], decoded(row[1]), row[2], int(row[3]))
                    file.execute("INSERT INTO unfinished VALUES (?, ?, ?, ?)", note)
                file.execute("COMMIT")
            copied = copied_file(target, watch)
        return copied


def slot_bytes(address: Address, slot: int) -> int:
    """The approximate size of the copy: the size of all slots."""
    return _bytes(address, _MESSAGES)


def catalogue_bytes(address: Address) -> int:
    return _bytes(address, _CATALOGUE)


def _bytes(address: Address, tables: str) -> int:
    link = Link(address, settings_of("look", is_reader=True))
    try:
        return int(link.fetch(_SIZE, tables.split(", "))[0][0])
    finally:
        link.close()


def _reserve(target: Path) -> None:
    """Create the file, which must not exist; only its owner can read it, from the first byte on."""
    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        os.close(os.open(target, flags, 0o600))
    except OSError as error:
        raise StoreError(f"{target}: cannot be made: {error.strerror}") from error


def _put_bytes(
    file: sqlite3.Connection, number: int, head: bytes, body: bytes | None, parts: list[int] | None
) -> None:
    stored = (body or b"") if parts is None else str(parts)
    file.execute("INSERT INTO chunk VALUES (?, ?, ?)", (number, head, stored))


def _without_triggers(file: sqlite3.Connection) -> list[str]:
    """Drop the triggers of entries; returns the statements that create them again."""
    sql = "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = 'entry'"
    found = file.execute(sql).fetchall()
    for name, _ in found:
        file.execute(f"DROP TRIGGER {name}")
    return [str(text) for _, text in found]
