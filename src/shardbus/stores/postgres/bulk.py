"""Large reads of a slot by a process other than its broker."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Final, Self, TypeVar, final

from shardbus.stores.base.bulk import BlockSlab, BulkAsk, Slab
from shardbus.stores.base.store import FragmentId, StoreError, UnknownFragment
from shardbus.stores.chunked.blocks import BlockReader
from shardbus.stores.chunked.bulk import SlabReader
from shardbus.stores.chunked.chunk import session_name
from shardbus.stores.chunked.session import SessionReader
from shardbus.stores.postgres.link import Address, Link, LinkLost
from shardbus.stores.postgres.lookup import PostgresLookup
from shardbus.stores.postgres.schema import examine, settings_of

T = TypeVar("T")

_LOCAL: Final = """
SELECT local FROM fragment
WHERE slot = $1 AND entity_id = $2 AND number = $3 AND NOT is_deleted
"""


@final
class PostgresBulk:
    """A `base_bulk.BulkSource`: a slot, read on a connection that cannot write."""

    def __init__(self, address: Address, slot: int) -> None:
        """StoreError when there is no such slot, and later when it cannot be read."""
        self._address = address
        self._slot = slot
        self._link = Link(address, settings_of(f"broker-{slot} bulk", is_reader=True))
        try:
            self._made = self._when_made(self._link)
        except BaseException:
            self._link.close()
            raise
        self._lookup = PostgresLookup(self._link, slot)
        self._slabs = SlabReader(self._lookup)
        self._sessions = SessionReader(self._lookup)
        self._blocks = BlockReader(self._lookup)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._link.close()

    def is_current(self) -> bool:
        """Whether the tables are still the ones that were opened, in the same database."""
        try:
            return self._when_made(self._link) == self._made
        except StoreError:
            return False

    def local(self, fragment: FragmentId) -> int:
        found = self._again(lambda: self._lookup.ask(_LOCAL, self._slot, *fragment))
        if not found:
            raise UnknownFragment(f"no fragment {fragment.number} of entity {fragment.entity_id}")
        return int(found[0][0])

    def first_number(self, local: int, number: int, line: int) -> int:
        return self._again(lambda: self._slabs.first_number(local, number, line))

    def slab(self, local: int, ask: BulkAsk, start: int) -> Slab:
        return self._again(lambda: self._slabs.slab(local, ask, start))

    def state(self, local: int, session_id: str) -> bytes | None:
        return self._again(lambda: self._sessions.state(local, session_name(session_id)))

    def blocks(self, local: int, after: int, until: int) -> BlockSlab:
        return self._again(lambda: self._blocks.blocks(local, after, until))

    def _again(self, work: Callable[[], T]) -> T:
        """Read, and try once more on a new connection if this one was lost."""
        try:
            return work()
        except LinkLost:
            return work()

    def _when_made(self, link: Link) -> tuple[int, int]:
        """A value that distinguishes these tables from others with the same names."""
        if examine(link, is_full=False) == 0:
            raise StoreError(f"{self._address.shown} holds no store of Shardbus yet")
        sql = "SELECT 'slot'::regclass::oid::bigint, count(*) FROM slot WHERE slot = $1"
        [row] = link.fetch(sql, self._slot)
        if not row[1]:
            raise StoreError(f"{self._address.shown} holds no store broker-{self._slot} yet")
        return int(row[0]), int(row[1])
