"""A backup of a stopped server, and the data directory that is made of it (R43)."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from shardbus.app.backups import restoring
from shardbus.app.backups.manifest import (
    CATALOGUE,
    ManifestFile,
    new_manifest,
    read_manifest,
    write_manifest,
)
from shardbus.app.cli.main import main
from shardbus.app.cli.operations.node import SLOTS_MAX, STORES_MAX
from shardbus.app.server.data_directory import data_directory
from shardbus.core.namespace.entity import Entity, EntitySpec, FragmentHome
from shardbus.core.namespace.placement import even_hash_starts
from shardbus.stores.base.backup import broker_name, copy_name
from shardbus.stores.base.store import FragmentId
from shardbus.stores.sqlite.catalogue import SqliteCatalogue
from shardbus.stores.sqlite.store import SqliteStore
from tests.stores.filled import FRAGMENTS, filled
from tests.stores.harness import Scalpel

PIPELINE = {"definition": {"name": "archive"}, "intent": "run"}


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """A queue with three fragments on one broker, another broker, and a pipeline."""
    directory = tmp_path / "data"
    directory.mkdir()
    filled(directory / "broker-0.db")
    SqliteStore(directory / "broker-1.db").close()
    entity = Entity(FRAGMENTS[0].entity_id, "Orders", EntitySpec(), 1)
    entity.fragments = [FragmentHome(fragment.number, 0) for fragment in FRAGMENTS]
    entity.hash_starts = even_hash_starts(len(FRAGMENTS))
    catalogue = SqliteCatalogue(directory / "catalogue.db", now_ms=1)
    catalogue.put(entity)
    catalogue.close()
    (directory / "pipelines").mkdir()
    (directory / "pipelines" / "archive.json").write_text(json.dumps(PIPELINE), encoding="utf-8")
    (directory / "tls").mkdir()
    (directory / "tls" / "ca-key.pem").write_text("secret", encoding="utf-8")
    return directory


@pytest.fixture
def backup(data_dir: Path, tmp_path: Path) -> Path:
    target = tmp_path / "backup"
    result = CliRunner().invoke(main, ["backup", "--offline", str(data_dir), str(target)])
    assert result.exit_code == 0, result.output
    return target


def restore(backup: Path, target: Path, *options: str) -> Result:
    return CliRunner().invoke(main, ["restore", str(backup), str(target), *options])


def named(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))


def test_a_backup_holds_the_namespace_and_no_keys_of_the_machine(backup: Path) -> None:
    """R43."""
    assert named(backup) == [
        "broker-0.db",
        "broker-1.db",
        "catalogue.db",
        "manifest.json",
        "pipelines",
        "pipelines/archive.json",
    ]
    modes = {path.stat().st_mode & 0o077 for path in [backup, *backup.rglob("*")]}
    assert modes == {0}


def test_what_is_restored_is_what_was_backed_up(
    data_dir: Path, backup: Path, tmp_path: Path
) -> None:
    """R43: all messages of all fragments, in every state."""
    result = restore(backup, tmp_path / "again", "--json")

    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert told["check"]["sound"] is True
    assert told["messages"] > 0
    assert told["files"] == 4
    for fragment in FRAGMENTS:
        assert held(data_dir, fragment) == held(tmp_path / "again", fragment)
    assert (tmp_path / "again").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "again" / "broker-0.db").stat().st_mode & 0o777 == 0o600


def test_one_file_is_told_as_one(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    SqliteCatalogue(tmp_path / "data" / "catalogue.db", now_ms=1).close()
    words = ["backup", "--offline", str(tmp_path / "data"), str(tmp_path / "backup")]
    made = CliRunner().invoke(main, words)

    assert " 1 file, " in made.output and " 0 messages" in made.output


def held(data_dir: Path, fragment: FragmentId) -> list[tuple[int, int, bytes | None]]:
    store = SqliteStore(data_dir / "broker-0.db")
    try:
        return [
            (line, entry.sequence_number, entry.payload)
            for line in range(3)
            for entry in store.browse(
                fragment, line, start=0, count_max=10_000, bytes_max=1 << 30
            ).entries
        ]
    finally:
        store.close()


def test_a_pipeline_rests_until_somebody_starts_it(backup: Path, tmp_path: Path) -> None:
    """R43: what it wrote is not in the backup."""
    restore(backup, tmp_path / "again")

    text = (tmp_path / "again" / "pipelines" / "archive.json").read_text(encoding="utf-8")
    assert json.loads(text) == {**PIPELINE, "intent": "rest"}


def test_an_empty_directory_may_be_there_and_any_other_is_left_alone(
    backup: Path, tmp_path: Path
) -> None:
    """R43: nothing is ever restored over what is there."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "mine").write_text("mine", encoding="utf-8")
    (tmp_path / "file").write_text("mine", encoding="utf-8")

    assert restore(backup, tmp_path / "empty").exit_code == 0
    for name in ("used", "file", "empty", "missing/below"):
        result = restore(backup, tmp_path / name)
        assert result.exit_code == 2, result.output

    assert named(tmp_path / "used") == ["mine"]
    assert (tmp_path / "file").read_text(encoding="utf-8") == "mine"


def test_a_mount_point_is_refused_with_what_to_do(
    backup: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "volume").mkdir()
    monkeypatch.setattr(os.path, "ismount", lambda path: str(path).endswith("volume"))

    result = restore(backup, tmp_path / "volume")

    assert result.exit_code == 2
    assert "volume/data" in result.stderr


def _cut(backup: Path) -> None:
    path = backup / "broker-0.db"
    path.write_bytes(path.read_bytes()[:-1])


def _flip(backup: Path) -> None:
    content = bytearray((backup / "broker-0.db").read_bytes())
    content[len(content) // 2] ^= 1
    (backup / "broker-0.db").write_bytes(content)


def _flip_pipeline(backup: Path) -> None:
    path = backup / "pipelines" / "archive.json"
    path.write_bytes(path.read_bytes().replace(b"archive", b"Archive"))


def _remove(backup: Path) -> None:
    (backup / "broker-1.db").unlink()


def _link(backup: Path) -> None:
    (backup / "broker-1.db").rename(backup / "elsewhere")
    (backup / "broker-1.db").symlink_to(backup / "elsewhere")


def _unfinished(backup: Path) -> None:
    (backup / "manifest.json").rename(backup / "manifest.json.new")


def _edit(backup: Path) -> None:
    path = backup / "manifest.json"
    path.write_bytes(path.read_bytes().replace(b'"messages": 0', b'"messages": 1', 1))


def _truncate(backup: Path) -> None:
    path = backup / "manifest.json"
    path.write_bytes(path.read_bytes()[:-20])


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (_cut, "broker-0.db has"),
        (_flip, "broker-0.db is damaged"),
        (_flip_pipeline, "pipelines/archive.json is damaged"),
        (_remove, "broker-1.db is missing"),
        (_link, "broker-1.db is missing"),
        (_unfinished, "has no manifest.json"),
        (_edit, "its checksum does not match"),
        (_truncate, "manifest.json is damaged"),
    ],
)
def test_a_backup_that_is_not_whole_is_refused_with_what_is_wrong(
    backup: Path, tmp_path: Path, spoil: Callable[[Path], None], told: str
) -> None:
    """R43: and nothing is left of the attempt."""
    spoil(backup)
    before = named(tmp_path)

    result = restore(backup, tmp_path / "again")

    assert result.exit_code == 1, result.output
    assert told in result.stderr
    assert "nothing was restored" in result.stderr
    assert named(tmp_path) == before


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["catalogue.db", "broker-0.db", "../broker-1.db"], "not a file of a backup"),
        (["catalogue.db", "broker-0.db", "/etc/passwd"], "not a file of a backup"),
        (["catalogue.db", "broker-0.db", "pipelines/../x.json"], "not a file of a backup"),
        (["catalogue.db", "broker-0.db", "broker-0.db"], "twice"),
        (["broker-0.db"], "does not list catalogue.db"),
        (["catalogue.db", "broker-1.db"], "does not list broker-0.db"),
        (["catalogue.db"], "does not list broker-0.db"),
    ],
)
def test_a_manifest_names_what_belongs_to_a_namespace_and_nothing_else(
    backup: Path, tmp_path: Path, names: list[str], told: str
) -> None:
    """R43: a backup of somebody else writes nowhere but into the data directory."""
    files = [ManifestFile(name, 1, "0" * 64) for name in names]
    manifest = new_manifest("x", began_at_ms=1, cut_at_ms=1, hold_ms=0, files=files)
    (backup / "manifest.json").write_text(manifest.to_text(), encoding="utf-8")

    result = restore(backup, tmp_path / "again")

    assert result.exit_code == 1
    assert told in result.stderr


def test_a_backup_of_the_largest_cluster_can_be_read(tmp_path: Path) -> None:
    """R43: a backup of 101 slots was made, and then refused: 'broker-100.db' is not a file of a
    backup. No test had so many slots.
    """
    names = [CATALOGUE, *(copy_name(broker_name(slot)) for slot in range(STORES_MAX * SLOTS_MAX))]
    large = 2**40
    files = [ManifestFile(name, large, "0" * 64, large, large) for name in names]
    manifest = new_manifest("x", began_at_ms=large, cut_at_ms=large, hold_ms=large, files=files)

    write_manifest(tmp_path, manifest)

    assert read_manifest(tmp_path) == manifest
    assert all(file.part() for file in files)


def test_damage_that_was_backed_up_is_restored_and_told(data_dir: Path, tmp_path: Path) -> None:
    """R43: the exit code is that of `check`, and the directory is there to be repaired."""
    with Scalpel(data_dir / "broker-0.db") as scalpel:
        sql = "SELECT key FROM entry WHERE line = 1 AND key >> 43 = 0 ORDER BY key LIMIT 1"
        scalpel.flip_payload(FRAGMENTS[0], scalpel.number(sql))
    CliRunner().invoke(main, ["backup", "--offline", str(data_dir), str(tmp_path / "backup")])

    result = restore(tmp_path / "backup", tmp_path / "again")

    assert result.exit_code == 1
    assert "damage was found" in result.stdout
    repaired = CliRunner().invoke(main, ["check", "--repair", str(tmp_path / "again")])
    assert repaired.exit_code == 0, repaired.output


def test_a_disk_that_fails_leaves_nothing(
    backup: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R43."""

    def fail(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(restoring, "_copy_file", fail)
    before = named(tmp_path)

    result = restore(backup, tmp_path / "again")

    assert result.exit_code == 1
    assert "No space left on device; nothing was restored" in result.stderr
    assert named(tmp_path) == before


def test_a_served_directory_is_not_copied_behind_its_server(data_dir: Path, tmp_path: Path) -> None:
    """R43: the server itself makes backups while it serves."""
    with data_directory(data_dir):
        arguments = ["backup", "--offline", str(data_dir), str(tmp_path / "backup")]
        result = CliRunner().invoke(main, arguments)

    assert result.exit_code == 3
    assert not (tmp_path / "backup").exists()


def test_an_offline_backup_needs_a_data_directory_and_a_new_one(
    data_dir: Path, tmp_path: Path
) -> None:
    for arguments in (
        [str(tmp_path), str(tmp_path / "backup")],
        [str(data_dir), str(data_dir)],
        [str(data_dir), str(tmp_path / "missing" / "below")],
        [str(data_dir)],
    ):
        result = CliRunner().invoke(main, ["backup", "--offline", *arguments])
        assert result.exit_code == 2, result.output


def test_an_offline_backup_that_fails_leaves_nothing(data_dir: Path, tmp_path: Path) -> None:
    """R43."""
    (data_dir / "catalogue.db").write_bytes(b"no database at all" * 100)

    arguments = ["backup", "--offline", str(data_dir), str(tmp_path / "backup")]
    result = CliRunner().invoke(main, arguments)

    assert result.exit_code == 1
    assert "no backup was made" in result.stderr
    assert not (tmp_path / "backup").exists()
