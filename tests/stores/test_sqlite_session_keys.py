"""A file whose sessions are named by id, as they were before, is brought up to date."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from shardbus.core.message import DEFERRED, MAIN_LINE
from shardbus.stores.base import FragmentId
from shardbus.stores.check import check_store
from shardbus.stores.chunk import (
    ASIDE,
    encoded,
    pack_session_state,
    sequence_base,
    unpack_session_state,
    unpack_state,
)
from shardbus.stores.database import SESSION_KEYS_VERSION
from shardbus.stores.repair import repair_store
from shardbus.stores.sqlite import SqliteStore
from tests.stores.harness import Pen, Scalpel, without_payload

FRAGMENT = FragmentId(7, 3)
# Before they are made to look as they did: sessions with states of these sizes.
STATES = {"Red": b"the first", "red": b"the last!", "RED": b"the other", "Lone": b"lonely"}
SET_AT_MS = {"Red": 1, "red": 3, "RED": 2, "Lone": 4}
BYTES_MAX = 1 << 20


def dummy(name: str) -> str:
    return "state of " + str(list(STATES).index(name))


def make(path: Path, winner: str = "red") -> Pen:
    """A file of schema 6: each spelling is a session of its own."""
    at_ms = {**SET_AT_MS, winner: 9}
    store = SqliteStore(path)
    store.create([FRAGMENT])
    pen = Pen(FRAGMENT)
    pen.append([b"r1"], session_id="Red")
    deferred = pen.append([b"r2"], session_id="red")
    pen.append([b"r3"], session_id="RED")
    pen.append([b"b1"], session_id="Blue")
    pen.append([b"b2"], session_id="BLUE")
    pen.append([b"g1"], session_id="green")
    pen.append([b"u1"], session_id="Ünder")
    for name, state in STATES.items():
        pen.set_state(dummy(name), state, at_ms[name])
    pen.write(store)
    pen.move(without_payload(deferred), state=DEFERRED)
    pen.write(store)
    store.close()
    with Scalpel(path) as scalpel:
        _unkey(scalpel, at_ms)
    return pen


def _unkey(scalpel: Scalpel, at_ms: dict[str, int]) -> None:
    local = scalpel.number("SELECT local FROM fragment")
    for key, data in scalpel.execute("SELECT key, data FROM entry WHERE session IS NOT NULL"):
        assert isinstance(key, int) and isinstance(data, bytes)
        entry = unpack_state(key, sequence_base(FRAGMENT.number), data)
        assert entry is not None
        name = encoded(entry.session_id)
        scalpel.execute("INSERT OR IGNORE INTO session (local, name) VALUES (?, ?)", local, name)
        scalpel.execute(
            "UPDATE entry SET session = (SELECT id FROM session WHERE name = ?) WHERE key = ?",
            name,
            key,
        )
    for spelled, state in STATES.items():
        old, new = encoded(dummy(spelled)), encoded(spelled)
        scalpel.execute("INSERT OR IGNORE INTO session (local, name) VALUES (?, ?)", local, new)
        scalpel.execute(
            "UPDATE session_state SET data = ?, session = (SELECT id FROM session WHERE name = ?) "
            "WHERE session = (SELECT id FROM session WHERE name = ?)",
            pack_session_state(local, new, at_ms[spelled], state),
            new,
            old,
        )
        scalpel.execute("DELETE FROM session WHERE name = ?", old)
    scalpel.execute(f"PRAGMA user_version = {SESSION_KEYS_VERSION - 1}")


def texts_of(store: SqliteStore, session_id: str) -> list[bytes | None]:
    page = store.browse(
        FRAGMENT, MAIN_LINE, start=0, count_max=9, bytes_max=BYTES_MAX, session_id=session_id
    )
    assert page.damaged == []
    return [entry.payload for entry in page.entries]


def asides(path: Path) -> dict[bytes, bytes]:
    """The states that are kept beside, by the spelling of their session."""
    with Scalpel(path) as scalpel:
        rows = scalpel.execute(
            "SELECT name, data FROM session JOIN session_state ON session = id WHERE name >= ?",
            ASIDE,
        )
    kept: dict[bytes, bytes] = {}
    for name, data in rows:
        assert isinstance(name, bytes) and isinstance(data, bytes)
        found = unpack_session_state(data)
        assert found is not None and name == ASIDE + found[1]
        kept[found[1]] = found[3]
    return kept


def assert_united(path: Path, winner: str) -> None:
    store = SqliteStore(path)
    for name in ("Red", "red", "RED", "reD"):
        assert texts_of(store, name) == [b"r1", b"r2", b"r3"]
        assert store.read_state(FRAGMENT, name) == STATES[winner]
    assert texts_of(store, "blue") == [b"b1", b"b2"]
    assert texts_of(store, "GREEN") == [b"g1"]
    assert texts_of(store, "ünder") == [b"u1"]
    assert store.read_state(FRAGMENT, "LONE") == b"lonely"
    page = store.read_sessions(FRAGMENT, after=0, count_max=9)
    ranks = [(r & 0xFF, key) for r, key in page.sessions]
    assert ranks == [(1, "red"), (4, "blue"), (6, "green"), (7, "ünder")]
    assert store.list_sessions(FRAGMENT, updated_after_ms=-1, skip=0, count_max=9) == [
        "Blue",
        "green",
        "Lone",
        "Red",
        "Ünder",
    ]
    assert store.list_sessions(FRAGMENT, updated_after_ms=3, skip=0, count_max=9) == ["Lone", "Red"]
    counters = store.load(FRAGMENT).counters
    assert (counters.states, counters.state_bytes) == (4, sum(map(len, STATES.values())))
    store.close()
    others = {name: state for name, state in STATES.items() if name.lower() == "red"}
    del others[winner]
    assert asides(path) == {encoded(name): state for name, state in others.items()}


@pytest.mark.parametrize("winner", ["Red", "red", "RED"])
def test_spellings_of_a_file_of_before_become_one_session(
    tmp_path: Path, winner: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is lost: messages in their order, the state that was set last, the others beside."""
    path = tmp_path / "broker-0.db"
    make(path, winner)
    caplog.set_level(logging.WARNING)

    assert_united(path, winner)

    assert "2 others are kept beside it" in caplog.text
    report = check_store(path, lambda _: None)
    assert [damage.what for damage in report.damages] == []
    assert (report.messages, report.states) == (7, 4)


def test_an_upgraded_file_is_used_like_any_other(tmp_path: Path) -> None:
    path = tmp_path / "broker-0.db"
    make(path)
    store = SqliteStore(path)
    pen = Pen(FRAGMENT, store.load(FRAGMENT).counters)
    pen.append([b"r4"], session_id="rED")
    pen.counters.states -= 1
    pen.counters.state_bytes -= len(STATES["red"])
    pen.set_state("rED", b"newer", 99)
    pen.write(store)

    assert texts_of(store, "red") == [b"r1", b"r2", b"r3", b"r4"]
    assert store.read_state(FRAGMENT, "Red") == b"newer"
    pen.set_state("rED", None)
    pen.write(store)
    assert store.read_state(FRAGMENT, "Red") is None
    store.close()
    assert len(asides(path)) == 2
    assert [damage.what for damage in check_store(path, lambda _: None).damages] == []


def test_a_file_of_before_is_found_sound_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "broker-0.db"
    make(path)
    before = path.read_bytes()

    report = check_store(path, lambda _: None)

    assert [damage.what for damage in report.damages] == []
    assert (report.messages, report.states) == (7, 4)
    assert path.read_bytes() == before


@pytest.mark.parametrize("winner", ["Red", "red", "RED"])
@pytest.mark.parametrize("is_upgraded", [True, False])
def test_a_repair_keeps_all_states(tmp_path: Path, winner: str, is_upgraded: bool) -> None:
    """Of a file of before, and of one with states that are kept aside."""
    path = tmp_path / "broker-0.db"
    pen = make(path, winner)
    if is_upgraded:
        SqliteStore(path).close()
    with Scalpel(path) as scalpel:
        scalpel.execute("UPDATE entry SET session = NULL WHERE key & 255 = 6")
    assert len(check_store(path, lambda _: None).damages) > 0

    repair_store(path, lambda _: None)

    assert_united(path, winner)
    assert [damage.what for damage in check_store(path, lambda _: None).damages] == []
    with Scalpel(path) as scalpel:
        assert scalpel.number("SELECT count(*) FROM entry") == pen.counters.last_counter


def test_many_sessions_are_united_in_bearable_time(tmp_path: Path) -> None:
    path = tmp_path / "broker-0.db"
    store = SqliteStore(path)
    store.create([FRAGMENT])
    pen = Pen(FRAGMENT)
    for at in range(3_000):
        pen.append([b"x"], session_id=f"session-{at // 2}")
    pen.write(store)
    store.close()
    with Scalpel(path) as scalpel:
        # Every second message in a session of its own, whose name has capitals.
        scalpel.execute(
            "INSERT INTO session (local, name) "
            "SELECT local, CAST(upper(CAST(name AS TEXT)) AS BLOB) FROM session"
        )
        scalpel.execute(
            "UPDATE entry SET session = (SELECT other.id FROM session AS one JOIN session AS other "
            "ON other.name = CAST(upper(CAST(one.name AS TEXT)) AS BLOB) "
            "WHERE one.id = entry.session) WHERE key % 2 = 0"
        )
        scalpel.execute(f"PRAGMA user_version = {SESSION_KEYS_VERSION - 1}")
        assert scalpel.number("SELECT count(*) FROM session") == 3_000

    store = SqliteStore(path)

    page = store.read_sessions(FRAGMENT, after=0, count_max=2_000)
    assert [s.key for s in page.sessions] == [f"session-{at}" for at in range(1_500)]
    assert texts_of(store, "SESSION-1499") == [b"x", b"x"]
    store.close()
    with Scalpel(path) as scalpel:
        assert scalpel.number("SELECT count(*) FROM session") == 1_500
