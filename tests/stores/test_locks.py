"""What is done to a file that this process serves leaves SQLite's locks on it.

A lock of a file belongs to the process, and goes when the process closes the file anywhere. Another
process that has read the file then takes itself for the last, and removes the log: everything that
is stored from then on is written to a file without a name, and is gone after the next crash.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from shardbus.stores.base.store import FragmentId, StoreError
from shardbus.stores.sqlite.bulk import BulkReader
from shardbus.stores.sqlite.catalogue import SqliteCatalogue
from shardbus.stores.sqlite.database import prepare
from shardbus.stores.sqlite.examine.adoption import adopt
from shardbus.stores.sqlite.examine.catalogue_repair import check_catalogue
from shardbus.stores.sqlite.examine.check import check_store
from shardbus.stores.sqlite.membership import StoreFile, holding_of, id_for_catalogue
from shardbus.stores.sqlite.snapshot import database_bytes, open_snapshot
from shardbus.stores.sqlite.store import SqliteStore

FRAGMENTS = [FragmentId(1, number) for number in range(3)]
NAMESPACE = "a" * 32
READER = "import sys, sqlite3; c = sqlite3.connect(sys.argv[1]); print(c.execute('{}').fetchone())"


def opened_again(path: Path) -> None:
    file = StoreFile(path, "full")
    with suppress(StoreError):
        file.join(NAMESPACE, is_empty_expected=False)


def looked_for_an_id(path: Path) -> None:
    with suppress(StoreError):
        id_for_catalogue(path.with_name("catalogue.db"), new_id="")


def read_beside(path: Path) -> None:
    store = SqliteStore(path, to_read=True)
    store.close()


def copied(path: Path) -> None:
    snapshot = open_snapshot(path)
    snapshot.copy(path.with_name("copy.db"), lambda done_bytes: None)
    snapshot.close()


def adopted(path: Path) -> None:
    with suppress(StoreError):
        adopt(path.parent, new_id=NAMESPACE, now_ms=5)


def checked(path: Path) -> None:
    with suppress(StoreError):
        check_store(path, lambda done: None)


def read_in_bulk(path: Path) -> None:
    with BulkReader(path) as reader:
        reader.local(FRAGMENTS[0])


DOORS: dict[str, Callable[[Path], object]] = {
    "prepare": prepare,
    "holding_of": holding_of,
    "id_for_catalogue": looked_for_an_id,
    "StoreFile": opened_again,
    "to_read": read_beside,
    "open_snapshot": copied,
    "database_bytes": database_bytes,
    "adopt": adopted,
    "check_store": checked,
    "BulkReader": read_in_bulk,
}


def another_process_reads(path: Path, sql: str) -> str:
    command = [sys.executable, "-c", READER.format(sql), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return done.stdout.strip() or done.stderr.strip()


@pytest.mark.parametrize("door", sorted(DOORS))
def test_a_log_outlives_whoever_else_reads_the_file(tmp_path: Path, door: str) -> None:
    """P1: the log that a store writes is the one that the next start finds."""
    path = tmp_path / "broker-0.db"
    (tmp_path / "catalogue.db").touch()
    log = path.with_name(path.name + "-wal")
    store = SqliteStore(path)
    store.join(NAMESPACE)
    store.create(FRAGMENTS[:1])
    inode = log.stat().st_ino
    count = "SELECT count(*) FROM fragment"

    DOORS[door](path)
    assert another_process_reads(path, count) == "(1,)"

    assert log.exists(), "another process removed the log of a store that is served"
    assert log.stat().st_ino == inode
    store.create(FRAGMENTS[1:])
    assert another_process_reads(path, count) == "(3,)"
    store.close()


def test_a_catalogue_stays_closed_to_others_while_it_is_looked_at(tmp_path: Path) -> None:
    path = tmp_path / "catalogue.db"
    catalogue = SqliteCatalogue(path, now_ms=5, namespace_id=NAMESPACE)

    with suppress(StoreError):
        SqliteCatalogue(path, now_ms=5, namespace_id=NAMESPACE)
    with suppress(StoreError):
        check_catalogue(path)

    assert "locked" in another_process_reads(path, "SELECT count(*) FROM sqlite_schema")
    catalogue.close()
