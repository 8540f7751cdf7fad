"""A store belongs to one namespace, and a catalogue is made only where nothing is lost by it."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from shardbus.stores.base.store import FragmentId, StoreError
from shardbus.stores.sqlite.catalogue import SqliteCatalogue
from shardbus.stores.sqlite.examine.adoption import adopt
from shardbus.stores.sqlite.examine.catalogue_repair import check_catalogue, repair_catalogue
from shardbus.stores.sqlite.examine.check import check_store
from shardbus.stores.sqlite.examine.repair import repair_store
from shardbus.stores.sqlite.membership import StoreFile, holding_of, id_for_catalogue
from shardbus.stores.sqlite.store import SqliteStore
from tests.unit.stores.test_catalogue import entity

MINE, OTHER, NEW = "a" * 32, "b" * 32, "c" * 32


def make_store(path: Path, namespace_id: str, *fragments: FragmentId) -> Path:
    store = SqliteStore(path)
    if namespace_id:
        store.join(namespace_id)
    store.create(fragments)
    store.close()
    return path


def make_catalogue(data_dir: Path, namespace_id: str = MINE) -> SqliteCatalogue:
    return SqliteCatalogue(data_dir / "catalogue.db", now_ms=5, namespace_id=namespace_id)


@pytest.mark.parametrize("namespace_id", ["", MINE])
def test_no_catalogue_is_made_beside_a_store_that_holds_fragments(
    tmp_path: Path, namespace_id: str
) -> None:
    make_store(tmp_path / "broker-0.db", namespace_id, FragmentId(1, 0), FragmentId(1, 1))
    make_store(tmp_path / "broker-1.db", namespace_id)

    with pytest.raises(StoreError, match=r"broker-0.db \(2 fragments\).*Nothing was changed"):
        id_for_catalogue(tmp_path / "catalogue.db", new_id=NEW)

    (tmp_path / "catalogue.db").touch()
    with pytest.raises(StoreError, match="--adopt"):
        id_for_catalogue(tmp_path / "catalogue.db", new_id=NEW)
    assert not (tmp_path / "catalogue.db").stat().st_size


def test_a_new_catalogue_takes_the_id_of_empty_stores_and_otherwise_a_new_one(
    tmp_path: Path,
) -> None:
    path = tmp_path / "catalogue.db"
    assert id_for_catalogue(path, new_id=NEW) == NEW
    (tmp_path / "broker-2.db").symlink_to(tmp_path / "unmounted" / "broker-2.db")
    make_store(tmp_path / "broker-0.db", "")
    assert id_for_catalogue(path, new_id=NEW) == NEW
    make_store(tmp_path / "broker-1.db", OTHER)
    assert id_for_catalogue(path, new_id=NEW) == OTHER


def test_a_store_is_opened_for_its_namespace_alone(tmp_path: Path) -> None:
    path = make_store(tmp_path / "broker-0.db", OTHER, FragmentId(1, 0))
    before = path.read_bytes()
    file = StoreFile(path, "full")

    with pytest.raises(StoreError, match="no gateway has said"):
        file.store.fragments()
    with pytest.raises(StoreError, match=f"belongs to the namespace {OTHER}"):
        file.join(MINE, is_empty_expected=False)
    with pytest.raises(StoreError, match=f"belongs to the namespace {OTHER}"):
        file.store.fragments()
    assert path.read_bytes() == before

    file.join(OTHER, is_empty_expected=False)
    assert file.store.fragments() == [FragmentId(1, 0)]
    with pytest.raises(StoreError, match=f"belongs to the namespace {OTHER}"):
        file.join(MINE, is_empty_expected=False)
    file.store.close()


def test_nothing_is_made_in_place_of_a_store_that_should_hold_something(tmp_path: Path) -> None:
    path = tmp_path / "broker-0.db"
    file = StoreFile(path, "full")

    with pytest.raises(StoreError, match="does not exist, but the namespace has fragments in it"):
        file.join(MINE, is_empty_expected=False)
    assert not path.exists()
    make_store(path, "")
    with pytest.raises(StoreError, match="is empty, but the namespace has fragments in it"):
        file.join(MINE, is_empty_expected=False)
    assert holding_of(path).namespace_id == ""

    path.unlink()
    make_store(path, MINE, FragmentId(1, 0))
    # The disk is back: whoever needs the store opens it.
    assert file.store.fragments() == [FragmentId(1, 0)]
    file.store.close()


def test_a_store_that_has_lost_its_id_joins_whoever_comes_first(tmp_path: Path) -> None:
    """A repair leaves it so when the id cannot be read."""
    path = make_store(tmp_path / "broker-0.db", "", FragmentId(1, 0))
    file = StoreFile(path, "full")
    file.open_own()
    assert file.namespace_id == ""

    file.join(MINE, is_empty_expected=False)
    file.store.close()

    assert holding_of(path).namespace_id == MINE
    again = StoreFile(path, "full")
    again.open_own()
    assert again.namespace_id == MINE
    again.store.close()


def test_a_repaired_store_belongs_to_the_same_namespace(tmp_path: Path) -> None:
    path = make_store(tmp_path / "broker-0.db", MINE, FragmentId(1, 0))
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE fragment SET counters = x'00'")
    connection.close()

    repaired = repair_store(path, lambda _: None)

    assert repaired.kept_as == "broker-0.db.damaged-1"
    assert holding_of(path).namespace_id == MINE
    assert check_store(path, lambda _: None).is_sound()


def test_a_lost_catalogue_is_made_anew_and_gives_out_no_id_that_a_store_knows(
    tmp_path: Path,
) -> None:
    make_store(tmp_path / "broker-0.db", MINE, FragmentId(41, 0))
    make_store(tmp_path / "broker-1.db", "", FragmentId(7, 0))

    done = adopt(tmp_path, now_ms=5, new_id=NEW)

    assert done == [
        "catalogue.db was created, and has no entities",
        f"broker-1.db now belongs to the namespace {MINE}",
    ]
    catalogue = make_catalogue(tmp_path, NEW)
    assert (catalogue.namespace_id(), catalogue.reserve_id()) == (MINE, 42)
    catalogue.close()
    assert adopt(tmp_path, now_ms=5, new_id=NEW) == []


def test_a_catalogue_that_cannot_be_read_is_kept_when_it_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / "catalogue.db").write_bytes(b"what was it")
    make_store(tmp_path / "broker-0.db", MINE, FragmentId(41, 0))

    done = adopt(tmp_path, now_ms=5, new_id=NEW)

    assert done[0] == "catalogue.db cannot be read; it was renamed to catalogue.db.damaged-1"
    assert (tmp_path / "catalogue.db.damaged-1").read_bytes() == b"what was it"


def test_a_lost_store_is_made_empty_when_told_to(tmp_path: Path) -> None:
    catalogue = make_catalogue(tmp_path)
    catalogue.put(entity(1, "q"))
    catalogue.close()
    for index in range(3):
        make_store(tmp_path / f"broker-{index}.db", MINE)

    assert adopt(tmp_path, now_ms=5, new_id=NEW) == ["broker-3.db was created, and is empty"]
    assert holding_of(tmp_path / "broker-3.db").namespace_id == MINE


def test_a_store_of_another_namespace_is_taken_over_only_if_nothing_is_mixed_up(
    tmp_path: Path,
) -> None:
    catalogue = make_catalogue(tmp_path)
    known = entity(1, "q")
    catalogue.put(known)
    catalogue.close()
    for index in range(1, 4):
        make_store(tmp_path / f"broker-{index}.db", MINE)
    path = make_store(tmp_path / "broker-0.db", OTHER, FragmentId(1, known.numbers_at(0)[0]))

    with pytest.raises(StoreError, match="would be mixed up"):
        adopt(tmp_path, now_ms=5, new_id=NEW)
    assert holding_of(path).namespace_id == OTHER

    path.unlink()
    elsewhere = next(number for number in range(16) if number not in known.numbers_at(0))
    make_store(path, OTHER, FragmentId(1, elsewhere))
    with pytest.raises(StoreError, match="would be mixed up"):
        adopt(tmp_path, now_ms=5, new_id=NEW)

    path.unlink()
    make_store(path, OTHER, FragmentId(9, 0))
    adopt(tmp_path, now_ms=5, new_id=NEW)
    assert holding_of(path).namespace_id == MINE
    assert holding_of(path).fragments == 1


def spoil(path: Path, sql: str) -> None:
    connection = sqlite3.connect(path)
    connection.execute(sql)
    connection.commit()
    connection.close()


def test_a_damaged_record_is_set_aside_and_its_name_can_be_used_again(tmp_path: Path) -> None:
    catalogue = make_catalogue(tmp_path)
    catalogue.put(entity(1, "Orders"))
    catalogue.put(entity(2, "sound"))
    catalogue.begin(entity(3, "begun"))
    catalogue.put(entity(4, "deleted"))
    catalogue.remove(4)
    catalogue.close()
    path = tmp_path / "catalogue.db"
    spoil(path, "UPDATE entity SET document = replace(document, 'Orders', 'Orderz') WHERE id = 1")
    [damage] = check_catalogue(path).damages
    assert "'orders'" in damage.what and damage.entity_id == 1

    kept = repair_catalogue(path, [], now_ms=9, new_id=NEW)

    assert kept == "catalogue.db.damaged-1"
    assert check_catalogue(path).damages == []
    repaired = make_catalogue(tmp_path, NEW)
    assert repaired.namespace_id() == MINE
    assert repaired.created_at_ms() == 5
    assert [known.name for known in repaired.entities()] == ["sound"]
    assert [(u.entity.name, u.is_final) for u in repaired.unfinished()] == [
        ("begun", False),
        ("deleted", True),
    ]
    again = repaired.reserve_id()
    assert again == 5
    repaired.put(entity(again, "Orders"))
    repaired.close()
    assert check_catalogue(tmp_path / kept).damaged_ids == [1]


def test_a_name_that_was_given_to_another_entity_does_not_stop_a_repair(tmp_path: Path) -> None:
    """The first one was deleted while a broker was away, and is noted until that is back."""
    catalogue = make_catalogue(tmp_path)
    catalogue.put(entity(1, "Orders"))
    catalogue.remove(1)
    catalogue.put(entity(2, "orders"))
    catalogue.put(entity(3, "spoilt"))
    catalogue.close()
    path = tmp_path / "catalogue.db"
    spoil(path, "UPDATE entity SET checksum = checksum + 1 WHERE id = 3")

    assert repair_catalogue(path, [], now_ms=9, new_id=NEW) == "catalogue.db.damaged-1"

    repaired = make_catalogue(tmp_path)
    assert [(known.entity_id, known.name) for known in repaired.entities()] == [(2, "orders")]
    assert [(each.entity.entity_id, each.is_final) for each in repaired.unfinished()] == [(1, True)]
    repaired.close()


def test_lost_access_rules_and_a_lost_namespace_record_can_be_repaired(tmp_path: Path) -> None:
    make_store(tmp_path / "broker-0.db", MINE, FragmentId(12, 0))
    catalogue = make_catalogue(tmp_path)
    catalogue.put(entity(1, "Orders"))
    catalogue.close()
    path = tmp_path / "catalogue.db"
    spoil(path, "UPDATE namespace SET rules = '[{]'")
    with pytest.raises(StoreError, match="check --repair"):
        opened = make_catalogue(tmp_path)
        try:
            opened.rules()
        finally:
            opened.close()
    holdings = [holding_of(tmp_path / "broker-0.db")]

    assert repair_catalogue(path, holdings, now_ms=9, new_id=NEW)
    repaired = make_catalogue(tmp_path)
    assert repaired.rules() == []
    repaired.close()

    spoil(path, "DELETE FROM namespace")
    assert repair_catalogue(path, holdings, now_ms=9, new_id=NEW)
    repaired = make_catalogue(tmp_path)
    assert (repaired.namespace_id(), repaired.reserve_id()) == (MINE, 13)
    assert [known.name for known in repaired.entities()] == ["Orders"]
    repaired.close()


def test_a_sound_catalogue_is_not_touched_by_a_repair(tmp_path: Path) -> None:
    make_catalogue(tmp_path).close()
    before = (tmp_path / "catalogue.db").read_bytes()

    assert repair_catalogue(tmp_path / "catalogue.db", [], now_ms=9, new_id=NEW) == ""
    assert (tmp_path / "catalogue.db").read_bytes() == before
