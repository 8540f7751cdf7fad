"""The catalogue of a namespace in a SQLite file."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar, final

from shardbus.core.namespace.access import AccessRule
from shardbus.core.namespace.entity import Entity, with_topic_maps
from shardbus.stores.base.catalogue import (
    check_unfinished,
    rules_from_json,
    rules_to_json,
    unfinished_of,
)
from shardbus.stores.base.document import checksum_of, sound_entity
from shardbus.stores.base.store import StoreError, Unfinished
from shardbus.stores.sqlite.database import (
    CHECKPOINT_PAGES,
    PAGE_BYTES,
    Log,
    ids_in,
    make,
    refuse_other,
    spare_bytes_of,
)
from shardbus.stores.sqlite.log_check import keep_if_damaged
from shardbus.stores.sqlite.room import DiskRoom, is_no_room, no_room_text
from shardbus.stores.sqlite.snapshot import SqliteSnapshot, database_bytes

T = TypeVar("T")

# "SBct": distinguishes a catalogue from any other SQLite database.
APPLICATION_ID: Final = 0x53426374
# The share of a store's reserve that a catalogue needs.
RESERVE_PART: Final = 4

_TABLES: Final = """
CREATE TABLE entity (
    id INTEGER PRIMARY KEY,
    name_key TEXT NOT NULL UNIQUE,
    document TEXT NOT NULL,
    checksum INTEGER NOT NULL
) STRICT;
CREATE TABLE namespace (
    only INTEGER PRIMARY KEY CHECK (only = 1),
    next_entity_id INTEGER NOT NULL,
    created_at_ms INTEGER NOT NULL,
    rules TEXT NOT NULL,
    rules_checksum INTEGER NOT NULL,
    namespace_id TEXT NOT NULL
) STRICT;
CREATE TABLE unfinished (
    id INTEGER PRIMARY KEY,
    document TEXT NOT NULL,
    checksum INTEGER NOT NULL,
    is_final INTEGER NOT NULL
) STRICT;
"""
# Its rows are few and small.
_CATALOGUE_PAGE_BYTES: Final = 4096
_RAISE: Final = "UPDATE namespace SET next_entity_id = ?1 WHERE next_entity_id < ?1"
REPAIR: Final = "restore a copy of it, or run `shardbus check --repair`"


@final
class SqliteCatalogue:
    """The catalogue in an SQLite file that one process at a time may open.

    Every write is durable when it returns. All methods are called from one thread at a time.
    """

    def __init__(
        self, path: Path, *, now_ms: int, namespace_id: str = "", reserve_bytes: int = 0
    ) -> None:
        """Open the file, or create it with mode 0600; `now_ms` is the creation time of a new
        namespace.

        `namespace_id` is for a new namespace. A part of `reserve_bytes`, the reserve of a store, is
        kept here for a full disk: entities can then be deleted and changed, but no new one gets an
        id.
        """
        self._path = path
        self._room = self._guarded(lambda: DiskRoom(path, reserve_bytes, RESERVE_PART))
        self._connection = self._guarded(self._retried(lambda: _open(path, now_ms, namespace_id)))
        self._log = Log(path.resolve(), self._connection, self._room)
        self._guarded(self._begin)
        # The last id that was given out. Ids that were not begun need not survive.
        self._last_entity_id = 0

    @property
    def shortage(self) -> str:
        """Why no entity can be created; empty while there is room."""
        return self._room.shortage

    def created_at_ms(self) -> int:
        return self._guarded(lambda: self._number("SELECT created_at_ms FROM namespace"))

    def namespace_id(self) -> str:
        """The id that the catalogue and the stores of one namespace share."""
        return str(self._guarded(lambda: self._row("SELECT namespace_id FROM namespace"))[0])

    def entities(self) -> list[Entity]:
        """Every entity whose record is sound, in the order of the ids."""
        found = (sound_entity(row) for row in self._guarded(self._rows))
        return with_topic_maps(entity for entity in found if entity is not None)

    def damaged(self) -> list[int]:
        """The ids of entities whose record fails its checksum or cannot be read.

        Such an entity is not served, but its fragments must be kept.
        """
        return [row[0] for row in self._guarded(self._rows) if sound_entity(row) is None]

    def rules(self) -> list[AccessRule]:
        """The namespace's own access rules; StoreError when their record is damaged."""
        text, checksum = self._guarded(
            lambda: self._row("SELECT rules, rules_checksum FROM namespace")
        )
        try:
            if checksum_of(0, str(text)) == checksum:
                return rules_from_json(str(text))
        except ValueError:
            pass
        raise StoreError(f"the access rules in {self._path} are damaged; {REPAIR}")

    def unfinished(self) -> list[Unfinished]:
        """Unfinished creations and deletions. Damaged records are left out: nothing is removed
        because of them.
        """
        rows = self._guarded(
            lambda: self._connection.execute(
                "SELECT id, document, checksum, is_final FROM unfinished ORDER BY id"
            ).fetchall()
        )
        found = [(sound_entity(row[:3]), bool(row[3])) for row in rows]
        sound = [(entity, final_) for entity, final_ in found if entity is not None]
        return unfinished_of(sound, self.entities() if sound else [])

    def reserve_id(self) -> int:
        """A new entity id, which is not given out again."""
        self._guarded(self._log.look)
        if self.shortage:
            raise StoreError(self.shortage)
        stored = self._guarded(lambda: self._number("SELECT next_entity_id FROM namespace"))
        self._last_entity_id = max(self._last_entity_id + 1, stored)
        return self._last_entity_id

    def raise_ids(self, above: int) -> None:
        """From now on give out only ids greater than this one."""
        self._write(_RAISE, (above + 1,))

    def begin(self, entity: Entity) -> None:
        """Record that fragments of an entity are about to be created, before the entity is
        recorded.
        """
        row = (entity.entity_id, entity.to_json())
        check_unfinished(self._guarded(lambda: self._number("SELECT count(*) FROM unfinished")))
        self._write_all(
            (
                "INSERT OR REPLACE INTO unfinished VALUES (?, ?, ?, 0)",
                (*row, checksum_of(*row)),
            ),
            (_RAISE, (entity.entity_id + 1,)),
        )

    def put(self, entity: Entity) -> None:
        """Record an entity, new or changed; StoreError means *unknown*."""
        document = entity.to_json()
        values = (entity.entity_id, entity.name.lower(), document)
        self._write_all(
            (
                "INSERT INTO entity (id, name_key, document, checksum) VALUES (?, ?, ?, ?) "
                "ON CONFLICT (id) DO UPDATE SET document = excluded.document, "
                "checksum = excluded.checksum",
                (*values, checksum_of(entity.entity_id, document)),
            ),
            ("DELETE FROM unfinished WHERE id = ?", (entity.entity_id,)),
            (_RAISE, (entity.entity_id + 1,)),
        )

    def remove(self, *entity_ids: int) -> None:
        """Remove entities, all or none, and record that their fragments must be removed.

        Unknown ones are ignored.
        """
        ids = (json.dumps(entity_ids),)
        self._write_all(
            (
                "INSERT OR REPLACE INTO unfinished SELECT id, document, checksum, 1 FROM entity "
                "WHERE id IN (SELECT value FROM json_each(?))",
                ids,
            ),
            ("DELETE FROM entity WHERE id IN (SELECT value FROM json_each(?))", ids),
        )

    def finish(self, *entity_ids: int) -> None:
        """Record that no fragment is left of entities that were removed, or never recorded."""
        self._write(
            "DELETE FROM unfinished WHERE id IN (SELECT value FROM json_each(?))",
            (json.dumps(entity_ids),),
        )

    def set_rules(self, rules: Sequence[AccessRule]) -> None:
        text = rules_to_json(rules)
        self._write(
            "UPDATE namespace SET rules = ?, rules_checksum = ?", (text, checksum_of(0, text))
        )

    def size_bytes(self) -> int:
        return database_bytes(self._path)

    def snapshot(self) -> SqliteSnapshot:
        """Its present contents, in memory, since no other connection can read a file that this
        process has locked.
        """

        def copied() -> SqliteSnapshot:
            memory = sqlite3.connect(":memory:", check_same_thread=False)
            self._connection.backup(memory)
            return SqliteSnapshot(self._path, memory)

        return self._guarded(copied)

    def close(self) -> None:
        self._guarded(self._connection.close)

    def _write(self, statement: str, values: tuple[int | str, ...]) -> None:
        self._guarded(self._retried(lambda: self._connection.execute(statement, values)))
        self._guarded(self._log.look)

    def _begin(self) -> None:
        if self._room.reserve_bytes:
            pages = max(1, self._room.reserve_bytes // (2 * PAGE_BYTES))
            self._connection.execute(f"PRAGMA wal_autocheckpoint = {min(pages, CHECKPOINT_PAGES)}")
        self._room.begin(spare_bytes_of(self._connection))

    def _retried(self, work: Callable[[], T]) -> Callable[[], T]:
        """A function that does the work and, on a full disk, retries it with the reserve."""

        def tried() -> T:
            while True:
                try:
                    return work()
                except (sqlite3.Error, OSError) as error:
                    if not is_no_room(self._path, error):
                        raise
                    if not self._room.give_back(is_for_payload=False):
                        raise

        return tried

    def _write_all(self, *statements: tuple[str, tuple[int | str, ...]]) -> None:
        def work() -> None:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                for statement, values in statements:
                    self._connection.execute(statement, values)
                self._connection.execute("COMMIT")
            finally:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")

        self._guarded(self._retried(work))
        self._guarded(self._log.look)

    def _rows(self) -> list[tuple[int, str, int]]:
        return self._connection.execute(
            "SELECT id, document, checksum FROM entity ORDER BY id"
        ).fetchall()

    def _row(self, statement: str) -> tuple[object, ...]:
        rows: list[tuple[object, ...]] = self._connection.execute(statement).fetchall()
        if not rows:
            raise StoreError(f"{self._path} has lost the record of its namespace; {REPAIR}")
        return rows[0]

    def _number(self, statement: str) -> int:
        value = self._row(statement)[0]
        if not isinstance(value, int):
            raise StoreError(f"{self._path} holds text where a number belongs")
        return value

    def _guarded(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except (sqlite3.Error, OSError) as error:
            raise StoreError(_explained(self._path, error)) from error


def _open(path: Path, now_ms: int, namespace_id: str) -> sqlite3.Connection:
    if not path.exists() or path.stat().st_size == 0:
        _make(path, now_ms, namespace_id)
    refuse_strange(path)
    connection = sqlite3.connect(
        path, isolation_level=None, check_same_thread=False, timeout=0.0, cached_statements=32
    )
    try:
        # Must come first: SQLite then keeps the shared index in memory, which needs no disk space.
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        # Takes the exclusive lock at once, so that a second process fails when it opens the file.
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("COMMIT")
        # Entities whose creation was lost are reported as orphans in the stores.
        if keep_if_damaged(path.resolve()):
            # After another crash the rest of the lost commits would be reported again.
            with suppress(sqlite3.Error):
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection


def _make(path: Path, now_ms: int, namespace_id: str) -> None:
    def fill(made: sqlite3.Connection) -> None:
        made.executescript(_TABLES)
        row = (1, 1, now_ms, "[]", checksum_of(0, "[]"), namespace_id)
        made.execute("INSERT INTO namespace VALUES (?, ?, ?, ?, ?, ?)", row)

    make(path, APPLICATION_ID, fill, _CATALOGUE_PAGE_BYTES)


def refuse_strange(path: Path) -> None:
    """Raises StoreError for a file that is not a catalogue of this build; the file is not
    changed.
    """
    found = ids_in(path)
    if found is None:
        raise StoreError(
            f"{path} is not a catalogue of Shardbus, or is damaged: restore a copy of it. "
            "Without it no message can be assigned to its entity; `shardbus check` says what "
            "can be done"
        )
    application_id, version = found
    if application_id != APPLICATION_ID:
        raise StoreError(
            f"{path} is a database, but not a catalogue of Shardbus. Nothing was changed; "
            "restore the catalogue, or use another data directory"
        )
    refuse_other(path, version)


def _explained(path: Path, error: Exception) -> str:
    text = str(error)
    if "entity.name_key" in text:
        return f"{path} has a damaged record of this name; run `shardbus check --repair`"
    if is_no_room(path, error):
        return f"{path}: {no_room_text(path)} ({text})"
    if "locked" in text:
        return f"{path} is in use by another process: stop that one, or use another data directory"
    return f"{path}: {text}"
