"""The slots of a database: listing them, their namespaces, and opening one."""

from __future__ import annotations

import re
import threading
from typing import Final, final

from shardbus.stores.base.late import LateStore
from shardbus.stores.base.package import Durability
from shardbus.stores.base.store import MessageStore, StoreError
from shardbus.stores.postgres.copy import PostgresSnapshot, slot_bytes
from shardbus.stores.postgres.link import Address, Link
from shardbus.stores.postgres.move_mark import refuse_moved
from shardbus.stores.postgres.schema import examine, prepare, settings_of
from shardbus.stores.postgres.store import PostgresStore

_NAME: Final = re.compile(r"broker-(\d+)")
_HOLDINGS: Final = """
SELECT slot, namespace_id, highest_entity_id,
    (SELECT count(*) FROM fragment f WHERE f.slot = s.slot AND NOT is_deleted)
FROM slot s ORDER BY slot
"""
_MAKE: Final = "INSERT INTO slot VALUES ($1, 0, 0, '', '', 0) ON CONFLICT DO NOTHING"


def slot_of(name: str) -> int:
    """The slot of a broker by the broker's name."""
    found = _NAME.fullmatch(name)
    if found is None:
        raise StoreError(f"{name!r} is no name of a broker: those are broker-0, broker-1 and so on")
    return int(found[1])


@final
class Holding:
    """The row of a slot: `namespace_id` is empty if it belongs to none."""

    def __init__(
        self, slot: int, namespace_id: str, highest_entity_id: int, fragments: int
    ) -> None:
        self.slot = slot
        self.namespace_id = namespace_id
        self.highest_entity_id = highest_entity_id
        self.fragments = fragments


def holdings(address: Address) -> list[Holding]:
    """The holdings of all slots of a database, served or not; nothing is changed."""
    link = Link(address, settings_of("look", is_reader=True))
    try:
        if examine(link, is_full=False) == 0:
            return []
        return [Holding(*row) for row in link.fetch(_HOLDINGS)]
    finally:
        link.close()


def refuse_moved_in(address: Address) -> None:
    link = Link(address, settings_of("look", is_reader=True))
    try:
        refuse_moved(link)
    finally:
        link.close()


def make_slot(address: Address, slot: int) -> None:
    link = Link(address, settings_of("schema"))
    try:
        link.fetch(_MAKE, slot)
    finally:
        link.close()


class _Unclaimed(StoreError):
    """The slot belongs to no namespace yet, and none was given."""


@final
class KeptSlot:
    """The slot of a broker, which is opened for one namespace. A `base_package.KeptStore`."""

    def __init__(self, address: Address, name: str, durability: Durability) -> None:
        self.name = name
        self.store = LateStore(self._open)
        self._address = address
        self._slot = slot_of(name)
        self._durability: Durability = durability
        self._namespace_id = ""
        # With an empty id, the slot may belong to any namespace.
        self._asked: tuple[str, bool] | None = None
        self._asking = threading.Lock()

    @property
    def namespace_id(self) -> str:
        return self._namespace_id

    def size_bytes(self) -> int:
        return slot_bytes(self._address, self._slot)

    def snapshot(self) -> PostgresSnapshot:
        # A slot that could not be opened yet raises the reason.
        self.store.fragments()
        return PostgresSnapshot(self._address, self._slot)

    def open_own(self) -> None:
        """Open a slot for the namespace to which it belongs; StoreError if that is not possible."""
        if self._holding() is None:
            return
        self._asked = ("", False)
        try:
            self.open_if_only_to_read()
        except _Unclaimed:
            self._asked = None

    def open_if_only_to_read(self) -> None:
        self.store.open()

    def join(self, namespace_id: str, *, is_empty_expected: bool) -> None:
        with self._asking:
            if self._namespace_id not in ("", namespace_id):
                raise self._foreign(self._namespace_id, namespace_id)
            self._asked = (namespace_id, is_empty_expected)
            self.store.open()

    def _open(self) -> MessageStore:
        if self._asked is None:
            raise StoreError(f"{self._called()}: no gateway has named the namespace of this store")
        wanted, is_empty_expected = self._asked
        prepare(self._address, is_full=self._durability == "full")
        found = self._holding()
        if found is None and not is_empty_expected:
            raise self._lost("is not there")
        # Taking a slot fences its owner, so first check that this namespace may take it.
        if found is not None and wanted and found.namespace_id not in ("", wanted):
            raise self._foreign(found.namespace_id, wanted)
        belongs = found.namespace_id if found is not None else ""
        if not belongs and not wanted:
            raise _Unclaimed(f"{self._called()} belongs to no namespace yet")
        if not belongs and found is not None and not found.fragments and not is_empty_expected:
            raise self._lost("is empty")
        if found is None:
            make_slot(self._address, self._slot)
        store = PostgresStore(self._address, self._slot, durability=self._durability)
        try:
            # Check again: from now on no move can begin.
            refuse_moved_in(self._address)
            if not belongs:
                store.join(wanted)
            self._namespace_id = belongs or wanted
        except StoreError:
            store.close()
            raise
        return store

    def _holding(self) -> Holding | None:
        found = [held for held in holdings(self._address) if held.slot == self._slot]
        return found[0] if found else None

    def _called(self) -> str:
        return f"{self.name} in {self._address.shown}"

    def _lost(self, state: str) -> StoreError:
        return StoreError(
            f"{self._called()} {state}, but the namespace has fragments in it. No new store "
            "was created. Restore a copy of the database, or name the right one; if the store is "
            "lost for good, `shardbus check --adopt` creates an empty one"
        )

    def _foreign(self, found: str, wanted: str) -> StoreError:
        return StoreError(
            f"{self._called()} belongs to the namespace {found}, but the catalogue to "
            f"{wanted}. Nothing was changed. Name the database of this namespace, or restore the "
            "catalogue of the other one; `shardbus check --adopt` lets this namespace take the "
            "store over and keeps its fragments as orphans"
        )


def common_id(found: list[Holding]) -> str:
    """The namespace of all slots that belong to one; empty if there are several."""
    ids = {held.namespace_id for held in found if held.namespace_id}
    return ids.pop() if len(ids) == 1 else ""
