"""The databases of a cluster: creates the cluster, recognises its databases, and refuses others.

The cluster has the id of its namespace. Slots have one numbering over all stores: the slots of
store `i` of `n` are `i`, `i + n`, `i + 2n` and so on. The fragments of an entity have consecutive
slots, so they are spread over the stores.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, final

from shardbus.stores.base.cluster import Making, SeenStore, SeenStores
from shardbus.stores.base.lease import SlotLease
from shardbus.stores.base.move_mark import ARRIVING
from shardbus.stores.base.package import Durability
from shardbus.stores.base.store import StoreError
from shardbus.stores.postgres.catalogue_sight import PostgresCatalogueSight
from shardbus.stores.postgres.group import GroupCommit
from shardbus.stores.postgres.kept_lease import KeptLease
from shardbus.stores.postgres.leased import PostgresDocuments
from shardbus.stores.postgres.leases import PostgresLeases
from shardbus.stores.postgres.link import Address, Link
from shardbus.stores.postgres.lookout import PostgresLookout
from shardbus.stores.postgres.move_mark import mark_in
from shardbus.stores.postgres.schema import examine, prepare, settings_of
from shardbus.stores.postgres.shared_catalogue import SharedCatalogue
from shardbus.stores.postgres.slots import common_id, holdings

_ROW: Final = "SELECT cluster_id, store, stores, slots, timeline, secret FROM cluster"
# The slots of an empty namespace of a single server may have numbers of other stores.
_CLAIM: Final = """
WITH claimed AS (
    INSERT INTO cluster VALUES (
        true, $1, $2, $3, $4,
        ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint, $5
    ) ON CONFLICT DO NOTHING RETURNING store, stores, slots
)
DELETE FROM slot s USING claimed c
WHERE (s.slot % c.stores <> c.store OR s.slot >= c.slots * c.stores)
    AND NOT EXISTS (SELECT FROM fragment f WHERE f.slot = s.slot)
"""
_HAS_FRAGMENTS: Final = "SELECT EXISTS (SELECT FROM fragment)"
_MAKE_SLOTS: Final = """
INSERT INTO slot SELECT n, 0, 0, '', $3, 0
FROM generate_series($1::integer, $2::integer, $4::integer) AS n ON CONFLICT DO NOTHING
"""
_NAMESPACE: Final = "SELECT namespace_id FROM namespace"
_IDENTITY: Final = """
SELECT (pg_control_system()).system_identifier, oid FROM pg_database
WHERE datname = current_database()
"""
# The row of a database that a move or a restore has filled, like the one that the first node of a
# new cluster writes.
FILLED_SLOTS_MIN: Final = 16
SECRET_BYTES: Final = 32


@final
@dataclass(frozen=True, slots=True)
class ClusterStore:
    """One database of a cluster, from its row. A `base_cluster.SharedStore`."""

    address: Address
    cluster_id: str
    index: int
    stores: int
    slots: int
    timeline: int
    secret: bytes
    # The connections over which slots commit together, by durability.
    groups: dict[Durability, GroupCommit] = field(default_factory=dict, repr=False, compare=False)

    @property
    def shown(self) -> str:
        return self.address.shown

    def leases(self, name: str, about: str) -> PostgresLeases:
        return PostgresLeases(self.address, name, about)

    def lookout(self, name: str) -> PostgresLookout:
        return PostgresLookout(self.address, name)

    def slot(self, lease: SlotLease, durability: Durability) -> KeptLease:
        group = self.groups.get(durability)
        if group is None:
            is_relaxed = durability == "relaxed"
            settings = settings_of("broker commits", is_relaxed=is_relaxed, is_leased=True)
            group = self.groups[durability] = GroupCommit(Link(self.address, settings))
        return KeptLease(self.address, self.cluster_id, lease, durability, group)


@final
class Cluster:
    """A `base_cluster.SharedStores`."""

    def __init__(self, stores: Sequence[ClusterStore]) -> None:
        self.stores = sorted(stores, key=lambda store: store.index)
        self.cluster_id = self.stores[0].cluster_id
        self.secret = self.stores[0].secret
        self.slot_count = sum(store.slots for store in self.stores)

    def store_of(self, slot: int) -> ClusterStore:
        return self.stores[slot % len(self.stores)]

    def open_catalogue(self, now_ms: int) -> SharedCatalogue:
        address = self.stores[0].address
        return SharedCatalogue(address, now_ms=now_ms, namespace_id=self.cluster_id)

    def catalogue_sight(self, name: str) -> PostgresCatalogueSight:
        return PostgresCatalogueSight(self.stores[0].address, name)

    def documents(self, name: str) -> PostgresDocuments:
        return PostgresDocuments(self.stores[0].address, name)


def open_cluster(addresses: Sequence[Address], making: Making) -> Cluster:
    """The cluster of these databases, which is created if they belong to none.

    StoreError, and nothing is changed, if they cannot form one cluster.
    """
    durability = making.durability
    for address in addresses:
        _check_before(address, durability)
    found = [_row(address) for address in addresses]
    _check_alike(addresses, found)
    for address in addresses:
        prepare(address, is_full=durability == "full")
    known = [row for row in found if row is not None]
    cluster_id = known[0].cluster_id if known else _former_id(addresses, making.new_id)
    if known:
        # All databases of a cluster have the same number of slots.
        making = replace(making, slots=known[0].slots)
    elif len(addresses) == 1:
        # A namespace that was moved here may have fragments in more slots than a new cluster has.
        making = replace(making, slots=max(making.slots, 1 + _last_slot(addresses[0])))
    free = _free_indexes(addresses, known)
    for address, row in zip(addresses, found, strict=True):
        if row is None:
            _claim(address, cluster_id, free.pop(0), len(addresses), making)
            # Another node may have been first, with its own id and number of slots, which the other
            # databases get too.
            claimed = _row(address)
            if claimed is not None:
                cluster_id, making = claimed.cluster_id, replace(making, slots=claimed.slots)
    rows = [_row(address) for address in addresses]
    _check_alike(addresses, rows)
    opened = [row for row in rows if row is not None]
    for store in opened:
        _make_slots(store)
    return Cluster(opened)


def find_cluster(addresses: Sequence[Address]) -> Cluster:
    """The cluster of these databases; StoreError if they are of none. Nothing is changed."""
    rows = [_row(address) for address in addresses]
    _check_alike(addresses, rows)
    opened = [row for row in rows if row is not None]
    if len(opened) < len(addresses):
        raise StoreError(_no_cluster(addresses))
    return Cluster(opened)


def arranged(addresses: Sequence[Address]) -> list[Address]:
    """These databases in the order of their stores; StoreError unless they are a complete cluster,
    one database of a single server, or a complete set that is being filled.
    """
    rows = [_row(address) for address in addresses]
    _check_alike(addresses, rows)
    known = [row for row in rows if row is not None]
    if known:
        for address, row in zip(addresses, rows, strict=True):
            if row is None and not _is_arriving(address):
                raise StoreError(
                    f"{address.shown} is no database of the cluster {known[0].cluster_id}. Nothing "
                    "was changed. Name the databases of one cluster"
                )
    elif len(addresses) > 1:
        _check_distinct(addresses)
        for address in addresses:
            if not _is_arriving(address) and holdings(address):
                raise StoreError(
                    f"{address.shown} is the database of a single server, and {len(addresses)} are "
                    "named. Nothing was changed. Name it alone"
                )
    free = iter(_free_indexes(addresses, known))
    indexes = [next(free) if row is None else row.index for row in rows]
    return [address for _, address in sorted(zip(indexes, addresses, strict=True), key=_index)]


def claim_filled(addresses: Sequence[Address]) -> None:
    """Make filled databases, which `arranged` returned, a cluster that has all of their slots."""
    link = Link(addresses[0], settings_of("look", is_reader=True))
    try:
        cluster_id = str(link.fetch(_NAMESPACE)[0][0])
    finally:
        link.close()
    slots = 1 + max(_last_slot(address) for address in addresses)
    each = max(FILLED_SLOTS_MIN, -(-slots // len(addresses)))
    making = Making("full", each, cluster_id, secrets.token_bytes(SECRET_BYTES))
    for index, address in enumerate(addresses):
        _claim(address, cluster_id, index, len(addresses), making)


def _last_slot(address: Address) -> int:
    """The highest number of a slot; -1 if there is none."""
    return max((held.slot for held in holdings(address)), default=-1)


def _index(found: tuple[int, Address]) -> int:
    return found[0]


def _is_arriving(address: Address) -> bool:
    """Whether a move, or a restore, fills a database."""
    link = Link(address, settings_of("look", is_reader=True))
    try:
        mark = mark_in(link)
        return mark is not None and mark.state == ARRIVING
    finally:
        link.close()


def _check_distinct(addresses: Sequence[Address]) -> None:
    """StoreError if two of them are the same database: without rows of a cluster they cannot be
    distinguished otherwise.
    """
    seen: dict[tuple[object, ...], Address] = {}
    for address in addresses:
        link = Link(address, settings_of("look", is_reader=True))
        try:
            identity = tuple(link.fetch(_IDENTITY)[0])
        finally:
            link.close()
        if identity in seen:
            raise StoreError(
                f"{address.shown} and {seen[identity].shown} are the same database. Nothing was "
                "changed. Name each database once"
            )
        seen[identity] = address


def _no_cluster(addresses: Sequence[Address]) -> str:
    shown = ", ".join(address.shown for address in addresses)
    return f"{shown}: there is no cluster of Shardbus yet; start `shardbus node`"


def look_at(addresses: Sequence[Address], name: str) -> SeenStores:
    """The databases of a cluster, also if some of them cannot be reached. Nothing is changed.

    StoreError if none can be reached, or if they are not those of one cluster.
    """
    rows: list[ClusterStore | None] = []
    problems: dict[str, StoreError] = {}
    for address in addresses:
        try:
            rows.append(_row(address))
        except StoreError as error:
            problems[address.shown] = error
            rows.append(None)
    known = [row for row in rows if row is not None]
    if not known and problems:
        raise next(iter(problems.values()))
    _check_alike(addresses, rows)
    if len(known) + len(problems) < len(addresses):
        raise StoreError(_no_cluster(addresses))
    unseen = [SeenStore(shown, None, str(error)) for shown, error in problems.items()]
    seen = {row.index: SeenStore(row.shown, row.lookout(name), "") for row in known}
    # The index of a database that cannot be reached is unknown: any free one is shown.
    stores = [seen.get(index) or unseen.pop(0) for index in range(len(addresses))]
    return SeenStores(known[0].cluster_id, stores)


def refuse_cluster(address: Address) -> None:
    """StoreError if a database belongs to a cluster: only its nodes use it."""
    row = _row(address)
    if row is not None:
        raise StoreError(
            f"{address.shown} belongs to the cluster {row.cluster_id}. Nothing was changed. Use "
            "`shardbus node --store ...` to serve it, or name another database"
        )


def _check_before(address: Address, durability: Durability) -> None:
    link = Link(address, settings_of("look", is_reader=True))
    try:
        examine(link, is_full=durability == "full")
    finally:
        link.close()


def _row(address: Address) -> ClusterStore | None:
    link = Link(address, settings_of("look", is_reader=True))
    try:
        if examine(link, is_full=False) < 2:
            return None
        found = link.row(_ROW)
        return None if found is None else ClusterStore(address, *found)
    finally:
        link.close()


def _check_alike(addresses: Sequence[Address], rows: Sequence[ClusterStore | None]) -> None:
    known = [row for row in rows if row is not None]
    for row in known:
        if row.cluster_id != known[0].cluster_id:
            raise StoreError(
                f"{row.shown} belongs to the cluster {row.cluster_id}, and {known[0].shown} to "
                f"{known[0].cluster_id}. Nothing was changed. Name the databases of one cluster"
            )
    indexes: dict[int, Address] = {}
    for row in known:
        address = row.address
        if row.stores != len(addresses):
            raise StoreError(
                f"{address.shown} belongs to a cluster of {row.stores} databases, and "
                f"{len(addresses)} are named. Nothing was changed. Name each of them with --store"
            )
        if row.index in indexes:
            raise StoreError(
                f"{address.shown} and {indexes[row.index].shown} are both store {row.index} of the "
                "cluster: the same database, or a copy of it. Nothing was changed. Name each "
                "database once"
            )
        indexes[row.index] = address


def _free_indexes(addresses: Sequence[Address], known: Sequence[ClusterStore]) -> list[int]:
    taken = {store.index for store in known}
    return [index for index in range(len(addresses)) if index not in taken]


def _former_id(addresses: Sequence[Address], new_id: str) -> str:
    """The id of the namespace that a single server kept in the first database, if one did."""
    for address in addresses[1:]:
        if _has_fragments(address):
            raise StoreError(
                f"{address.shown} holds messages of a single server. Nothing was changed. Name it "
                "first, and name only empty databases after it"
            )
    if len(addresses) > 1 and _has_fragments(addresses[0]):
        raise StoreError(
            f"{addresses[0].shown} holds messages of a single server, and becomes the only "
            "database of a cluster. Nothing was changed. Name it alone"
        )
    link = Link(addresses[0], settings_of("look", is_reader=True))
    try:
        row = link.row(_NAMESPACE)
        return str(row[0]) if row is not None else common_id(holdings(addresses[0])) or new_id
    finally:
        link.close()


def _has_fragments(address: Address) -> bool:
    """Whether a database has fragments, also those that are deleted and not swept yet."""
    link = Link(address, settings_of("look", is_reader=True))
    try:
        return bool(link.fetch(_HAS_FRAGMENTS)[0][0])
    finally:
        link.close()


def _claim(address: Address, cluster_id: str, index: int, stores: int, making: Making) -> None:
    link = Link(address, settings_of("schema"))
    try:
        link.fetch(_CLAIM, cluster_id, index, stores, making.slots, making.new_secret)
    finally:
        link.close()


def _make_slots(store: ClusterStore) -> None:
    link = Link(store.address, settings_of("schema"))
    try:
        last = store.index + (store.slots - 1) * store.stores
        link.fetch(_MAKE_SLOTS, store.index, last, store.cluster_id, store.stores)
        sql = "UPDATE slot SET namespace_id = $1 WHERE namespace_id = ''"
        link.fetch(sql, store.cluster_id)
        foreign = link.row("SELECT slot FROM slot WHERE namespace_id <> $1", store.cluster_id)
        if foreign is not None:
            raise StoreError(
                f"slot {foreign[0]} of {store.address.shown} belongs to another namespace"
            )
    finally:
        link.close()
