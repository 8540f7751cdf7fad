"""Stores in memory, as a package: for tests, and as the shortest example of one.

One process serves them; when it ends nothing is left that could be examined or copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import final

from shardbus.stores.base.backup import CATALOGUE_NAME, Snapshot, Watch
from shardbus.stores.base.bulk import BulkSource
from shardbus.stores.base.check import CatalogueReport, Progress, Repaired, StoreReport
from shardbus.stores.base.leased import LeasedRow
from shardbus.stores.base.move_mark import Mark
from shardbus.stores.base.package import Site
from shardbus.stores.base.store import StoreError
from shardbus.stores.base.tally import StoreTally
from shardbus.stores.memory.catalogue import MemoryCatalogue
from shardbus.stores.memory.store import MemoryStore


@final
class KeptMemory:
    """A `base_package.KeptStore`. It is created when it is first asked for."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.store = MemoryStore()
        self.namespace_id = ""

    def join(self, namespace_id: str, *, is_empty_expected: bool) -> None:
        if self.namespace_id not in ("", namespace_id):
            raise StoreError(f"{self.name} belongs to the namespace {self.namespace_id}")
        if not self.namespace_id and not is_empty_expected:
            raise StoreError(
                f"{self.name} is empty: the messages in memory were lost with the process"
            )
        self.namespace_id = namespace_id

    def open_own(self) -> None:
        """Nothing to do: it is always open."""

    def open_if_only_to_read(self) -> None:
        """Nothing to do: it is always open."""

    def size_bytes(self) -> int:
        return 0

    def snapshot(self) -> Snapshot:
        raise _nothing(self.name)


@final
class MemoryStores:
    """A `base_package.Stores`."""

    def __init__(self) -> None:
        self._kept: dict[str, KeptMemory] = {}
        self._catalogue: MemoryCatalogue | None = None

    def describe(self) -> str:
        return "stores in memory"

    def names(self) -> list[str]:
        return list(self._kept)

    def has_catalogue(self) -> bool:
        return self._catalogue is not None

    def pipelines(self) -> list[LeasedRow]:
        return []

    def jobs(self) -> list[LeasedRow]:
        return []

    def take_in(self, pipelines: Sequence[LeasedRow], jobs: Sequence[LeasedRow]) -> None:
        """Do nothing: they are files of the data directory."""

    def refuse_other_builds(self) -> None:
        """Nothing to do: memory has no other builds."""

    def check_start(self) -> None:
        """Nothing to do: every process starts a new namespace."""

    def open_catalogue(self, *, now_ms: int, new_id: str) -> MemoryCatalogue:
        if self._catalogue is None:
            self._catalogue = MemoryCatalogue(now_ms, new_id)
        return self._catalogue

    def open_store(self, name: str) -> KeptMemory:
        return self._kept.setdefault(name, KeptMemory(name))

    def open_bulk(self, name: str) -> BulkSource:
        raise StoreError(f"{name} is in the memory of its broker: no other process can read it")

    def held(self) -> AbstractContextManager[None]:
        return nullcontext()

    def unserved_snapshot(self, name: str) -> Snapshot:
        raise _nothing(name)

    def mark(self) -> Mark | None:
        return None

    def put_mark(self, mark: Mark | None) -> None:
        raise _nothing("the namespace")

    def takes_damage(self) -> bool:
        return False

    def check_empty(self, move_id: str) -> None:
        raise StoreError("nothing can be moved into the memory of a process")

    def receive(self, mark: Mark) -> None:
        self.check_empty(mark.move_id)

    def has_received(self, name: str) -> bool:
        return False

    def restore(self, name: str, copy: Path, watch: Watch) -> None:
        raise StoreError(f"{name} is in memory and cannot be restored")

    def finish(self, mark: Mark) -> None:
        self.check_empty(mark.move_id)

    def tally(self, name: str, progress: Progress) -> StoreTally:
        raise _nothing(name)

    def size_bytes(self, name: str) -> int:
        return 0

    def check(self, name: str, progress: Progress) -> StoreReport:
        raise _nothing(name)

    def repair(self, name: str, progress: Progress) -> Repaired:
        raise _nothing(name)

    def check_catalogue(self) -> CatalogueReport:
        raise _nothing(CATALOGUE_NAME)

    def repair_catalogue(self, *, now_ms: int, new_id: str) -> str:
        raise _nothing(CATALOGUE_NAME)

    def adopt(self, *, now_ms: int, new_id: str) -> list[str]:
        raise _nothing(CATALOGUE_NAME)


def _nothing(name: str) -> StoreError:
    return StoreError(f"{name} is in memory and cannot be examined or copied")


def stores(site: Site) -> MemoryStores:
    return MemoryStores()
