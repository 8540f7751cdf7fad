"""What a kind of store offers to the application: one package with one way in.

`app/server/store_kinds.py` names the module of each kind. It has a function
`stores(site) -> Stores`; nothing else of the package is known outside it
(docs/adr/0063-one-schema-and-stores-as-packages.md).

A store is called by the name of its broker (`broker_name`), the catalogue `CATALOGUE_NAME`.
Everything may raise StoreError.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, final

from shardbus.stores.base.backup import Copyable, Snapshot
from shardbus.stores.base.bulk import BulkSource
from shardbus.stores.base.catalogue import KeptCatalogue
from shardbus.stores.base.check import CatalogueReport, Progress, Repaired, StoreReport
from shardbus.stores.base.store import MessageStore

Durability = Literal["full", "relaxed"]


@final
@dataclass(frozen=True, slots=True)
class Site:
    """Where a namespace is kept, and how: `address` is what the setting says after the kind."""

    data_dir: Path
    address: str = ""
    durability: Durability = "full"
    reserve_bytes: int = 0


class KeptStore(Copyable, Protocol):
    """The store of one broker, in the process that writes it. Also a `broker.Membership`.

    `store` raises StoreError until it belongs to a namespace; what `join` was asked for is tried
    again whenever the store is needed. A store that cannot be written is read.
    """

    @property
    def name(self) -> str: ...

    @property
    def store(self) -> MessageStore: ...

    @property
    def namespace_id(self) -> str:
        """Empty as long as it belongs to none."""
        ...

    def join(self, namespace_id: str, *, is_empty_expected: bool) -> None:
        """Belong to a namespace; make the store if there is none and an empty one is expected."""
        ...

    def open_own(self) -> None:
        """Open it for the namespace to which it belongs, if it does; it may only be readable."""
        ...

    def open_if_only_to_read(self) -> None:
        """Open it; StoreError when it cannot be read either."""
        ...


class Stores(Protocol):
    """The catalogue of a namespace and the stores of its brokers.

    What examines, repairs or copies is called while nobody serves the namespace.
    """

    def describe(self) -> str:
        """What and where they are, for people."""
        ...

    def names(self) -> list[str]:
        """The stores that are there, in the order of their brokers."""
        ...

    def has_catalogue(self) -> bool: ...

    def refuse_other_builds(self) -> None:
        """OtherBuild when this build cannot use what is there; nothing is changed."""
        ...

    def check_start(self) -> None:
        """StoreError when `open_catalogue` would fail because the catalogue is lost."""
        ...

    def open_catalogue(self, *, now_ms: int, new_id: str) -> KeptCatalogue:
        """The catalogue, made if there is none and no store holds anything.

        Then `now_ms` is when the namespace begins, and `new_id` is its id unless the stores have
        one already.
        """
        ...

    def open_store(self, name: str) -> KeptStore:
        """The store of a broker, not opened yet."""
        ...

    def open_bulk(self, name: str) -> BulkSource:
        """The store of a broker, to be read beside its broker."""
        ...

    def held(self) -> AbstractContextManager[None]:
        """Keeps everybody else from writing any of the stores."""
        ...

    def unserved_snapshot(self, name: str) -> Snapshot:
        """A store or the catalogue as it is; nothing is changed."""
        ...

    def restore(self, name: str, copy: Path) -> None:
        """Make a store or the catalogue of a copy that is in the data directory; it is used up."""
        ...

    def size_bytes(self, name: str) -> int:
        """About how much there is to examine; 0 for a store that is not there."""
        ...

    def check(self, name: str, progress: Progress) -> StoreReport:
        """Examine a store; nothing is changed."""
        ...

    def repair(self, name: str, progress: Progress) -> Repaired:
        """Keep what is sound of a store that is damaged; what it was is kept, too."""
        ...

    def check_catalogue(self) -> CatalogueReport: ...

    def repair_catalogue(self, *, now_ms: int, new_id: str) -> str:
        """Keep what is sound of the catalogue; what the old one is called now, if it was damaged.

        `new_id` is for a namespace that has lost its id, also from its stores.
        """
        ...

    def adopt(self, *, now_ms: int, new_id: str) -> list[str]:
        """Make what is lost, and let all stores belong to the namespace; what was done, in words.

        What the catalogue does not know is kept, as what nobody owns.
        """
        ...
