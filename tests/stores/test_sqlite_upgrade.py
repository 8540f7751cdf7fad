"""A file of the first schema is read, brought up to date, checked and repaired."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from shardbus.core.change import StageDrop, StagePut
from shardbus.core.message import DEAD_LETTER_LINE, DEFERRED, MAIN_LINE
from shardbus.stores import database
from shardbus.stores.base import StoreError
from shardbus.stores.check import check_store
from shardbus.stores.repair import repair_store
from shardbus.stores.sqlite import SqliteStore
from tests.stores import version1
from tests.stores.harness import Pen, Scalpel, read_all, without_payload
from tests.stores.version1 import ENQUEUED_AT_MS, EXPIRES_AT_MS, FRAGMENT, LETTER, WAITING


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "broker-0.db"
    version1.make(made)
    return made


def version_of(path: Path) -> int:
    with Scalpel(path) as scalpel:
        return scalpel.number("PRAGMA user_version")


def test_everything_in_an_old_file_is_there(path: Path) -> None:
    store = SqliteStore(path)

    counters = store.load(FRAGMENT).counters
    found = read_all(store, FRAGMENT)
    [letter] = read_all(store, FRAGMENT, DEAD_LETTER_LINE)

    assert (counters.last_counter, counters.set_aside, counters.duplicates) == (4, 0, 0)
    assert [(x.count, x.size_bytes, x.deferred) for x in counters.lines] == [
        (3, 11, 0),
        (1, 4, 0),
        (0, 0, 0),
    ]
    assert [e.payload for e in found] == list(WAITING)
    assert [(e.enqueued_at_ms, e.expires_at_ms) for e in found] == [
        (ENQUEUED_AT_MS, EXPIRES_AT_MS)
    ] * 3
    assert (letter.payload, letter.reason, letter.description) == (LETTER, "why", None)
    assert (letter.modified, letter.delivery_count, letter.session_id) == (b"\x00\xff", 11, None)
    assert store.load(FRAGMENT).next_due_ms == EXPIRES_AT_MS
    assert store.load(FRAGMENT).remembered == []
    store.close()
    assert version_of(path) == database.SCHEMA_VERSION


def test_an_old_file_is_used_like_any_other(path: Path) -> None:
    store = SqliteStore(path)
    pen = Pen(FRAGMENT, store.load(FRAGMENT).counters)
    old = without_payload(read_all(store, FRAGMENT))
    letters = without_payload(read_all(store, FRAGMENT, DEAD_LETTER_LINE))

    pen.move(old[:1], state=DEFERRED)
    pen.move(letters)
    pen.remove(old[1:2])
    pen.append([b"s1"], session_id="red")
    pen.append([b"later"], scheduled_at_ms=9_000)
    pen.set_state("red", b"state")
    pen.remember(bytes(16), 1_000)
    pen.write(store)
    store.close()

    store = SqliteStore(path)
    assert [e.payload for e in read_all(store, FRAGMENT)] == [WAITING[2], LETTER, b"s1"]
    assert [e.reason for e in read_all(store, FRAGMENT)] == [None, "why", None]
    assert store.read_sessions(FRAGMENT, after=0, count_max=9).sessions == [
        (pen.sequence(5), "red")
    ]
    line = store.load(FRAGMENT).counters.lines[MAIN_LINE]
    assert (line.count, line.deferred, line.scheduled) == (3, 1, 1)
    store.close()
    assert [damage.what for damage in check_store(path, lambda _: None).damages] == []


def test_an_upgrade_that_fails_leaves_the_old_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of a script or nothing: the next start tries again."""
    scripts = database._migrations()
    broken = [(number, script + "\nCREATE TABLE entry (again);") for number, script in scripts]
    with monkeypatch.context() as patched:
        patched.setattr(database, "_migrations", lambda: broken)
        with pytest.raises(StoreError, match="already exists"):
            SqliteStore(path)
    assert version_of(path) == 1
    with Scalpel(path) as scalpel:
        assert scalpel.execute("SELECT name FROM sqlite_schema WHERE name = 'session'") == []

    store = SqliteStore(path)
    assert [e.payload for e in read_all(store, FRAGMENT)] == list(WAITING)
    store.close()


def test_an_old_file_is_found_sound_and_left_as_it_is(path: Path) -> None:
    before = path.read_bytes()

    report = check_store(path, lambda _: None)

    assert [damage.what for damage in report.damages] == []
    assert (report.messages, report.sessions) == (4, 0)
    assert path.read_bytes() == before


def test_a_damaged_old_file_is_repaired_into_a_new_one(path: Path) -> None:
    with Scalpel(path) as scalpel:
        scalpel.flip_payload(FRAGMENT, 3 << 48 | 2)

    outcome = repair_store(path, lambda _: None)

    assert (outcome.served, outcome.set_aside) == (3, 1)
    assert version_of(path) == database.SCHEMA_VERSION
    assert [damage.what for damage in check_store(path, lambda _: None).damages] == []
    store = SqliteStore(path)
    assert [e.payload for e in read_all(store, FRAGMENT)] == [WAITING[0], WAITING[2]]
    assert [e.payload for e in read_all(store, FRAGMENT, DEAD_LETTER_LINE)] == [LETTER]
    store.close()


def test_a_file_made_now_and_an_upgraded_one_have_the_same_schema(
    path: Path, tmp_path: Path
) -> None:
    SqliteStore(path).close()
    SqliteStore(tmp_path / "new.db").close()

    def schema(file: Path) -> list[tuple[str, ...]]:
        connection = sqlite3.connect(file)
        try:
            return connection.execute(
                "SELECT type, name, sql FROM sqlite_schema ORDER BY name"
            ).fetchall()
        finally:
            connection.close()

    assert schema(path) == schema(tmp_path / "new.db")


def test_what_was_staged_before_payloads_were_kept_beside_pieces_can_be_read(
    tmp_path: Path,
) -> None:
    path = tmp_path / "broker-0.db"
    store = SqliteStore(path)
    store.create([FRAGMENT])
    pen = Pen(FRAGMENT)
    pen.changes.append(StagePut(b"a", 1, b"packed"))
    pen.write(store)
    store.close()
    with Scalpel(path) as scalpel:
        scalpel.execute("ALTER TABLE stage DROP COLUMN parts")
        scalpel.execute("DROP TABLE namespace")
        scalpel.execute("DROP TABLE entity_ids")
        scalpel.execute("PRAGMA user_version = 4")
    assert check_store(path, lambda _: None).damages == []

    store = SqliteStore(path)

    assert store.read_stage(FRAGMENT, b"a") == {1: b"packed"}
    assert store.check_stage(FRAGMENT, b"a") == []
    pen.changes.append(StageDrop(b"a"))
    pen.write(store)
    assert store.read_stage(FRAGMENT, b"a") == {}
    store.close()
    assert version_of(path) == database.SCHEMA_VERSION
