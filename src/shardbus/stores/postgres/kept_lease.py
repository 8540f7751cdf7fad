"""A leased slot as the store of a broker."""

from __future__ import annotations

from typing import final

from shardbus.stores.base.backup import broker_name
from shardbus.stores.base.late import LateStore
from shardbus.stores.base.lease import SlotLease
from shardbus.stores.base.package import Durability
from shardbus.stores.base.store import MessageStore, StoreError
from shardbus.stores.postgres.copy import PostgresSnapshot, slot_bytes
from shardbus.stores.postgres.group import GroupCommit
from shardbus.stores.postgres.link import Address
from shardbus.stores.postgres.store import PostgresStore


@final
class KeptLease:
    """A `base_package.KeptStore`: it belongs to the namespace of its cluster, and is never new."""

    def __init__(
        self,
        address: Address,
        namespace_id: str,
        lease: SlotLease,
        durability: Durability,
        group: GroupCommit,
    ) -> None:
        self.name = broker_name(lease.slot)
        self.namespace_id = namespace_id
        self.store = LateStore(self._open)
        self._address = address
        self._lease = lease
        self._durability: Durability = durability
        self._group = group

    def size_bytes(self) -> int:
        return slot_bytes(self._address, self._lease.slot)

    def snapshot(self) -> PostgresSnapshot:
        return PostgresSnapshot(self._address, self._lease.slot)

    def open_own(self) -> None:
        """Do nothing: the store is opened when it is first used."""

    def open_if_only_to_read(self) -> None:
        self.store.open()

    def join(self, namespace_id: str, *, is_empty_expected: bool) -> None:
        if namespace_id != self.namespace_id:
            raise StoreError(
                f"{self.name} in {self._address.shown} belongs to the namespace "
                f"{self.namespace_id}, not to {namespace_id}"
            )

    def _open(self) -> MessageStore:
        return PostgresStore(
            self._address,
            self._lease.slot,
            durability=self._durability,
            lease=self._lease,
            group=self._group,
        )
