"""The stores under test, and a pen that writes the commits of one fragment."""

from __future__ import annotations

import sqlite3
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from shardbus.app.server.store_kinds import STORES, stores_of
from shardbus.core.fragment.change import (
    Append,
    AppendReserved,
    Change,
    Counters,
    ForgetIds,
    RecordChange,
    Remember,
    Remove,
    StateChange,
    Update,
    new_counters,
)
from shardbus.core.limits import SEQUENCE_COUNTER_MASK
from shardbus.core.message import (
    ACTIVE,
    DEFERRED,
    DELAYED,
    MAIN_LINE,
    NEVER_MS,
    SCHEDULED,
    SET_ASIDE,
    Entry,
)
from shardbus.stores.base.store import FragmentCommit, FragmentId, MessageStore, Page
from shardbus.stores.chunked.chunk import COUNTER_BITS, encoded, key_of, sequence_base
from shardbus.stores.chunked.directory import RECENT_MAX
from shardbus.stores.chunked.head import Head
from shardbus.stores.memory.store import MemoryStore
from shardbus.stores.postgres.link import Address, Link
from shardbus.stores.postgres.schema import SCHEMA
from shardbus.stores.postgres.store import PostgresStore
from shardbus.stores.sqlite.store import SqliteStore
from tests.support.postgres import TEMPLATE, server

WAIT_S = 30.0
ENQUEUED_AT_MS = 1_700_000_000_000
KINDS = ("memory", "sqlite-full", "sqlite-relaxed", "postgres")
# All that it takes to add a kind of store, beside its package (CONTRIBUTING.md).
STORES["memory"] = "shardbus.stores.memory.package"
Durability = Literal["full", "relaxed"]


class StoreCase(ABC):
    """A store that can be opened again and damaged."""

    store: MessageStore

    @abstractmethod
    def reopen(self) -> None:
        """Close and open: what was committed must be there again."""

    @abstractmethod
    def damage(self, fragment: FragmentId, sequence_number: int) -> None:
        """Spoil the stored record of one message."""

    @abstractmethod
    def damage_state(self, fragment: FragmentId, session_id: str) -> None:
        """Spoil the stored state of a session."""

    @abstractmethod
    def damage_record(self, fragment: FragmentId, kind: int, key: bytes) -> None:
        """Spoil a record that a fragment keeps."""

    @abstractmethod
    def damage_piece(self, fragment: FragmentId, stage: bytes, piece: int) -> None:
        """Spoil a piece of a stage."""

    @abstractmethod
    def damage_staged(self, fragment: FragmentId, stage: bytes, piece: int) -> None:
        """Spoil the first payload that is kept beside a piece of a stage."""

    def close(self) -> None:
        self.store.close()


class MemoryCase(StoreCase):
    """The package of a kind of store that the line below adds to those of the settings."""

    def __init__(self, directory: Path) -> None:
        kept = stores_of(directory, "memory:").open_store("broker-0")
        kept.join("a" * 32, is_empty_expected=True)
        assert isinstance(kept.store, MemoryStore)
        self._memory = kept.store
        self.store = self._memory

    def reopen(self) -> None:
        """Memory is all it has."""

    def damage(self, fragment: FragmentId, sequence_number: int) -> None:
        self._memory.damage(fragment, sequence_number)

    def damage_state(self, fragment: FragmentId, session_id: str) -> None:
        self._memory.damage_state(fragment, session_id)

    def damage_record(self, fragment: FragmentId, kind: int, key: bytes) -> None:
        self._memory.damage_record(fragment, kind, key)

    def damage_piece(self, fragment: FragmentId, stage: bytes, piece: int) -> None:
        self._memory.damage_piece(fragment, stage, piece)

    def damage_staged(self, fragment: FragmentId, stage: bytes, piece: int) -> None:
        self._memory.damage_staged(fragment, stage, piece)


class SqliteCase(StoreCase):
    def __init__(self, path: Path, durability: Durability, recent_max: int = RECENT_MAX) -> None:
        self.path = path
        self._durability: Durability = durability
        self._recent_max = recent_max
        self.store = self._open()

    def reopen(self) -> None:
        self.store.close()
        self.store = self._open()

    def _open(self) -> SqliteStore:
        return SqliteStore(self.path, durability=self._durability, recent_max=self._recent_max)

    def damage(self, fragment: FragmentId, sequence_number: int) -> None:
        with Scalpel(self.path) as scalpel:
            scalpel.flip_payload(fragment, sequence_number)

    def damage_state(self, fragment: FragmentId, session_id: str) -> None:
        with Scalpel(self.path) as scalpel:
            scalpel.flip_session_state(fragment, session_id)

    def damage_record(self, fragment: FragmentId, kind: int, key: bytes) -> None:
        with Scalpel(self.path) as scalpel:
            scalpel.flip_record(fragment, kind, key)

    def damage_piece(self, fragment: FragmentId, stage: bytes, piece: int) -> None:
        with Scalpel(self.path) as scalpel:
            scalpel.flip_piece(fragment, stage, piece)

    def damage_staged(self, fragment: FragmentId, stage: bytes, piece: int) -> None:
        with Scalpel(self.path) as scalpel:
            scalpel.flip_staged(fragment, stage, piece)


class PostgresCase(StoreCase):
    """A slot of a database that is made for the test."""

    store: PostgresStore

    def __init__(self) -> None:
        self.server = server()
        self.database = self.server.new_database(TEMPLATE)
        self.address = Address(self.server.url(self.database))
        self.execute("INSERT INTO shardbus.slot VALUES (0, 0, 0, '', '', 0)")
        self.store = PostgresStore(self.address, 0)

    def reopen(self) -> None:
        self.store.close()
        self.store = PostgresStore(self.address, 0)

    def close(self) -> None:
        self.store.close()
        self.server.drop_database(self.database)

    def execute(self, sql: str, *arguments: object) -> list[tuple[object, ...]]:
        link = Link(self.address, {"search_path": SCHEMA})
        try:
            return [tuple(row) for row in link.fetch(sql, *arguments)]
        finally:
            link.close()

    def damage(self, fragment: FragmentId, sequence_number: int) -> None:
        key = key_of(self.local(fragment), sequence_number & SEQUENCE_COUNTER_MASK)
        if self.execute("SELECT FROM entry WHERE key = $1", key):
            self._damage_payload("entry", "key", key, key)
            return
        sql = "SELECT max(first) FROM chunk WHERE first <= $1"
        [(first,)] = self.execute(sql, key)
        assert isinstance(first, int)
        self._damage_payload("chunk", "first", first, key)

    def _damage_payload(self, table: str, name: str, first: int, key: int) -> None:
        [(head,)] = self.execute(f"SELECT head FROM {table} WHERE {name} = $1", first)
        assert isinstance(head, bytes)
        part, offset = Head(first, head).place(key - first)
        if part:
            self._flip("part", "body", offset, "id = $1", part)
        else:
            self._flip(table, "body", offset, f"{name} = $1", first)

    def damage_state(self, fragment: FragmentId, session_id: str) -> None:
        which = "session = (SELECT id FROM session WHERE local = $1 AND name = $2)"
        self._flip("session_state", "data", -1, which, self.local(fragment), encoded(session_id))

    def damage_record(self, fragment: FragmentId, kind: int, key: bytes) -> None:
        which = "local = $1 AND kind = $2 AND key = $3"
        self._flip("record", "data", -1, which, self.local(fragment), kind, key)

    def damage_piece(self, fragment: FragmentId, stage: bytes, piece: int) -> None:
        which = "local = $1 AND stage = $2 AND piece = $3"
        self._flip("stage", "data", -1, which, self.local(fragment), stage, piece)

    def damage_staged(self, fragment: FragmentId, stage: bytes, piece: int) -> None:
        which = "id = (SELECT parts[1] FROM stage WHERE local = $1 AND stage = $2 AND piece = $3)"
        self._flip("part", "body", 0, which, self.local(fragment), stage, piece)

    def assert_parts_agree(self) -> None:
        """Every part has as many users as are counted, and none is left without."""
        counted = self.execute(
            "SELECT part, count(*) FROM (SELECT unnest(parts) FROM chunk UNION ALL "
            "SELECT unnest(parts) FROM entry UNION ALL SELECT unnest(parts) FROM stage) AS u(part) "
            "GROUP BY part ORDER BY part"
        )
        assert self.execute("SELECT id, users FROM part ORDER BY id") == counted

    def local(self, fragment: FragmentId) -> int:
        sql = "SELECT local FROM fragment WHERE entity_id = $1 AND number = $2 AND NOT is_deleted"
        [(local,)] = self.execute(sql, *fragment)
        assert isinstance(local, int)
        return local

    def _flip(self, table: str, column: str, at: int, which: str, *names: object) -> None:
        [(found,)] = self.execute(f"SELECT {column} FROM {table} WHERE {which}", *names)
        assert isinstance(found, bytes)
        spoilt = bytearray(found)
        spoilt[at] ^= 0x40
        sql = f"UPDATE {table} SET {column} = ${len(names) + 1} WHERE {which}"
        self.execute(sql, *names, bytes(spoilt))


def open_case(kind: str, directory: Path) -> StoreCase:
    if kind == "memory":
        return MemoryCase(directory)
    if kind == "postgres":
        return PostgresCase()
    return SqliteCase(directory / "store.db", "relaxed" if kind == "sqlite-relaxed" else "full")


class Scalpel:
    """Cuts into the file of a store behind its back."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)

    def __enter__(self) -> Scalpel:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def execute(self, sql: str, *parameters: int | bytes) -> list[tuple[int | bytes, ...]]:
        return self._connection.execute(sql, parameters).fetchall()

    def number(self, sql: str, *parameters: int) -> int:
        value = self.execute(sql, *parameters)[0][0]
        assert isinstance(value, int)
        return value

    def key(self, fragment: FragmentId, sequence_number: int) -> int:
        sql = "SELECT local FROM fragment WHERE entity_id = ? AND number = ? AND is_deleted = 0"
        return key_of(self.number(sql, *fragment), sequence_number & SEQUENCE_COUNTER_MASK)

    def chunk_of(self, fragment: FragmentId, sequence_number: int) -> tuple[int, int]:
        """Number and first key of the chunk that a message came with."""
        key = self.key(fragment, sequence_number)
        rows = self.execute(
            "SELECT chunk, first FROM recent WHERE first <= ?1 AND first + count > ?1 "
            "UNION SELECT chunk, first FROM place WHERE first <= ?1 AND first + count > ?1",
            key,
        )
        number, first = rows[0]
        assert isinstance(number, int)
        assert isinstance(first, int)
        return number, first

    def flip_payload(self, fragment: FragmentId, sequence_number: int) -> None:
        """Spoil one byte of one payload, wherever it is now."""
        key = self.key(fragment, sequence_number)
        own = self.execute("SELECT chunk FROM entry WHERE key = ?", key)
        if own:
            number, first = own[0][0], key
            assert isinstance(number, int)
        else:
            number, first = self.chunk_of(fragment, sequence_number)
        head = self.execute("SELECT head FROM chunk WHERE id = ?", number)[0][0]
        assert isinstance(head, bytes)
        found = Head(first, head)
        part, offset = found.place(key - first) if found.has(key - first) else (0, 0)
        if part:
            self._flip("part", "id", part, "body", offset)
        else:
            self._flip("chunk", "id", number, "body", offset)

    def flip_head(self, fragment: FragmentId, sequence_number: int, at: int) -> None:
        number, _ = self.chunk_of(fragment, sequence_number)
        self._flip("chunk", "id", number, "head", at)

    def flip_gap(self, fragment: FragmentId, sequence_number: int) -> None:
        number, _ = self.chunk_of(fragment, sequence_number)
        self._flip("gap", "chunk", number, "bitmap", 0)

    def flip_state(self, fragment: FragmentId, sequence_number: int) -> None:
        self._flip("entry", "key", self.key(fragment, sequence_number), "data", 12)

    def flip_session_state(self, fragment: FragmentId, session_id: str) -> None:
        sql = (
            "SELECT id FROM session JOIN fragment USING (local) WHERE entity_id = ? "
            "AND number = ? AND name = ? AND is_deleted = 0"
        )
        session = self.execute(sql, *fragment, encoded(session_id))[0][0]
        assert isinstance(session, int)
        self._flip("session_state", "session", session, "data", -1)

    def flip_record(self, fragment: FragmentId, kind: int, key: bytes, at: int = -1) -> None:
        sql = (
            "SELECT id FROM record JOIN fragment USING (local) WHERE entity_id = ? "
            "AND number = ? AND kind = ? AND key = ? AND is_deleted = 0"
        )
        number = self.execute(sql, *fragment, kind, key)[0][0]
        assert isinstance(number, int)
        self._flip("record", "id", number, "data", at)

    def flip_open_piece(self, fragment: FragmentId, at: int = -1) -> None:
        """Spoil one byte of the open piece of a journal."""
        self._flip("fragment", "local", self.key(fragment, 0) >> COUNTER_BITS, "counters", at)

    def flip_piece(self, fragment: FragmentId, stage: bytes, piece: int, at: int = -1) -> None:
        sql = (
            "SELECT id FROM stage JOIN fragment USING (local) WHERE entity_id = ? "
            "AND number = ? AND stage = ? AND piece = ? AND is_deleted = 0"
        )
        number = self.execute(sql, *fragment, stage, piece)[0][0]
        assert isinstance(number, int)
        self._flip("stage", "id", number, "data", at)

    def flip_staged(self, fragment: FragmentId, stage: bytes, piece: int, at: int = 0) -> None:
        """Spoil a byte of the first part of a piece."""
        sql = (
            "SELECT parts ->> 0 FROM stage JOIN fragment USING (local) WHERE entity_id = ? "
            "AND number = ? AND stage = ? AND piece = ? AND is_deleted = 0"
        )
        number = self.execute(sql, *fragment, stage, piece)[0][0]
        assert isinstance(number, int)
        self._flip("part", "id", number, "body", at)

    def assert_parts_agree(self) -> None:
        """Every part has as many users as are counted, and none is left without."""
        counted = self.execute(
            "SELECT part, count(*) FROM (SELECT part FROM chunk_part UNION ALL "
            "SELECT value FROM stage, json_each(stage.parts)) GROUP BY part ORDER BY part"
        )
        assert self.execute("SELECT part, users FROM part_users ORDER BY part") == counted
        assert self.execute("SELECT id FROM part ORDER BY id") == [row[:1] for row in counted]

    def _flip(self, table: str, name: str, value: int, column: str, at: int) -> None:
        found = self.execute(f"SELECT {column} FROM {table} WHERE {name} = ?", value)[0][0]
        assert isinstance(found, bytes)
        spoilt = bytearray(found)
        spoilt[at] ^= 0x40
        self.execute(f"UPDATE {table} SET {column} = ? WHERE {name} = ?", bytes(spoilt), value)


class Pen:
    """Writes the commits of one fragment, keeping its counters as a fragment would."""

    def __init__(self, fragment: FragmentId, counters: Counters | None = None) -> None:
        self.fragment = fragment
        self.counters = new_counters() if counters is None else counters
        self.changes: list[Change] = []
        self._states: dict[str, bytes] = {}

    def sequence(self, counter: int) -> int:
        return sequence_base(self.fragment.number) | counter

    def append(
        self,
        payloads: Sequence[bytes],
        *,
        expires_at_ms: int = NEVER_MS,
        session_id: str | None = None,
        scheduled_at_ms: int = NEVER_MS,
        counters: Sequence[int] = (),
    ) -> list[Entry]:
        """New messages; with `counters` those are their numbers."""
        first = self.counters.last_counter + 1
        given = counters or range(first, first + len(payloads))
        is_scheduled = scheduled_at_ms != NEVER_MS
        entries = [
            Entry(
                self.sequence(counter),
                payload,
                len(payload),
                enqueued_at_ms=scheduled_at_ms if is_scheduled else ENQUEUED_AT_MS + at,
                expires_at_ms=expires_at_ms,
                state=SCHEDULED if is_scheduled else ACTIVE,
                session_id=session_id,
            )
            for at, (counter, payload) in enumerate(zip(given, payloads, strict=True))
        ]
        self.counters.last_counter = max([self.counters.last_counter, *given])
        for entry in entries:
            self._count(entry, 1)
        self.changes.append(Append(list(entries)))
        return entries

    def reserve(self, count: int) -> list[int]:
        """Numbers whose messages come later, as the counters of those."""
        first = self.counters.last_counter + 1
        self.counters.last_counter += count
        self.changes.append(Update([]))
        return list(range(first, first + count))

    def append_reserved(
        self, payloads: Sequence[bytes], counters: Sequence[int], scheduled_at_ms: int
    ) -> list[Entry]:
        """Messages under numbers that were given out before; NEVER_MS: active ones."""
        entries = self.append(payloads, scheduled_at_ms=scheduled_at_ms, counters=counters)
        self.changes[-1] = AppendReserved(entries)
        return entries

    def move(
        self, entries: Sequence[Entry], *, line: int = MAIN_LINE, state: int = ACTIVE
    ) -> list[Entry]:
        """Change line and state of messages whose payload only the store has."""
        for entry in entries:
            self._count(entry, -1)
            entry.line = line
            entry.state = state
            self._count(entry, 1)
        self.changes.append(Update(list(entries)))
        return list(entries)

    def update(self, entries: Sequence[Entry]) -> None:
        self.changes.append(Update(list(entries)))

    def remove(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            self._count(entry, -1)
        self.changes.append(Remove([entry.sequence_number for entry in entries]))

    def delay(self, entries: Sequence[Entry], until_ms: int) -> list[Entry]:
        for entry in entries:
            entry.delayed_until_ms = until_ms
        return self.move(entries, line=entries[0].line, state=DELAYED)

    def set_state(self, session_id: str, state: bytes | None, at_ms: int = ENQUEUED_AT_MS) -> None:
        before = self._states.get(session_id)
        if before is not None:
            self.counters.states -= 1
            self.counters.state_bytes -= len(before)
            del self._states[session_id]
        if state is not None:
            self.counters.states += 1
            self.counters.state_bytes += len(state)
            self._states[session_id] = state
        self.changes.append(StateChange(session_id, state, at_ms))

    def remember(self, digests: bytes, at_ms: int) -> None:
        self.changes.append(Remember(at_ms, digests))

    def forget_ids(self, until_ms: int) -> None:
        self.changes.append(ForgetIds(until_ms))

    def record(self, kind: int, key: bytes, data: bytes | None) -> None:
        self.changes.append(RecordChange(kind, key, data))

    def commit(self) -> FragmentCommit:
        """What was written since the last commit."""
        changes, self.changes = self.changes, []
        return FragmentCommit(self.fragment, changes, self.counters.copy())

    def write(self, store: MessageStore) -> None:
        store.commit([self.commit()])
        self.counters = self.counters.copy()

    def _count(self, entry: Entry, sign: int) -> None:
        if entry.state == SET_ASIDE:
            self.counters.set_aside += sign
            return
        line = self.counters.lines[entry.line]
        if entry.state == ACTIVE:
            line.count += sign
        elif entry.state == DEFERRED:
            line.deferred += sign
        else:
            line.scheduled += sign
        line.size_bytes += sign * entry.size_bytes


Facts = tuple[int | str | bytes | None, ...]


def facts(entry: Entry) -> Facts:
    """All of an entry, comparable."""
    return (
        entry.sequence_number,
        entry.payload,
        entry.size_bytes,
        entry.enqueued_at_ms,
        entry.expires_at_ms,
        entry.delivery_count,
        entry.line,
        entry.state,
        entry.reason,
        entry.description,
        entry.modified,
        entry.session_id,
        entry.delayed_until_ms,
    )


def page_facts(page: Page) -> tuple[list[Facts], list[int], bool]:
    return [facts(entry) for entry in page.entries], page.damaged, page.is_end


def numbers(entries: Sequence[Entry]) -> list[int]:
    return [entry.sequence_number for entry in entries]


def without_payload(entries: Sequence[Entry]) -> list[Entry]:
    """The same messages as a fragment holds them after their delivery."""
    for entry in entries:
        entry.payload = None
    return list(entries)


def read_all(store: MessageStore, fragment: FragmentId, line: int = MAIN_LINE) -> list[Entry]:
    """A whole line, in pages that end in the middle of chunks."""
    found: list[Entry] = []
    after = 0
    for _ in range(10_000):
        page = store.read_line(fragment, line, after=after, count_max=7, bytes_max=1 << 20)
        found += page.entries
        if page.is_end:
            return found
        after = max(page.damaged + numbers(page.entries))
    raise AssertionError("the line does not end")


class Committing(threading.Thread):
    """A commit on a thread of its own; what it raised is raised by `done`."""

    def __init__(self, store: PostgresStore, pen: Pen) -> None:
        super().__init__()
        self._store = store
        self._commit = pen.commit()
        self._error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self._store.commit([self._commit])
        except BaseException as error:  # noqa: BLE001 - it is told to whoever asks
            self._error = error

    def done(self) -> None:
        self.join(WAIT_S)
        assert not self.is_alive()
        if self._error is not None:
            raise self._error
