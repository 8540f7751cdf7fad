"""What a kind of store offers to the application: one package with one entry point.

`app/server/store_kinds.py` names the module of each kind. That module has a function `stores(site)
-> Stores`; nothing else of the package is known outside it
(docs/adr/0063-one-schema-and-stores-as-packages.md).

A store has the name of its broker (`broker_name`), the catalogue is `CATALOGUE_NAME`. Every
function may raise StoreError.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, final

from shardbus.stores.base.backup import Copyable, Snapshot, Watch
from shardbus.stores.base.bulk import BulkSource
from shardbus.stores.base.catalogue import KeptCatalogue
from shardbus.stores.base.check import CatalogueReport, Progress, Repaired, StoreReport
from shardbus.stores.base.leased import LeasedRow
from shardbus.stores.base.move_mark import Mark
from shardbus.stores.base.store import MessageStore
from shardbus.stores.base.tally import StoreTally

Durability = Literal["full", "relaxed"]


@final
@dataclass(frozen=True, slots=True)
class Site:
    """Where and how a namespace is stored: `address` is the part of the setting after the kind."""

    data_dir: Path
    address: str = ""
    durability: Durability = "full"
    reserve_bytes: int = 0


class KeptStore(Copyable, Protocol):
    """The store of one broker, in the process that writes it. Also a `broker.Membership`.

    `store` raises StoreError until it belongs to a namespace; a failed `join` is tried again
    whenever the store is needed. A store that cannot be written is opened read-only.
    """

    @property
    def name(self) -> str: ...

    @property
    def store(self) -> MessageStore: ...

    @property
    def namespace_id(self) -> str:
        """The id of its namespace; empty as long as it belongs to none."""
        ...

    def join(self, namespace_id: str, *, is_empty_expected: bool) -> None:
        """Join a namespace; create the store if there is none and an empty one is expected."""
        ...

    def open_own(self) -> None:
        """Open the store for the namespace to which it belongs, if any, perhaps read-only."""
        ...

    def open_if_only_to_read(self) -> None:
        """Open the store; StoreError when it cannot even be read."""
        ...


class Stores(Protocol):
    """The catalogue of a namespace and the stores of its brokers.

    The methods that examine, repair or copy are called while no process serves the namespace.
    """

    def describe(self) -> str:
        """A description of the kind and place of the stores, for texts."""
        ...

    def names(self) -> list[str]:
        """The existing stores, in the order of their brokers."""
        ...

    def has_catalogue(self) -> bool: ...

    def pipelines(self) -> list[LeasedRow]:
        """The pipelines of a cluster; those of a single server are files of its data directory."""
        ...

    def jobs(self) -> list[LeasedRow]:
        """The jobs on messages of a cluster; the same holds for them."""
        ...

    def take_in(self, pipelines: Sequence[LeasedRow], jobs: Sequence[LeasedRow]) -> None:
        """Add pipelines and jobs that nobody runs to a cluster of several databases, unless they
        are there; those of a single server are files of its data directory.
        """
        ...

    def refuse_other_builds(self) -> None:
        """Raises OtherBuild when this build cannot use the files; nothing is changed."""
        ...

    def check_start(self) -> None:
        """Raises StoreError when `open_catalogue` would fail because the catalogue is lost."""
        ...

    def open_catalogue(self, *, now_ms: int, new_id: str) -> KeptCatalogue:
        """The catalogue; created if there is none and no store holds anything.

        In this case `now_ms` is the creation time of the namespace, and `new_id` its id unless the
        stores have one already.
        """
        ...

    def open_store(self, name: str) -> KeptStore:
        """The store of a broker, not opened yet."""
        ...

    def open_bulk(self, name: str) -> BulkSource:
        """The store of a broker, for reading beside its broker."""
        ...

    def held(self) -> AbstractContextManager[None]:
        """Keeps all other processes from writing any of the stores."""
        ...

    def unserved_snapshot(self, name: str) -> Snapshot:
        """A snapshot of an unserved store or catalogue; nothing is changed."""
        ...

    def mark(self) -> Mark | None:
        """The mark that a move left here, if any."""
        ...

    def put_mark(self, mark: Mark | None) -> None:
        """Mark or unmark what is held; what is marked is served only after its arrival."""
        ...

    def takes_damage(self) -> bool:
        """Whether `restore` takes damaged copies as they are."""
        ...

    def check_empty(self, move_id: str) -> None:
        """Raises StoreError unless these stores are empty, or partly filled by this move."""
        ...

    def receive(self, mark: Mark) -> None:
        """Begin to fill these stores, which must be empty, or continue with the same move."""
        ...

    def has_received(self, name: str) -> bool:
        """Whether a store or the catalogue is complete; only after `receive`."""
        ...

    def restore(self, name: str, copy: Path, watch: Watch) -> None:
        """Turn a copy in the data directory into a store or the catalogue; the copy is moved.

        When it is interrupted, a second call with the same copy continues.
        """
        ...

    def finish(self, mark: Mark) -> None:
        """Everything has been received: from now on the stores may be served."""
        ...

    def tally(self, name: str, progress: Progress) -> StoreTally:
        """Counts and digests of everything in a store that is held; nothing is changed."""
        ...

    def size_bytes(self, name: str) -> int:
        """Approximately how much there is to examine; 0 for a store that does not exist."""
        ...

    def check(self, name: str, progress: Progress) -> StoreReport:
        """Examine a store; nothing is changed."""
        ...

    def repair(self, name: str, progress: Progress) -> Repaired:
        """Keep the sound part of a damaged store; the old file is kept, too."""
        ...

    def check_catalogue(self) -> CatalogueReport: ...

    def repair_catalogue(self, *, now_ms: int, new_id: str) -> str:
        """Keep the sound part of the catalogue; returns the new name of the old file, if it was
        damaged.

        `new_id` is for a namespace whose id is lost from the catalogue and the stores.
        """
        ...

    def adopt(self, *, now_ms: int, new_id: str) -> list[str]:
        """Create what is lost, and let all stores join the namespace; returns a description of each
        step.

        Fragments that the catalogue does not know are kept as orphans.
        """
        ...
