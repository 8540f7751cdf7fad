"""The statements of leases in PostgreSQL (`core/cluster/statement.py` specifies them)."""

from __future__ import annotations

from typing import Final, final

from shardbus.core.cluster.keeper import Answer
from shardbus.core.cluster.rows import TIMELINE_SHIFT, MemberRow, SlotRow, Taken, View
from shardbus.core.cluster.statement import (
    Beat,
    Bury,
    Give,
    Join,
    Leave,
    Statement,
    Take,
)
from shardbus.stores.base.store import StoreError
from shardbus.stores.postgres.link import Address, Link, LinkLost
from shardbus.stores.postgres.move_mark import refuse_moved
from shardbus.stores.postgres.schema import settings_of
from shardbus.stores.postgres.serving import keep_served

_TAKE: Final = "SELECT * FROM take_v2($1, $2, $3, $4, $5)"
_GIVE: Final = "SELECT give_v2($1, $2, $3, $4, $5, $6, $7, $8)"
_JOIN: Final = "SELECT join_v2($1, $2, $3, $4)"
_BEAT: Final = "SELECT * FROM beat_v2($1, $2, $3)"
_BURY: Final = """
DELETE FROM member WHERE name = $1 AND incarnation = $2 AND beat = $3 RETURNING true
"""
_LEAVE: Final = "DELETE FROM member WHERE name = $1 AND incarnation = $2 RETURNING true"
_SETTLE: Final = "UPDATE cluster SET timeline = greatest(timeline, $1)"


@final
class PostgresLeases:
    """One connection for statements of leases. A `base_lease.LeaseTable`."""

    def __init__(self, address: Address, name: str, about: str) -> None:
        """`about` is the text in the member's row, for gateways and operators."""
        self._about = about
        self._link = Link(address, settings_of(f"{name} lease"))

    def open(self) -> None:
        """Connect; StoreError while the database is examined or moved, and after it was moved.

        So no broker has a lease then.
        """
        self._link.open()
        try:
            keep_served(self._link)
            refuse_moved(self._link)
        except StoreError:
            self._link.close()
            raise

    def ask(self, statement: Statement) -> Answer:
        """Run a statement on this connection; StoreError when its outcome is unknown."""
        if not self._link.is_open:
            raise LinkLost("the connection of the leases is gone")
        self._link.warnings.clear()
        answer = self._answer(statement)
        if self._link.warnings:
            # The primary has stored it, but perhaps not the standby.
            self._link.drop()
            raise LinkLost("; ".join(self._link.warnings))
        return answer

    def settle(self, timeline: int) -> None:
        self._link.fetch(_SETTLE, timeline)

    def abandon(self) -> None:
        self._link.abandon()

    def close(self) -> None:
        self._link.close()

    def _answer(self, statement: Statement) -> Answer:
        fetch = self._link.fetch
        if isinstance(statement, Beat):
            return self._beat(statement)
        if isinstance(statement, Take):
            return self._take(statement)
        if isinstance(statement, Give):
            held = statement.held
            return bool(
                fetch(
                    _GIVE,
                    *(held.slot, held.epoch, held.incarnation, held.number - 1),
                    *(statement.to, statement.to_incarnation, statement.data),
                    _floor(statement.timeline),
                )[0][0]
            )
        if isinstance(statement, Join):
            joining = (statement.name, statement.incarnation, statement.seen, self._about)
            return bool(fetch(_JOIN, *joining)[0][0])
        if isinstance(statement, Bury):
            return bool(fetch(_BURY, statement.name, statement.incarnation, statement.beat))
        if isinstance(statement, Leave):
            return bool(fetch(_LEAVE, statement.name, statement.incarnation))
        raise StoreError(f"{type(statement).__name__} is not a statement of leases")

    def _take(self, take: Take) -> Taken | bool:
        asked = (take.slot, take.epoch, take.owner, take.incarnation, _floor(take.timeline))
        epoch, commits, data = self._link.fetch(_TAKE, *asked)[0]
        return False if epoch is None else Taken(epoch, commits, data)

    def _beat(self, beat: Beat) -> View:
        row = self._link.fetch(_BEAT, beat.name, beat.incarnation, beat.is_leaving)[0]
        is_member, cluster_id, timeline, time_ms = row[:4]
        columns = [value or [] for value in row[4:]]
        members = [MemberRow(*each) for each in zip(*columns[:5], strict=True)]
        slots = [SlotRow(*each) for each in zip(*columns[5:], strict=True)]
        return View(cluster_id or "", timeline, time_ms, is_member, members, slots)


def _floor(timeline: int) -> int:
    return (timeline - 1) << TIMELINE_SHIFT
