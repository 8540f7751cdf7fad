"""Which namespace the files of a data directory belong to, so that they are never mixed up.

A catalogue and its stores share an id. A catalogue may not remove what it does not know, and an
empty file in the place of a full one must not become the store of the namespace.
"""

from __future__ import annotations

import logging
import re
import sqlite3
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal, final

from shardbus.stores.base.late import LateStore
from shardbus.stores.base.store import MessageStore, StoreError
from shardbus.stores.sqlite.catalogue import APPLICATION_ID as CATALOGUE_ID
from shardbus.stores.sqlite.database import (
    APPLICATION_ID,
    highest_entity_id,
    ids_in,
    namespace_of,
    prepare,
    refuse_other,
    store_error,
)
from shardbus.stores.sqlite.examine.salvage import open_unchanged
from shardbus.stores.sqlite.move_mark import refuse_moved
from shardbus.stores.sqlite.snapshot import SqliteSnapshot, database_bytes, open_snapshot
from shardbus.stores.sqlite.store import SqliteStore

log = logging.getLogger(__name__)

CATALOGUE: Final = "catalogue.db"
_STORE: Final = re.compile(r"broker-(\d+)\.db")


def store_files(data_dir: Path) -> list[Path]:
    """The stores of a data directory in the order of their brokers."""
    found = [path for path in data_dir.iterdir() if _STORE.fullmatch(path.name)]
    return sorted(found, key=broker_index)


def broker_index(path: Path) -> int:
    """The broker index in the name of a store file; -1 if it is not a store file."""
    found = _STORE.fullmatch(path.name)
    return int(found[1]) if found is not None else -1


def refuse_other_builds(data_dir: Path) -> None:
    """Raises OtherBuild when another build made a file of the data directory; nothing is
    changed.
    """
    for path in (data_dir / CATALOGUE, *store_files(data_dir)):
        try:
            found = ids_in(path) if path.is_file() else None
        except StoreError:
            # Opening the file will report the problem.
            continue
        if found is not None and found[0] in (APPLICATION_ID, CATALOGUE_ID):
            refuse_other(path, found[1])


@final
class Holding:
    """What a store file says about itself; `namespace_id` is empty if it belongs to none."""

    def __init__(self, namespace_id: str, fragments: int, highest_entity_id: int) -> None:
        self.namespace_id = namespace_id
        self.fragments = fragments
        self.highest_entity_id = highest_entity_id


def holding_of(path: Path) -> Holding:
    """Read a store file without changing it, even while it is being served."""
    try:
        prepare(path)
        connection = open_unchanged(path)
        try:
            namespace_id = namespace_of(connection)
            highest = highest_entity_id(connection)
            count = connection.execute(
                "SELECT count(*) FROM fragment WHERE is_deleted = 0"
            ).fetchone()[0]
        finally:
            connection.close()
    except (sqlite3.Error, OSError) as error:
        raise store_error(path, error) from error
    return Holding(namespace_id, int(count), highest)


def id_for_catalogue(catalogue: Path, *, new_id: str) -> str:
    """The id for a new catalogue.

    It is that of the stores beside it if they have one, otherwise `new_id`. StoreError, and nothing
    is changed, when there is no catalogue although a store holds fragments: a new catalogue would
    not know any of them.
    """
    is_there = catalogue.exists() and catalogue.stat().st_size > 0
    ids: set[str] = set()
    full: list[str] = []
    for path in store_files(catalogue.parent):
        if not path.exists():
            # A link to a disk that is not mounted, or on which the store is still to be created.
            continue
        try:
            holding = holding_of(path)
        except StoreError:
            # With a catalogue the other stores can start without this one; without a catalogue it
            # may hold anything.
            if not is_there:
                raise
            continue
        ids.add(holding.namespace_id)
        if holding.fragments:
            full.append(f"{path.name} ({holding.fragments} fragments)")
    ids.discard("")
    if full and not is_there:
        raise StoreError(
            f"{catalogue} does not exist, but the stores beside it hold messages: "
            f"{', '.join(full)}. Nothing was changed. Mount the volume of the catalogue, or "
            "restore a copy of it. If there is no copy, `shardbus check --adopt` creates a "
            "new catalogue that keeps all fragments, and `shardbus orphans recover` makes "
            "queues of them"
        )
    return ids.pop() if len(ids) == 1 else new_id


class _Unclaimed(StoreError):
    """The file belongs to no namespace yet, and no gateway said which one it is to join."""


@final
class StoreFile:
    """The file of a broker's store, which is opened for one namespace. A `base_package.KeptStore`.

    `store` raises StoreError until the file has joined a namespace; a failed `join` is tried again
    whenever the store is needed. A store that cannot be written is opened read-only.
    """

    def __init__(
        self, path: Path, durability: Literal["full", "relaxed"], *, reserve_bytes: int = 0
    ) -> None:
        self.path = path
        self.store = LateStore(self._open, self._open_to_read)
        self._durability: Literal["full", "relaxed"] = durability
        self._reserve_bytes = reserve_bytes
        self._namespace_id = ""
        # An empty id means whichever namespace the file belongs to.
        self._asked: tuple[str, bool] | None = None
        self._asking = threading.Lock()

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def namespace_id(self) -> str:
        return self._namespace_id

    def size_bytes(self) -> int:
        return database_bytes(self.path)

    def snapshot(self) -> SqliteSnapshot:
        # Raises the reason if the store could not be opened yet.
        self.store.fragments()
        return open_snapshot(self.path)

    def open_own(self) -> None:
        """Open a file for the namespace that it belongs to; StoreError if that fails."""
        if not self.path.exists():
            return
        self._asked = ("", False)
        try:
            self.open_if_only_to_read()
        except _Unclaimed:
            self._asked = None

    def open_if_only_to_read(self) -> None:
        """Open the file; StoreError when it cannot even be read."""
        try:
            self.store.open()
        except _Unclaimed:
            raise
        except StoreError as error:
            self.store.to_read()
            log.error("%s starts with a read-only store: %s", self.name, error)

    def join(self, namespace_id: str, *, is_empty_expected: bool) -> None:
        with self._asking:
            if self._namespace_id not in ("", namespace_id):
                raise self._foreign(self._namespace_id, namespace_id)
            self._asked = (namespace_id, is_empty_expected)
            self.store.open()

    def _open(self) -> MessageStore:
        wanted, is_empty_expected = self._wanted()
        refuse_moved(self.path.parent)
        if not self.path.exists() and not is_empty_expected:
            raise self._lost()
        self._refuse_early(wanted)
        store = SqliteStore(
            self.path, durability=self._durability, reserve_bytes=self._reserve_bytes
        )
        try:
            if not store.namespace_id():
                self._claim(store, wanted, is_empty_expected=is_empty_expected)
            self._namespace_id = self._checked(store, wanted)
        except StoreError:
            store.close()
            raise
        return store

    def _open_to_read(self) -> MessageStore:
        wanted, _ = self._wanted()
        refuse_moved(self.path.parent)
        store = SqliteStore(self.path, to_read=True)
        try:
            self._namespace_id = self._checked(store, wanted)
        except StoreError:
            store.close()
            raise
        return store

    def _wanted(self) -> tuple[str, bool]:
        if self._asked is None:
            raise StoreError(
                f"{self.path}: no gateway has said which namespace the store belongs to"
            )
        return self._asked

    def _refuse_early(self, wanted: str) -> None:
        """Do not open a file of another namespace if that is known without opening it."""
        found = ""
        if self.path.exists():
            with suppress(StoreError):
                found = holding_of(self.path).namespace_id
        if wanted and found not in ("", wanted):
            raise self._foreign(found, wanted)

    def _claim(self, store: SqliteStore, wanted: str, *, is_empty_expected: bool) -> None:
        if not wanted:
            raise _Unclaimed(f"{self.path} does not belong to a namespace yet")
        if not store.fragments() and not is_empty_expected:
            raise self._lost()
        store.join(wanted)

    def _checked(self, store: SqliteStore, wanted: str) -> str:
        found = store.namespace_id()
        if wanted and found not in ("", wanted):
            raise self._foreign(found, wanted)
        return found

    def _lost(self) -> StoreError:
        state = "is empty" if self.path.exists() else "does not exist"
        return StoreError(
            f"{self.path} {state}, but the namespace has fragments in it. No new file was "
            "created. Mount its volume or restore a copy; if the file is lost for good, "
            "`shardbus check --adopt` creates an empty one"
        )

    def _foreign(self, found: str, wanted: str) -> StoreError:
        return StoreError(
            f"{self.path} belongs to the namespace {found}, but the catalogue to {wanted}. "
            "Nothing was changed. Put the store of this namespace in its place, or restore "
            "the catalogue of the other one; `shardbus check --adopt` lets this namespace "
            "take the file over and keeps its fragments as orphans"
        )
