"""Databases that several brokers share, each serving the slots that it leases.

The module of a kind of store that can be shared has a function `cluster(addresses, making) ->
SharedStores`, beside `stores` (`base/package.py`), and `look(addresses, name) -> SeenStores`, which
makes and changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, final

from shardbus.core.namespace.entity import Entity
from shardbus.stores.base.catalogue import KeptCatalogue
from shardbus.stores.base.lease import LeaseTable, SlotLease
from shardbus.stores.base.leased import LeasedDocuments
from shardbus.stores.base.package import Durability, KeptStore
from shardbus.stores.base.sight import Lookout


@final
@dataclass(frozen=True, slots=True)
class Making:
    """The properties of a cluster that is to be created; `slots` is the number in each store."""

    durability: Durability
    slots: int
    new_id: str
    new_secret: bytes


class SharedCatalogue(KeptCatalogue, Protocol):
    """A catalogue that all gateways have open, and that one at a time changes. Blocking.

    `known_version` is the version that was read or written last.
    """

    known_version: int

    def take_turn(self) -> tuple[int, int] | None:
        """The number of the turn and the version of the namespace; None: another gateway has it."""
        ...

    def end_turn(self) -> None: ...


@final
@dataclass(frozen=True, slots=True)
class SettledCatalogue:
    """The entities of a namespace at a moment at which no gateway was changing it.

    `turn` is the number of the last turn. An entity that has not changed is the same object as in
    the answer before.
    """

    version: int
    turn: int
    entities: Sequence[Entity]


class CatalogueSight(Protocol):
    """The catalogue for a broker, which never changes it. Blocking; may raise StoreError."""

    def glance(self, gateway_age_ms: int) -> tuple[int, int]:
        """The version of the namespace, 0 if there is none yet, and how many gateways have reported
        in that time.
        """
        ...

    def hold(self) -> SettledCatalogue | None:
        """Read it, and let no gateway change it until `let_go`; None while one is changing it.

        A broker that holds it for too long loses it: then `let_go` raises StoreError.
        """
        ...

    def let_go(self) -> None: ...

    def close(self) -> None: ...


class SharedStore(Protocol):
    """One database of a cluster. Every call that opens something opens a new one."""

    @property
    def index(self) -> int: ...

    @property
    def cluster_id(self) -> str: ...

    @property
    def timeline(self) -> int:
        """The last timeline for which a broker has waited until all earlier leases had ended."""
        ...

    @property
    def shown(self) -> str:
        """The address without secrets, for texts."""
        ...

    def leases(self, name: str, about: str) -> LeaseTable: ...

    def lookout(self, name: str) -> Lookout: ...

    def slot(self, lease: SlotLease, durability: Durability) -> KeptStore: ...


@final
@dataclass(frozen=True, slots=True)
class SeenStore:
    """A database of a cluster for people; `problem` says why there is no `lookout`."""

    shown: str
    lookout: Lookout | None
    problem: str


@final
@dataclass(frozen=True, slots=True)
class SeenStores:
    """All databases of a cluster in the order of their numbers, as far as they can be reached."""

    cluster_id: str
    stores: Sequence[SeenStore]


class SharedStores(Protocol):
    """All databases of a cluster, in the order of their numbers; the first has the catalogue.

    Slots have one numbering over all of them: slot `s` is in store `s % len(stores)`.
    """

    @property
    def stores(self) -> Sequence[SharedStore]: ...

    @property
    def cluster_id(self) -> str: ...

    @property
    def secret(self) -> bytes:
        """The secret that only the nodes of the cluster know."""
        ...

    @property
    def slot_count(self) -> int: ...

    def open_catalogue(self, now_ms: int) -> SharedCatalogue: ...

    def catalogue_sight(self, name: str) -> CatalogueSight: ...

    def documents(self, name: str) -> LeasedDocuments: ...
