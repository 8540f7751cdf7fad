"""What a gateway knows of its cluster without asking: nodes, slots, stores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, final

from shardbus.broker.clock import TimedClock
from shardbus.broker.cluster.slot_map import SlotMap
from shardbus.broker.remote.parking import ParkingLot
from shardbus.gateway.readings import (
    CLUSTER_LAG,
    CLUSTER_MOVES,
    CLUSTER_NODES,
    CLUSTER_PARKED,
    CLUSTER_SLOTS,
    CLUSTER_SLOTS_FREE,
    CLUSTER_SNAPSHOT_MS,
    MetricReading,
)
from shardbus.stores.base.sight import Sight

# A snapshot of this age is told as a problem: rows that are gone pile up behind it.
SNAPSHOT_MS_MAX: Final = 10 * 60_000


@final
class ClusterView:
    """The cluster as the databases show it. `addresses[i]` is what people may see of store `i`."""

    def __init__(
        self,
        cluster_id: str,
        addresses: Sequence[str],
        slot_map: SlotMap,
        lot: ParkingLot,
        clock: TimedClock,
        node_problems: Callable[[], list[str]],
    ) -> None:
        self.cluster_id = cluster_id
        self.addresses = list(addresses)
        self.clock = clock
        self._slot_map = slot_map
        self._lot = lot
        self._node_problems = node_problems

    @property
    def sights(self) -> list[Sight | None]:
        return self._slot_map.sights

    @property
    def given(self) -> int:
        """How many slots were handed over while this process looked."""
        return self._slot_map.given

    @property
    def taken(self) -> int:
        """How many slots were taken from silent brokers while this process looked."""
        return self._slot_map.taken

    @property
    def outages(self) -> list[str]:
        """Why each store cannot be seen; empty for one that can."""
        return self._slot_map.problems

    def problems(self) -> list[str]:
        unseen = [
            f"store {index} ({self.addresses[index]}): {problem}"
            for index, problem in enumerate(self.outages)
            if problem
        ]
        held = [
            f"store {index} ({self.addresses[index]}): {_snapshot_text(sight)}"
            for index, sight in enumerate(self.sights)
            if sight is not None and sight.oldest_snapshot_ms > SNAPSHOT_MS_MAX
        ]
        return [*unseen, *held, *self._node_problems()]

    def readings(self) -> list[MetricReading]:
        found = [sight for sight in self.sights if sight is not None]
        members = {member.name for sight in found for member in sight.members}
        return [
            MetricReading(CLUSTER_NODES, len(members)),
            MetricReading(CLUSTER_SLOTS, sum(len(sight.slots) for sight in found)),
            MetricReading(CLUSTER_SLOTS_FREE, sum(free_slots(sight) for sight in found)),
            MetricReading(
                CLUSTER_SNAPSHOT_MS, max((sight.oldest_snapshot_ms for sight in found), default=0)
            ),
            MetricReading(CLUSTER_PARKED, self._lot.count),
            MetricReading(CLUSTER_MOVES, self.given, how="given"),
            MetricReading(CLUSTER_MOVES, self.taken, how="taken"),
            *(
                MetricReading(CLUSTER_LAG, sight.lag_bytes, store=str(index))
                for index, sight in enumerate(self.sights)
                if sight is not None and sight.lag_bytes is not None
            ),
        ]


def _snapshot_text(sight: Sight) -> str:
    return (
        f"a session has kept its snapshot for {sight.oldest_snapshot_ms // 60_000} minutes, so "
        "rows that are gone cannot be removed: the database grows and becomes slower. Find the "
        "session in pg_stat_activity by its backend_xmin, and end it."
    )


def free_slots(sight: Sight) -> int:
    """How many slots of a store belong to nobody who lives."""
    living = {member.incarnation for member in sight.members}
    return sum(slot.incarnation not in living for slot in sight.slots)


def problems_of(view: ClusterView | None) -> list[str]:
    """What is wrong with a cluster; a single server is none."""
    return [] if view is None else view.problems()
