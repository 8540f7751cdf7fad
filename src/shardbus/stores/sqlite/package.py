"""SQLite files in the data directory: the entry point of this kind of store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import final

from shardbus.stores.base.backup import CATALOGUE_NAME, Watch
from shardbus.stores.base.check import CatalogueReport, Progress, Repaired, StoreReport
from shardbus.stores.base.files import sync_directory
from shardbus.stores.base.leased import LeasedRow
from shardbus.stores.base.move_mark import ARRIVING, Mark
from shardbus.stores.base.package import Site
from shardbus.stores.base.store import StoreError
from shardbus.stores.base.tally import StoreTally
from shardbus.stores.sqlite.bulk import BulkReader
from shardbus.stores.sqlite.catalogue import SqliteCatalogue
from shardbus.stores.sqlite.database import FileLock
from shardbus.stores.sqlite.examine.adoption import adopt
from shardbus.stores.sqlite.examine.catalogue_repair import check_catalogue, repair_catalogue
from shardbus.stores.sqlite.examine.check import check_store
from shardbus.stores.sqlite.examine.repair import repair_store
from shardbus.stores.sqlite.examine.tally import tally_store
from shardbus.stores.sqlite.membership import (
    CATALOGUE,
    Holding,
    StoreFile,
    holding_of,
    id_for_catalogue,
    refuse_other_builds,
    store_files,
)
from shardbus.stores.sqlite.move_mark import mark_in, put_mark, refuse_moved
from shardbus.stores.sqlite.snapshot import SqliteSnapshot, unserved_snapshot


@final
class SqliteStores:
    """A `base_package.Stores`: `catalogue.db`, and `broker-N.db` for each broker."""

    def __init__(self, site: Site) -> None:
        if site.address:
            raise StoreError(
                f"sqlite:{site.address}: SQLite stores are files in the data directory; use "
                "`sqlite:`, and set the directory with --data-dir"
            )
        self._site = site
        self._directory = site.data_dir
        self._catalogue = site.data_dir / CATALOGUE

    def describe(self) -> str:
        return f"SQLite files in {self._directory}"

    def names(self) -> list[str]:
        return [path.stem for path in store_files(self._directory)]

    def has_catalogue(self) -> bool:
        return self._catalogue.exists()

    def pipelines(self) -> list[LeasedRow]:
        return []

    def jobs(self) -> list[LeasedRow]:
        return []

    def take_in(self, pipelines: Sequence[LeasedRow], jobs: Sequence[LeasedRow]) -> None:
        """Do nothing: they are files of the data directory."""

    def refuse_other_builds(self) -> None:
        refuse_other_builds(self._directory)

    def check_start(self) -> None:
        refuse_other_builds(self._directory)
        refuse_moved(self._directory)
        id_for_catalogue(self._catalogue, new_id="")

    def open_catalogue(self, *, now_ms: int, new_id: str) -> SqliteCatalogue:
        refuse_other_builds(self._directory)
        refuse_moved(self._directory)
        return SqliteCatalogue(
            self._catalogue,
            now_ms=now_ms,
            namespace_id=id_for_catalogue(self._catalogue, new_id=new_id),
            reserve_bytes=self._site.reserve_bytes,
        )

    def open_store(self, name: str) -> StoreFile:
        reserve_bytes = self._site.reserve_bytes
        return StoreFile(self._path(name), self._site.durability, reserve_bytes=reserve_bytes)

    def open_bulk(self, name: str) -> BulkReader:
        return BulkReader(self._path(name))

    @contextmanager
    def held(self) -> Iterator[None]:
        with ExitStack() as locks:
            for path in store_files(self._directory):
                locks.callback(FileLock(path.resolve()).release)
            yield

    def unserved_snapshot(self, name: str) -> SqliteSnapshot:
        return unserved_snapshot(self._path(name))

    def mark(self) -> Mark | None:
        return mark_in(self._directory)

    def put_mark(self, mark: Mark | None) -> None:
        put_mark(self._directory, mark)

    def takes_damage(self) -> bool:
        return True

    def check_empty(self, move_id: str) -> None:
        found = mark_in(self._directory)
        if found is not None and found.move_id == move_id:
            return
        if found is not None and found.state == ARRIVING:
            raise StoreError(
                f"{self._directory} is partly filled from {found.other}, by another move. Nothing "
                "was changed. Finish that one, or remove this directory"
            )
        if found is not None or self.has_catalogue() or self.names():
            raise StoreError(f"{self._directory} is not empty. Nothing was changed")

    def receive(self, mark: Mark) -> None:
        self.check_empty(mark.move_id)
        if mark_in(self._directory) is None:
            put_mark(self._directory, mark)

    def has_received(self, name: str) -> bool:
        return self._path(name).exists()

    def restore(self, name: str, copy: Path, watch: Watch) -> None:
        # A copy is a database, and only needs its name.
        copy.rename(self._path(name))
        sync_directory(self._directory)

    def finish(self, mark: Mark) -> None:
        put_mark(self._directory, mark)

    def tally(self, name: str, progress: Progress) -> StoreTally:
        return tally_store(self._path(name).resolve(), progress)

    def size_bytes(self, name: str) -> int:
        path = self._path(name)
        return path.stat().st_size if path.exists() else 0

    def check(self, name: str, progress: Progress) -> StoreReport:
        return check_store(self._path(name), progress)

    def repair(self, name: str, progress: Progress) -> Repaired:
        return repair_store(self._path(name), progress)

    def check_catalogue(self) -> CatalogueReport:
        return check_catalogue(self._catalogue)

    def repair_catalogue(self, *, now_ms: int, new_id: str) -> str:
        return repair_catalogue(self._catalogue, self._holdings(), now_ms=now_ms, new_id=new_id)

    def adopt(self, *, now_ms: int, new_id: str) -> list[str]:
        return adopt(self._directory, now_ms=now_ms, new_id=new_id)

    def _path(self, name: str) -> Path:
        return self._catalogue if name == CATALOGUE_NAME else self._directory / f"{name}.db"

    def _holdings(self) -> list[Holding]:
        """What the readable stores say about themselves."""
        found: list[Holding] = []
        for path in store_files(self._directory):
            if path.exists():
                with suppress(StoreError):
                    found.append(holding_of(path))
        return found


def stores(site: Site) -> SqliteStores:
    return SqliteStores(site)
