"""What a gateway knows of its cluster without asking: nodes, slots, stores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import final

from shardbus.broker.clock import TimedClock
from shardbus.broker.cluster.slot_map import SlotMap
from shardbus.broker.remote.parking import ParkingLot
from shardbus.gateway.readings import (
    CLUSTER_NODES,
    CLUSTER_PARKED,
    CLUSTER_SLOTS,
    CLUSTER_SLOTS_FREE,
    CLUSTER_SNAPSHOT_MS,
    MetricReading,
)
from shardbus.stores.base.sight import Sight


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
    def outages(self) -> list[str]:
        """Why each store cannot be seen; empty for one that can."""
        return self._slot_map.problems

    def problems(self) -> list[str]:
        unseen = [
            f"store {index} ({self.addresses[index]}): {problem}"
            for index, problem in enumerate(self.outages)
            if problem
        ]
        return [*unseen, *self._node_problems()]

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
        ]


def free_slots(sight: Sight) -> int:
    """How many slots of a store belong to nobody who lives."""
    living = {member.incarnation for member in sight.members}
    return sum(slot.incarnation not in living for slot in sight.slots)


def problems_of(view: ClusterView | None) -> list[str]:
    """What is wrong with a cluster; a single server is none."""
    return [] if view is None else view.problems()
