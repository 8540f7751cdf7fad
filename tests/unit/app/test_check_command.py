"""`shardbus check`: a data directory examined from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from shardbus.app.cli.main import main
from shardbus.app.server.data_directory import data_directory
from shardbus.core.namespace.entity import Entity, EntitySpec, FragmentHome
from shardbus.core.namespace.placement import even_hash_starts
from shardbus.stores.base.store import FragmentId
from shardbus.stores.sqlite.catalogue import SqliteCatalogue
from shardbus.stores.sqlite.store import SqliteStore
from tests.stores.filled import FRAGMENTS, filled, served
from tests.stores.harness import Scalpel


def check(directory: Path, *options: str) -> Result:
    return CliRunner().invoke(main, ["check", str(directory), *options])


def document(directory: Path, *options: str) -> tuple[int, dict[str, object]]:
    result = check(directory, "--json", *options)
    found: object = json.loads(result.stdout)
    assert isinstance(found, dict)
    return result.exit_code, found


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """A queue with three fragments, all of them on one broker."""
    directory = tmp_path / "data"
    directory.mkdir()
    filled(directory / "broker-0.db")
    entity = Entity(FRAGMENTS[0].entity_id, "Orders", EntitySpec(), 1)
    entity.fragments = [FragmentHome(fragment.number, 0) for fragment in FRAGMENTS]
    entity.hash_starts = even_hash_starts(len(FRAGMENTS))
    catalogue = SqliteCatalogue(directory / "catalogue.db", now_ms=1)
    catalogue.put(entity)
    catalogue.close()
    return directory


def spoil(data_dir: Path) -> int:
    """Damage the payload of one dead letter; its sequence number."""
    with Scalpel(data_dir / "broker-0.db") as scalpel:
        sql = "SELECT key FROM entry WHERE line = 1 AND key >> 43 = 0 ORDER BY key LIMIT 1"
        number = scalpel.number(sql)
        scalpel.flip_payload(FRAGMENTS[0], number)
    return number


def test_a_sound_directory_ends_with_code_0(data_dir: Path) -> None:
    result = check(data_dir)

    assert result.exit_code == 0, result.output
    assert "broker-0.db: sound, 4 fragments" in result.stdout
    assert result.stdout.endswith("everything is sound\n")
    assert document(data_dir)[1]["sound"] is True


def test_damage_is_listed_with_its_place_its_meaning_and_what_to_do(data_dir: Path) -> None:
    number = spoil(data_dir)

    code, found = document(data_dir)
    result = check(data_dir)

    assert (code, result.exit_code, found["sound"]) == (1, 1, False)
    assert found["damage"] == [
        {
            "file": "broker-0.db",
            "entity_id": 7,
            "entity": "Orders",
            "fragment": 0,
            "sequence_numbers": [[number, number]],
            "what": f"the payload of message {number} is damaged or missing",
            "meaning": "1 message cannot be served",
            "advice": "run `shardbus check --repair`, or restore a copy of the file",
            "loss": True,
        }
    ]
    assert "broker-0.db, fragment 0 of 'Orders': the payload" in result.stdout
    assert f"sequence numbers: {number}\n" in result.stdout
    assert result.stdout.endswith("damage was found\n")


def test_a_repair_tells_what_it_lost_and_leaves_a_sound_directory(data_dir: Path) -> None:
    number = spoil(data_dir)

    code, found = document(data_dir, "--repair")

    assert (code, found["sound"], found["damage"]) == (0, True, [])
    [repair] = found["repaired"] if isinstance(found["repaired"], list) else []
    assert (repair["file"], repair["kept_as"]) == ("broker-0.db", "broker-0.db.damaged-1")
    assert repair["set_aside"] == 1
    [lost] = found["repaired_damage"] if isinstance(found["repaired_damage"], list) else []
    assert lost["sequence_numbers"] == [[number, number]]
    assert number not in served(data_dir / "broker-0.db")
    again = check(data_dir, "--repair")
    assert again.exit_code == 0
    assert not (data_dir / "broker-0.db.damaged-2").exists()
    assert "1 set aside" in again.stdout


def test_a_directory_that_is_served_is_refused(data_dir: Path) -> None:
    with data_directory(data_dir):
        result = check(data_dir, "--json")
    assert result.exit_code == 3
    assert "served by another process" in result.stderr

    store = SqliteStore(data_dir / "broker-0.db")
    result = check(data_dir)
    store.close()
    assert result.exit_code == 3
    assert "another process serves this file" in result.stderr


def test_what_is_no_data_directory_is_refused(tmp_path: Path) -> None:
    assert check(tmp_path / "nowhere").exit_code == 2
    assert not (tmp_path / "nowhere").exists()
    result = check(tmp_path)
    assert result.exit_code == 2
    assert "not a data directory" in result.stderr


def test_fragments_that_an_entity_lacks_are_lost_and_those_it_never_had_are_orphans(
    data_dir: Path,
) -> None:
    """R28."""
    store = SqliteStore(data_dir / "broker-0.db")
    store.delete([FRAGMENTS[2]])
    store.create([FragmentId(99, 5), FragmentId(99, 6)])
    store.close()

    code, found = document(data_dir)

    assert (code, found["orphaned_fragments"]) == (1, 2)
    [damage] = found["damage"] if isinstance(found["damage"], list) else []
    assert (damage["fragment"], damage["entity"]) == (2, "Orders")
    assert "is not in the file" in damage["what"]


def test_orphans_are_listed_with_what_they_hold_and_are_no_damage(data_dir: Path) -> None:
    """R28."""
    with Scalpel(data_dir / "catalogue.db") as scalpel:
        scalpel.execute("DELETE FROM entity")

    code, found = document(data_dir)
    result = check(data_dir)

    assert code == 0
    orphans = found["orphans"] if isinstance(found["orphans"], list) else []
    [orphan] = [each for each in orphans if each["entity_id"] == FRAGMENTS[0].entity_id]
    assert (orphan["file"], orphan["fragments"]) == ("broker-0.db", [f.number for f in FRAGMENTS])
    assert orphan["messages"] > 0 and orphan["size_bytes"] > 0
    assert f"hold {orphan['messages']} messages" in result.stdout
    assert "they are kept" in result.stdout


def test_a_damaged_record_of_the_catalogue_is_named_and_its_fragments_are_no_orphans(
    data_dir: Path,
) -> None:
    with Scalpel(data_dir / "catalogue.db") as scalpel:
        scalpel.execute("UPDATE entity SET checksum = checksum + 1")
        scalpel.execute("UPDATE namespace SET rules = '[ ]'")

    code, found = document(data_dir)

    assert (code, found["orphaned_fragments"], found["repaired"]) == (1, 0, [])
    damages = found["damage"] if isinstance(found["damage"], list) else []
    assert [(damage["file"], damage["entity_id"]) for damage in damages] == [
        ("catalogue.db", 7),
        ("catalogue.db", None),
    ]


def test_a_damaged_catalogue_is_repaired_and_what_it_lost_is_named(data_dir: Path) -> None:
    with Scalpel(data_dir / "catalogue.db") as scalpel:
        scalpel.execute("UPDATE entity SET checksum = checksum + 1")
        scalpel.execute("UPDATE namespace SET rules = '[ ]'")

    code, found = document(data_dir, "--repair")

    assert (code, found["damage"]) == (0, [])
    assert found["done"] == ["catalogue.db: repaired; the old file is catalogue.db.damaged-1"]
    lost = found["repaired_damage"] if isinstance(found["repaired_damage"], list) else []
    assert ["'orders' is damaged" in one["what"] for one in lost] == [True, False]
    assert "root rule" in lost[1]["meaning"]
    assert found["orphaned_fragments"] == len(FRAGMENTS)


def test_a_lost_catalogue_is_made_when_told_to_and_nothing_is_removed(data_dir: Path) -> None:
    (data_dir / "catalogue.db").unlink()
    assert check(data_dir).exit_code == 1
    assert not (data_dir / "catalogue.db").exists()

    code, found = document(data_dir, "--adopt")

    assert code == 0
    assert found["orphaned_fragments"] == len(FRAGMENTS)
    assert document(data_dir)[1]["sound"] is True


def test_a_store_of_another_namespace_is_damage(data_dir: Path) -> None:
    store = SqliteStore(data_dir / "broker-0.db")
    store.join("b" * 32)
    store.close()
    with Scalpel(data_dir / "catalogue.db") as scalpel:
        scalpel.execute(f"UPDATE namespace SET namespace_id = '{'a' * 32}'")

    code, found = document(data_dir)

    assert code == 1
    [damage] = found["damage"] if isinstance(found["damage"], list) else []
    assert "belongs to the namespace bbb" in damage["what"]


def test_a_catalogue_that_cannot_be_read_and_a_store_that_is_not_there_are_told(
    data_dir: Path,
) -> None:
    (data_dir / "catalogue.db").write_bytes(b"junk" * 4_000)
    (data_dir / "broker-1.db").symlink_to(data_dir / "unmounted" / "store.db")

    code, found = document(data_dir, "--repair")

    assert code == 1
    damages = found["damage"] if isinstance(found["damage"], list) else []
    assert [damage["file"] for damage in damages] == ["broker-1.db", "catalogue.db"]
    assert "does not exist" in damages[0]["what"]
    assert not (data_dir / "unmounted").exists()
