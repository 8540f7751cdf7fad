"""A data directory of another build is refused, and not a byte of it is changed."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from shardbus.app.backups.offline import run_offline
from shardbus.app.cli.console import Console
from shardbus.app.cli.failures import CommandError
from shardbus.app.cli.operations.check_report import examined
from shardbus.app.server.store_kinds import stores_of
from shardbus.stores.base.store import FragmentId, OtherBuild
from shardbus.stores.sqlite.bulk import BulkReader
from shardbus.stores.sqlite.catalogue import SqliteCatalogue
from shardbus.stores.sqlite.examine.adoption import adopt
from shardbus.stores.sqlite.examine.catalogue_repair import repair_catalogue
from shardbus.stores.sqlite.examine.check import check_store
from shardbus.stores.sqlite.examine.repair import repair_store
from shardbus.stores.sqlite.membership import StoreFile
from shardbus.stores.sqlite.store import SqliteStore
from tests.stores.harness import Pen
from tests.unit.stores.test_catalogue import entity

FRAGMENT = FragmentId(1, 0)
# The last that stores and catalogues had before they had one in common.
STORE_SCHEMA, CATALOGUE_SCHEMA = 7, 2

Content = dict[str, bytes]


def content_of(directory: Path) -> Content:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def set_schema(path: Path, version: int) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {version}")


def make_closed(directory: Path) -> None:
    """As a server leaves it that ended."""
    catalogue = SqliteCatalogue(directory / "catalogue.db", now_ms=5, namespace_id="a" * 32)
    catalogue.put(entity(1, "q"))
    catalogue.close()
    store = SqliteStore(directory / "broker-0.db")
    store.join("a" * 32)
    store.create([FRAGMENT])
    pen = Pen(FRAGMENT)
    pen.append([b"precious"])
    pen.write(store)
    store.close()
    set_schema(directory / "catalogue.db", CATALOGUE_SCHEMA)
    set_schema(directory / "broker-0.db", STORE_SCHEMA)
    (directory / "lock").touch()


def make_killed(directory: Path) -> None:
    """As a server leaves it that was killed: what was written last is in the logs.

    The catalogue has everything there, also what it is.
    """
    made = directory.with_name("made")
    made.mkdir()
    make_closed(made)
    (made / "catalogue.db").rename(made / "whole.db")
    with (
        closing(sqlite3.connect(made / "catalogue.db", isolation_level=None)) as catalogue,
        closing(sqlite3.connect(made / "broker-0.db", isolation_level=None)) as store,
    ):
        catalogue.execute("PRAGMA locking_mode = EXCLUSIVE")
        for connection in (catalogue, store):
            connection.execute("PRAGMA journal_mode = WAL")
        catalogue.execute("BEGIN")
        catalogue.execute("CREATE TABLE entity (id INTEGER PRIMARY KEY)")
        catalogue.execute(f"PRAGMA application_id = {0x53426374}")
        catalogue.execute(f"PRAGMA user_version = {CATALOGUE_SCHEMA}")
        catalogue.execute("COMMIT")
        store.execute("UPDATE fragment SET forgotten_at = 1")
        for name in ("catalogue.db", "catalogue.db-wal", "broker-0.db", "broker-0.db-wal", "lock"):
            shutil.copy(made / name, directory / name)


MAKERS = {"closed": make_closed, "killed": make_killed}


@pytest.fixture(params=list(MAKERS))
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    made = tmp_path / "data"
    made.mkdir(mode=0o700)
    MAKERS[request.param](made)
    return made


def no_progress(_: int) -> None:
    """Nobody looks."""


STORE_USES: dict[str, Callable[[Path], object]] = {
    "serve": SqliteStore,
    "join": lambda path: StoreFile(path, "full").open_own(),
    "read": lambda path: SqliteStore(path, to_read=True),
    "bulk": BulkReader,
    "check": lambda path: check_store(path, no_progress),
    "repair": lambda path: repair_store(path, no_progress),
}
DIRECTORY_USES: dict[str, Callable[[Path], object]] = {
    "serve": lambda path: stores_of(path).open_catalogue(now_ms=5, new_id=""),
    "serve with processes": lambda path: stores_of(path).check_start(),
    "catalogue": lambda path: SqliteCatalogue(path / "catalogue.db", now_ms=5),
    "repair": lambda path: repair_catalogue(path / "catalogue.db", [], now_ms=5, new_id=""),
    "adopt": lambda path: adopt(path, now_ms=5, new_id=""),
}
COMMANDS: dict[str, Callable[[Path], object]] = {
    "check": examined,
    "repair": lambda path: examined(path, is_repairing=True),
    "adopt": lambda path: examined(path, is_adopting=True),
    "backup": lambda path: run_offline(Console(is_json=False), path, path.with_name("backup")),
}


@pytest.mark.parametrize("use", list(STORE_USES))
def test_a_store_of_an_earlier_build_is_refused(directory: Path, use: str) -> None:
    # What locks a store is beside it since it was first served.
    (directory / "broker-0.db.lock").touch()
    before = content_of(directory)

    with pytest.raises(OtherBuild, match=r"broker-0\.db was made by an earlier build.*schema 7"):
        STORE_USES[use](directory / "broker-0.db")

    assert content_of(directory) == before


@pytest.mark.parametrize("use", list(DIRECTORY_USES))
def test_a_directory_of_an_earlier_build_is_refused(directory: Path, use: str) -> None:
    before = content_of(directory)

    with pytest.raises(OtherBuild, match=r"(schema [27]; this build has 9).*Nothing was changed"):
        DIRECTORY_USES[use](directory)

    assert content_of(directory) == before


@pytest.mark.parametrize("use", list(COMMANDS))
def test_commands_refuse_a_directory_of_an_earlier_build(directory: Path, use: str) -> None:
    before = content_of(directory)

    with pytest.raises(CommandError, match=r"with the build that made it.*a new --data-dir"):
        COMMANDS[use](directory)

    assert content_of(directory) == before
    assert not directory.with_name("backup").exists()


@pytest.mark.parametrize("flags", [[], ["--broker-processes"]])
def test_a_server_says_what_the_directory_is_and_what_to_do(
    directory: Path, flags: list[str]
) -> None:
    before = content_of(directory)
    ports = ["--amqp-port", "0", "--http-port", "0", "--flight-port", "0", "--tls-port", "0"]
    command = [sys.executable, "-m", "shardbus", "serve", "--data-dir", str(directory)]

    done = subprocess.run(
        [*command, *ports, *flags], capture_output=True, text=True, check=False, timeout=60
    )

    assert done.returncode == 1
    assert "was made by an earlier build of Shardbus" in done.stderr
    assert "Nothing was changed. Serve this data directory with the build" in done.stderr
    assert content_of(directory) == before


def test_one_store_of_another_build_among_others_is_refused(tmp_path: Path) -> None:
    make_closed(tmp_path)
    set_schema(tmp_path / "catalogue.db", 8)
    before = content_of(tmp_path)

    with pytest.raises(OtherBuild, match=r"broker-0\.db was made by an earlier build"):
        stores_of(tmp_path).open_catalogue(now_ms=5, new_id="")

    assert content_of(tmp_path) == before
