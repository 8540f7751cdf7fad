"""A PostgreSQL database: the entry point of this kind of store."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import final

from shardbus.stores.base.backup import CATALOGUE_NAME, Snapshot, Watch, broker_name, copy_name
from shardbus.stores.base.check import CatalogueReport, Damage, Progress, Repaired, StoreReport
from shardbus.stores.base.cluster import Making, SeenStores
from shardbus.stores.base.leased import LeasedRow
from shardbus.stores.base.move_mark import Mark, common_mark
from shardbus.stores.base.package import Site
from shardbus.stores.base.store import StoreError
from shardbus.stores.base.tally import StoreTally
from shardbus.stores.postgres.bulk import PostgresBulk
from shardbus.stores.postgres.catalogue import PostgresCatalogue, has_namespace
from shardbus.stores.postgres.cluster import (
    Cluster,
    arranged,
    claim_filled,
    find_cluster,
    look_at,
    open_cluster,
    refuse_cluster,
)
from shardbus.stores.postgres.copy import (
    CatalogueSnapshot,
    PostgresSnapshot,
    catalogue_bytes,
    slot_bytes,
)
from shardbus.stores.postgres.leased import JOB, PIPELINE, PostgresTable
from shardbus.stores.postgres.link import Address, Link
from shardbus.stores.postgres.load import load_catalogue, load_store
from shardbus.stores.postgres.move_mark import (
    finish,
    mark_in,
    put_mark,
    receive,
    refuse_filled,
    refuse_moved,
)
from shardbus.stores.postgres.schema import examine, prepare, settings_of
from shardbus.stores.postgres.serving import keep_unserved
from shardbus.stores.postgres.slots import Holding, KeptSlot, common_id, holdings, slot_of
from shardbus.stores.sqlite.examine.catalogue_repair import check_catalogue
from shardbus.stores.sqlite.examine.check import check_store
from shardbus.stores.sqlite.examine.tally import tally_store

RESTORE = "restore a copy of the database"
# The version of the schema that has pipelines.
PIPELINES_SINCE = 3
JOBS_SINCE = 4


@final
class PostgresStores:
    """A `base_package.Stores`: databases with a slot for each broker, and the catalogue.

    A single server has one database. Several are those of a cluster, or will be.
    """

    def __init__(self, site: Site) -> None:
        self._site = site
        self._addresses = [Address(url) for url in f"postgresql:{site.address}".split()]
        self._address = self._addresses[0]
        # Known after the databases were examined; filling them does not change their order.
        self._arranged: list[Address] = []

    def describe(self) -> str:
        shown = ", ".join(address.shown for address in self._addresses)
        return f"the database {shown}" if len(self._addresses) == 1 else f"the databases {shown}"

    def names(self) -> list[str]:
        addresses = self._all()
        slots = [
            held.slot
            for index, address in enumerate(addresses)
            for held in holdings(address)
            if held.slot % len(addresses) == index
        ]
        return [broker_name(slot) for slot in sorted(slots)]

    def has_catalogue(self) -> bool:
        with self._reading(self._all()[0]) as link:
            return examine(link, is_full=False) > 0 and has_namespace(link)

    def pipelines(self) -> list[LeasedRow]:
        return self._documents(PIPELINE, PIPELINES_SINCE)

    def jobs(self) -> list[LeasedRow]:
        return self._documents(JOB, JOBS_SINCE)

    def _documents(self, table: str, since: int) -> list[LeasedRow]:
        with self._reading(self._all()[0]) as link:
            if examine(link, is_full=False) < since:
                return []
            return PostgresTable(link, table).rows()

    def take_in(self, pipelines: Sequence[LeasedRow], jobs: Sequence[LeasedRow]) -> None:
        addresses = self._all()
        if len(addresses) < 2:
            return
        with self._linked(addresses[0], "move") as link:
            for table, rows in ((PIPELINE, pipelines), (JOB, jobs)):
                for row in rows:
                    PostgresTable(link, table).add(row.name, row.document, row.intent)

    def refuse_other_builds(self) -> None:
        for address in self._addresses:
            with self._reading(address) as link:
                examine(link, is_full=False)

    def check_start(self) -> None:
        with self._reading(self._address) as link:
            examine(link, is_full=self._site.durability == "full")
            refuse_moved(link)
        self._refuse_cluster()
        self._id_for_catalogue("")

    def open_catalogue(self, *, now_ms: int, new_id: str) -> PostgresCatalogue:
        self._refuse_cluster()
        prepare(self._address, is_full=self._site.durability == "full")
        namespace_id = self._id_for_catalogue(new_id)
        return PostgresCatalogue(self._address, now_ms=now_ms, namespace_id=namespace_id)

    def open_store(self, name: str) -> KeptSlot:
        self._refuse_cluster()
        return KeptSlot(self._address, name, self._site.durability)

    def open_bulk(self, name: str) -> PostgresBulk:
        slot = slot_of(name)
        if len(self._addresses) > 1:
            return PostgresBulk(find_cluster(self._addresses).store_of(slot).address, slot)
        return PostgresBulk(self._address, slot)

    @contextmanager
    def held(self) -> Iterator[None]:
        with ExitStack() as links:
            # Always in the same order, so that two commands do not wait for each other's half.
            for address in self._all():
                keep_unserved(links.enter_context(self._linked(address, "hold")))
            yield

    def unserved_snapshot(self, name: str) -> Snapshot:
        address = self._address_of(name)
        if name == CATALOGUE_NAME:
            return CatalogueSnapshot(address)
        return PostgresSnapshot(address, slot_of(name))

    def mark(self) -> Mark | None:
        marks: list[Mark | None] = []
        for address in self._all():
            with self._linked(address, "look") as link:
                marks.append(mark_in(link))
        return common_mark(marks, self.describe())

    def put_mark(self, mark: Mark | None) -> None:
        for address in self._all():
            with self._linked(address, "move") as link:
                put_mark(link, mark, is_fencing=mark is not None)

    def takes_damage(self) -> bool:
        return False

    def check_empty(self, move_id: str) -> None:
        for address in self._all():
            with self._linked(address, "look") as link:
                if examine(link, is_full=False) > 0:
                    refuse_filled(link, move_id)

    def receive(self, mark: Mark) -> None:
        self.check_empty(mark.move_id)
        for address in self._all():
            prepare(address, is_full=False, is_arriving=True)
            with self._linked(address, "move") as link:
                receive(link, mark)

    def has_received(self, name: str) -> bool:
        if name == CATALOGUE_NAME:
            return self.has_catalogue()
        return name in self.names()

    def restore(self, name: str, copy: Path, watch: Watch) -> None:
        with self._linked(self._address_of(name), "move") as link:
            if name == CATALOGUE_NAME:
                load_catalogue(link, copy)
            else:
                load_store(link, slot_of(name), copy, watch)
        copy.unlink()

    def finish(self, mark: Mark) -> None:
        addresses = self._all()
        if len(addresses) > 1:
            # A single server has one database: several are a cluster, which must know its order.
            claim_filled(addresses)
        for address in addresses:
            with self._linked(address, "move") as link:
                finish(link, mark)

    def tally(self, name: str, progress: Progress) -> StoreTally:
        """Of a copy, which takes as much room in the data directory."""
        with self._copy(name) as path:
            return tally_store(path, progress)

    def size_bytes(self, name: str) -> int:
        address = self._address_of(name)
        if name == CATALOGUE_NAME:
            return catalogue_bytes(address)
        return slot_bytes(address, slot_of(name))

    def check(self, name: str, progress: Progress) -> StoreReport:
        """Its records are examined in a copy, which takes as much room in the data directory."""
        with self.held(), self._copy(name) as path:
            report = check_store(path, progress)
        report.file = self._called(name)
        for damage in report.damages:
            self._readdress(damage, name)
        return report

    def repair(self, name: str, progress: Progress) -> Repaired:
        report = self.check(name, progress)
        if report.damages:
            raise StoreError(
                f"{self._called(name)} is damaged and cannot be repaired in place: {RESTORE}, or "
                "continue without the damaged records, which are not served; all others are"
            )
        return Repaired(report, "", report.messages, report.set_aside)

    def check_catalogue(self) -> CatalogueReport:
        if not self.has_catalogue():
            report = CatalogueReport(self._called(CATALOGUE_NAME))
            report.add("there is no catalogue", "no entity is known", RESTORE)
            return report
        with self._copy(CATALOGUE_NAME) as path:
            report = check_catalogue(path)
        report.file = self._called(CATALOGUE_NAME)
        for damage in report.damages:
            self._readdress(damage, CATALOGUE_NAME)
        return report

    def repair_catalogue(self, *, now_ms: int, new_id: str) -> str:
        if self.check_catalogue().damages:
            raise StoreError(f"{self._called(CATALOGUE_NAME)} is damaged: {RESTORE}")
        return ""

    def adopt(self, *, now_ms: int, new_id: str) -> list[str]:
        raise StoreError(f"nothing is adopted in {self._address.shown} yet: {RESTORE}")

    def _refuse_cluster(self) -> None:
        """StoreError for a cluster: a single server would take the slots from its nodes."""
        if len(self._addresses) > 1:
            raise StoreError("a single server has one database: several are for `shardbus node`")
        refuse_cluster(self._address)

    def _all(self) -> list[Address]:
        """All databases in the order of their stores: that of the first has the catalogue."""
        if not self._arranged:
            self._arranged = arranged(self._addresses)
        return self._arranged

    def _address_of(self, name: str) -> Address:
        addresses = self._all()
        return addresses[0 if name == CATALOGUE_NAME else slot_of(name) % len(addresses)]

    @contextmanager
    def _linked(self, address: Address, name: str) -> Iterator[Link]:
        link = Link(address, settings_of(name))
        try:
            yield link
        finally:
            link.close()

    @contextmanager
    def _reading(self, address: Address) -> Iterator[Link]:
        link = Link(address, settings_of("look", is_reader=True))
        try:
            yield link
        finally:
            link.close()

    @contextmanager
    def _copy(self, name: str) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(prefix="check-", dir=self._site.data_dir) as directory:
            path = Path(directory) / copy_name(name)
            snapshot = self.unserved_snapshot(name)
            try:
                snapshot.copy(path, lambda _: None)
            finally:
                snapshot.close()
            yield path

    def _called(self, name: str) -> str:
        return f"{name} in {self._address_of(name).shown}"

    def _readdress(self, damage: Damage, name: str) -> None:
        damage.file = self._called(name)
        damage.advice = RESTORE

    def _id_for_catalogue(self, new_id: str) -> str:
        """The id of a new catalogue: that of the slots if they have one.

        StoreError, and nothing is changed, when there is none although slots hold fragments.
        """
        found = holdings(self._address)
        if not self.has_catalogue() and any(held.fragments for held in found):
            raise StoreError(
                f"{self._address.shown} has no catalogue, but its stores hold messages: "
                f"{_listed(found)}. Nothing was changed. {RESTORE.capitalize()}"
            )
        return common_id(found) or new_id


def _listed(found: list[Holding]) -> str:
    return ", ".join(
        f"{broker_name(held.slot)} ({held.fragments} fragments)" for held in found if held.fragments
    )


def stores(site: Site) -> PostgresStores:
    return PostgresStores(site)


def cluster(urls: Sequence[str], making: Making) -> Cluster:
    """The cluster of these databases, which is created if there is none."""
    return open_cluster([Address(url) for url in urls], making)


def look(urls: Sequence[str], name: str) -> SeenStores:
    """The databases of a cluster, as far as they can be reached; nothing is changed."""
    return look_at([Address(url) for url in urls], name)
