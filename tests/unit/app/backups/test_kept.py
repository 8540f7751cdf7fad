"""Backups of a server that runs: one at a time, whole or not there (R43)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardbus.app.backups.definitions import shared_definitions
from shardbus.app.backups.kept import RECORDS_MAX, KeptBackups
from shardbus.app.pipelines.capture import Capture
from shardbus.app.pipelines.definition import Definition
from shardbus.app.pipelines.shelf import Intent, Shelf
from shardbus.core.errors import ALREADY_EXISTS, INVALID_ARGUMENT, NOT_FOUND
from shardbus.gateway.http.api.operations.backups import Backup
from shardbus.stores.base.leased import LeasedRow
from shardbus.stores.base.store import StoreError
from shardbus.stores.sqlite.snapshot import SqliteSnapshot
from tests.support.refusals import refusal_of, unavailability
from tests.unit.broker.backup_world import NEAR, BackupWorld


class Served:
    """A world with its backups; nothing is left running at the end."""

    def __init__(self, world: BackupWorld) -> None:
        self.world = world
        self.kept = KeptBackups(
            world.parts[:-1],
            world.parts[-1],
            directory=world.backups,
            data_dir=world.directory,
            clock=world.clock,
            shared=self._shared,
        )
        self.rows: list[LeasedRow] = []

    async def _shared(self) -> dict[str, bytes]:
        return shared_definitions(self.rows, [])

    def start(self, name: str = "") -> Backup:
        return self.world.run(self.kept.start(name))

    def made(self, name: str = "copy") -> Backup:
        self.start(name)
        self.world.pass_s(20)
        return self.kept.show(name)

    def left(self) -> list[str]:
        return sorted(path.name for path in self.world.backups.rglob("*"))


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    # There are no threads in virtual time.
    async def at_once(work: object, *arguments: object) -> None:
        assert callable(work)
        work(*arguments)

    monkeypatch.setattr(asyncio, "to_thread", at_once)
    world = BackupWorld(tmp_path / "data")
    world.make_queues()
    yield Served(world)
    world.close()


def test_a_backup_is_started_watched_and_done(served: Served) -> None:
    """R43."""
    served.world.send(NEAR, b"message")
    (served.world.directory / "pipelines").mkdir()
    (served.world.directory / "pipelines" / "archive.json").write_text("{}", encoding="utf-8")

    assert served.start("copy").state == "running"
    served.world.pass_s(20)
    done = served.kept.show("copy")

    assert done.state == "done", done
    assert done.messages == 1
    assert done.is_gathered is True
    assert done.done_bytes == done.size_bytes
    assert served.kept.all() == [done]
    manifest = json.loads((served.world.backups / "copy" / "manifest.json").read_bytes())
    assert [file["name"] for file in manifest["files"]] == [
        "broker-0.db",
        "broker-1.db",
        "catalogue.db",
        "pipelines/archive.json",
    ]
    modes = {path.stat().st_mode & 0o077 for path in served.world.backups.rglob("*")}
    assert modes == {0}


def test_a_backup_without_a_name_is_called_by_the_time(served: Served) -> None:
    name = served.start().name
    assert name == "20231114T221320Z"
    served.world.pass_s(20)


def test_two_at_once_are_refused_and_so_is_a_name_that_is_taken(served: Served) -> None:
    """R43."""
    served.start("first")
    with refusal_of(ALREADY_EXISTS):
        served.start("second")
    served.world.pass_s(20)

    with refusal_of(ALREADY_EXISTS):
        served.start("first")
    assert served.made("second").state == "done"
    assert [each.name for each in served.kept.all()] == ["second", "first"]


@pytest.mark.parametrize("name", ["..", "../../etc", "a/b", "/tmp/x", ".x"])
def test_who_manages_the_bus_does_not_thereby_write_anywhere(served: Served, name: str) -> None:
    """R43."""
    with refusal_of(INVALID_ARGUMENT):
        served.start(name)
    assert not served.world.backups.exists()


def test_a_failed_backup_leaves_nothing_that_looks_like_one(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R43: one store is copied, and the other cannot be."""
    real = SqliteSnapshot.copy

    def fail(snapshot: SqliteSnapshot, target: Path, watch: object) -> object:
        if target.name == "broker-1.db":
            raise StoreError("the disk is full")
        assert callable(watch)
        return real(snapshot, target, watch)

    monkeypatch.setattr(SqliteSnapshot, "copy", fail)

    failed = served.made()

    assert failed.state == "failed"
    assert failed.error == "broker-1: the disk is full"
    assert served.left() == []
    monkeypatch.undo()


def test_there_is_no_manifest_before_everything_else_is_there(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R43: whatever moment the server is killed at."""
    real = SqliteSnapshot.copy
    is_there: list[bool] = []

    def copy(snapshot: SqliteSnapshot, target: Path, watch: object) -> object:
        assert callable(watch)
        copied = real(snapshot, target, watch)
        is_there.append((target.parent / "manifest.json").exists())
        return copied

    monkeypatch.setattr(SqliteSnapshot, "copy", copy)

    assert served.made().state == "done"

    assert is_there == [False] * 3
    assert "manifest.json" in served.left()


def test_a_manifest_that_cannot_be_written_makes_no_backup(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R43."""

    def fail(*arguments: object) -> None:
        raise OSError(28, "No space left on device", "manifest.json")

    monkeypatch.setattr("shardbus.app.backups.kept.write_manifest", fail)

    failed = served.made()

    assert failed.error == "manifest.json: No space left on device"
    assert served.left() == []


def test_a_server_that_ends_leaves_nothing_half_made(served: Served) -> None:
    """R43."""

    async def serve_and_end() -> None:
        serving = asyncio.ensure_future(served.kept.run())
        await served.kept.start("copy")
        await asyncio.sleep(0.01)
        serving.cancel()
        await asyncio.wait([serving])

    served.world.run(serve_and_end())

    assert served.kept.show("copy").state == "failed"
    assert served.left() == []
    served.world.send(NEAR, b"goes on")


def test_only_the_last_backups_are_remembered(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shardbus.broker.backup.backup.SPARE_BYTES", 1 << 60)
    for number in range(RECORDS_MAX + 2):
        assert served.made(f"b{number}").state == "failed"

    assert len(served.kept.all()) == RECORDS_MAX
    with refusal_of(NOT_FOUND):
        served.kept.show("b0")


def test_a_directory_that_cannot_be_made_is_told(served: Served) -> None:
    served.world.backups.write_text("a file", encoding="utf-8")
    with unavailability():
        served.start("copy")


def test_the_pipelines_of_a_cluster_are_in_its_backups(served: Served) -> None:
    """R43: they are rows of its database, and no files."""
    definition = Definition("archive", Capture(entity="orders", path="archive/orders"))
    document = json.dumps(definition.to_document())
    served.rows.append(LeasedRow("archive", "run", "b/1", 3, 9, document, "{}"))

    assert served.made().state == "done"

    found = Shelf(served.world.backups / "copy" / "pipelines").load()
    assert found == {"archive": (definition, Intent.RUN)}


def test_a_gateway_of_a_cluster_says_who_knows_a_backup(tmp_path: Path) -> None:
    """R43: each knows its own."""
    world = BackupWorld(tmp_path / "data")
    kept = KeptBackups(
        world.parts[:-1],
        world.parts[-1],
        directory=world.backups,
        data_dir=world.directory,
        clock=world.clock,
        gateway="a",
    )
    with refusal_of(NOT_FOUND, "The gateway a has made no backup"):
        kept.show("copy")
    world.close()


def test_jobs_are_in_a_backup(served: Served) -> None:
    """R43: as they were stored last; whoever restores them stops them."""
    jobs = served.world.directory / "jobs"
    jobs.mkdir()
    (jobs / "one.json").write_text("{}")
    (jobs / "one.jsonl").write_text("a line")
    served.made()
    assert "one.json" in served.left() and "one.jsonl" not in served.left()
