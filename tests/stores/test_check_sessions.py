"""`check` and `repair` of what is kept beside messages: sessions, states, remembered ids."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardbus.core.message import ACTIVE, DEFERRED, MAIN_LINE, SCHEDULED
from shardbus.stores.base.check import StoreReport
from shardbus.stores.sqlite.examine.check import check_store
from shardbus.stores.sqlite.examine.repair import repair_store
from shardbus.stores.sqlite.store import SqliteStore
from tests.stores.filled import (
    SESSIONFUL,
    Filled,
    filled,
    remembered,
    served,
    set_aside,
    states,
)
from tests.stores.harness import Pen, Scalpel


@pytest.fixture
def store(tmp_path: Path) -> Filled:
    return filled(tmp_path / "broker-0.db")


def checked(path: Path) -> StoreReport:
    return check_store(path, lambda _: None)


def assert_mended(store: Filled, what: str) -> None:
    """The fault is told as one that costs nothing, and a repair puts it right."""
    report = checked(store.path)
    assert any(what in damage.what for damage in report.damages)
    assert not any(damage.is_loss for damage in report.damages)
    assert {(d.entity_id, d.fragment) for d in report.damages} == {tuple(SESSIONFUL)}

    repair_store(store.path, lambda _: None)

    assert [damage.what for damage in checked(store.path).damages] == []
    assert served(store.path) == store.shelf
    assert states(store.path) == store.states
    assert remembered(store.path) == store.ids


@pytest.mark.parametrize(
    ("sql", "what"),
    [
        ("UPDATE session SET rank = NULL WHERE name = x'726564'", "is ranked by a wrong message"),
        ("UPDATE session SET rank = rank + 1 WHERE name = x''", "is ranked by a wrong message"),
        ("INSERT INTO session (local, name) VALUES (3, x'00')", "neither messages nor a state"),
        ("DELETE FROM session WHERE name = x'726564'", "cannot be found by its session"),
        (
            "UPDATE entry SET session = NULL WHERE session = 2 AND state = 1",
            "cannot be found by its",
        ),
        (
            "UPDATE session_state SET set_at = set_at + 1 WHERE session = 2",
            "differs from its list entry",
        ),
        ("UPDATE session_state SET session = 99 WHERE session = 2", "differs from its list entry"),
        ("UPDATE entry SET due_at = due_at + 1 WHERE state = 2 AND key >> 43 = 3", "wrong moment"),
        ("UPDATE remembered SET at_ms = at_ms + 1", "forgotten at a wrong moment"),
    ],
)
def test_a_row_that_is_wrong_costs_nothing(store: Filled, sql: str, what: str) -> None:
    with Scalpel(store.path) as scalpel:
        for trigger in ("entry_came", "entry_changed", "entry_went"):
            # They come back with the repaired file; here they would mend what is to be broken.
            scalpel.execute(f"DROP TRIGGER {trigger}")
        before = scalpel.execute("SELECT total_changes()")
        scalpel.execute(sql)
        assert scalpel.execute("SELECT total_changes()") > before

    assert_mended(store, what)


def test_faults_of_one_kind_are_told_once_for_a_fragment(store: Filled) -> None:
    """A lost table of sessions must not fill memory with findings."""
    with Scalpel(store.path) as scalpel:
        scalpel.execute("DELETE FROM session")

    damages = checked(store.path).damages

    assert len(damages) == 2
    assert "more like this" in damages[0].what
    assert_mended(store, "cannot be found by its session")


def test_a_damaged_state_is_the_only_loss(store: Filled) -> None:
    with Scalpel(store.path) as scalpel:
        scalpel.flip_session_state(SESSIONFUL, "red")

    [damage] = checked(store.path).damages
    assert "state of session b'red' fails its checksum" in damage.what
    assert damage.is_loss
    repair_store(store.path, lambda _: None)

    assert [one.what for one in checked(store.path).damages] == []
    assert served(store.path) == store.shelf
    expected = {name: kept for name, kept in store.states.items() if name != "red"}
    assert states(store.path) == expected
    live = SqliteStore(store.path)
    counters = live.load(SESSIONFUL).counters
    live.close()
    assert counters.states == len(expected)
    assert counters.state_bytes == sum(len(kept) for kept in expected.values())


def test_damaged_message_ids_are_told_and_the_others_kept(
    store: Filled, caplog: pytest.LogCaptureFixture
) -> None:
    """A fragment is loaded without them: a duplicate may pass, but nothing stands still."""
    with Scalpel(store.path) as scalpel:
        key = scalpel.number("SELECT min(key) + 2 FROM remembered")
        scalpel.execute("UPDATE remembered SET data = zeroblob(40) WHERE key = ?", key)
    expected = store.ids[:2] + store.ids[3:]
    assert remembered(store.path) == expected
    assert "duplicates of those messages will not be recognised" in caplog.text

    [damage] = checked(store.path).damages
    assert "fail their checksum" in damage.what
    assert "duplicates" in damage.meaning
    repair_store(store.path, lambda _: None)

    assert [one.what for one in checked(store.path).damages] == []
    assert remembered(store.path) == expected
    assert served(store.path) == store.shelf


@pytest.mark.parametrize("state", [ACTIVE, DEFERRED, SCHEDULED])
def test_a_damaged_message_of_a_session_costs_itself_alone(store: Filled, state: int) -> None:
    number = min(
        number
        for number, (line, kept, _) in store.shelf.items()
        if number >> 48 == SESSIONFUL.number and (line, kept) == (MAIN_LINE, state)
    )
    with Scalpel(store.path) as scalpel:
        scalpel.flip_payload(SESSIONFUL, number)

    [damage] = checked(store.path).damages
    assert damage.ranges == [(number, number)]
    repair_store(store.path, lambda _: None)

    assert [one.what for one in checked(store.path).damages] == []
    expected = {one: kept for one, kept in store.shelf.items() if one != number}
    assert served(store.path) == expected
    assert set_aside(store.path) == 1


@pytest.mark.parametrize("what", ["deferred", "scheduled", "states", "state_bytes"])
def test_counters_by_state_are_counted_anew(store: Filled, what: str) -> None:
    live = SqliteStore(store.path)
    pen = Pen(SESSIONFUL, live.load(SESSIONFUL).counters)
    counted = pen.counters.lines[MAIN_LINE] if what in ("deferred", "scheduled") else pen.counters
    setattr(counted, what, getattr(counted, what) + 1)
    pen.counters.duplicates = 77
    pen.write(live)
    live.close()

    assert_mended(store, "the counters are wrong")

    live = SqliteStore(store.path)
    counters = live.load(SESSIONFUL).counters
    live.close()
    assert counters.duplicates == 77
    assert counters.states == 4


@pytest.mark.parametrize("table", ["session", "session_state", "remembered"])
def test_a_page_that_cannot_be_read_costs_what_was_on_it(tmp_path: Path, table: str) -> None:
    """Sessions are found again from their messages; states and ids on the page are gone."""
    store = filled(tmp_path / "broker-0.db", rounds=30)
    with Scalpel(store.path) as scalpel:
        scalpel.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        page = scalpel.number(f"SELECT rootpage FROM sqlite_schema WHERE name = '{table}'")
    content = bytearray(store.path.read_bytes())
    content[(page - 1) * 8192 : (page - 1) * 8192 + 8] = b"\xff" * 8
    store.path.write_bytes(bytes(content))

    assert checked(store.path).is_torn
    repair_store(store.path, lambda _: None)

    assert [one.what for one in checked(store.path).damages] == []
    assert served(store.path) == store.shelf
    assert states(store.path) == ({} if table == "session_state" else store.states)
    assert remembered(store.path) == ([] if table == "remembered" else store.ids)


def test_what_deleted_fragments_left_is_no_damage(store: Filled) -> None:
    live = SqliteStore(store.path)
    live.delete([SESSIONFUL])
    live.close()

    report = checked(store.path)

    assert [one.what for one in report.damages] == []
    assert (report.sessions, report.states, report.remembered) == (0, 0, 0)
