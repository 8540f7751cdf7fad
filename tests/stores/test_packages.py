"""A kind of store is a package with one way in, and a line in the settings."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardbus.app.server.store_kinds import STORES, stores_of
from shardbus.stores.base.package import Stores
from shardbus.stores.base.store import FragmentId, StoreError
from shardbus.stores.memory.package import MemoryStores
from shardbus.stores.sqlite.package import SqliteStores
from tests.stores.harness import Pen, numbers, read_all
from tests.support.postgres import server
from tests.support.server import Server
from tests.unit.stores.test_catalogue import entity

FRAGMENT = FragmentId(1, 0)
MINE = "a" * 32
# What a newcomer adds, and the command line with it.
SERVE = (
    "from shardbus.app.server import store_kinds; "
    "store_kinds.STORES['memory'] = 'shardbus.stores.memory.package'; "
    "from shardbus.app.cli.main import main; main()"
)


@pytest.fixture(params=["sqlite:", "memory:", "postgresql:"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stores]:
    if request.param != "postgresql:":
        yield stores_of(tmp_path, str(request.param))
        return
    database = server().new_database()
    yield stores_of(tmp_path, server().url(database))
    server().drop_database(database)


def test_the_setting_chooses_the_package(tmp_path: Path) -> None:
    assert list(STORES) == ["sqlite", "postgresql", "memory"]
    assert isinstance(stores_of(tmp_path), SqliteStores)
    assert isinstance(stores_of(tmp_path, "memory:"), MemoryStores)


def test_a_namespace_is_made_and_used_through_the_package_alone(stores: Stores) -> None:
    stores.refuse_other_builds()
    stores.check_start()
    assert stores.names() == [] and not stores.has_catalogue()

    catalogue = stores.open_catalogue(now_ms=5, new_id=MINE)
    catalogue.put(entity(1, "q"))
    kept = stores.open_store("broker-0")
    kept.join(MINE, is_empty_expected=True)
    kept.store.create([FRAGMENT])
    pen = Pen(FRAGMENT)
    written = pen.append([b"one", b"two"])
    pen.write(kept.store)

    assert (catalogue.namespace_id(), kept.namespace_id, kept.name) == (MINE, MINE, "broker-0")
    assert numbers(read_all(kept.store, FRAGMENT)) == numbers(written)
    assert stores.names() == ["broker-0"] and stores.has_catalogue()
    with pytest.raises(StoreError, match=r"broker-0.*namespace"):
        kept.join("b" * 32, is_empty_expected=False)
    kept.store.close()
    catalogue.close()


def test_a_store_that_lost_what_it_held_is_not_made_anew(stores: Stores) -> None:
    with pytest.raises(StoreError, match="broker-0"):
        stores.open_store("broker-0").join(MINE, is_empty_expected=False)


def test_a_kind_that_there_is_not_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        StoreError, match="'redis:' is not a kind of store; use `sqlite:`, `postgres"
    ):
        stores_of(tmp_path, "redis:")


def test_an_address_that_a_kind_has_not_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="use `sqlite:`, and set the directory with --data-dir"):
        stores_of(tmp_path, "sqlite:/elsewhere")


def test_a_bus_serves_a_kind_of_store_that_one_line_adds(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    command = (sys.executable, "-c", SERVE, "serve")
    server = Server(data_dir, "--store", "memory:", "--brokers", "2", command=command)
    server.start()
    try:
        api = ["--connection-string", server.connection_string]
        for arguments in (["queue", "create", "q"], ["send", "q", "precious"]):
            done = _shardbus(*arguments, *api)
            assert done.returncode == 0, done.stderr
        received = _shardbus("receive", "q", *api)
    finally:
        server.stop()

    assert "precious" in received.stdout
    assert [path.name for path in data_dir.glob("*.db*")] == []


def _shardbus(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "shardbus", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
