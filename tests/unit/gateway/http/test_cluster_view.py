"""What a gateway says of its cluster without asking (R41)."""

from __future__ import annotations

import asyncio

import pytest

from shardbus.broker.cluster.slot_map import SlotMap
from shardbus.broker.remote.parking import ParkingLot
from shardbus.gateway.http.observing.cluster import SNAPSHOT_MS_MAX, ClusterView
from shardbus.gateway.readings import CLUSTER_LAG, CLUSTER_MOVES
from shardbus.stores.base.sight import Sight
from tests.unit.broker.hosts import SetClock


class Scene:
    """A `Lookout` of a database in which somebody has had a snapshot for so long."""

    def __init__(self, snapshot_ms: int, lag_bytes: int | None = None) -> None:
        self.snapshot_ms = snapshot_ms
        self.lag_bytes = lag_bytes

    def look(self) -> Sight:
        return Sight(1, 1, [], [], [], 0, self.snapshot_ms, 0, 1, self.lag_bytes)

    def report(self, name: str, about: str) -> None:
        """There is nobody to tell."""

    def close(self) -> None:
        """Nothing is open."""


async def _problems(snapshot_ms: int) -> list[str]:
    return (await _view(Scene(snapshot_ms))).problems()


async def _view(scene: Scene) -> ClusterView:
    """A view that has looked once."""
    slots = SlotMap([scene], loop=asyncio.get_running_loop())
    view = ClusterView("c", ["postgresql://db/bus"], slots, ParkingLot(), SetClock(), list)
    looked = asyncio.Event()
    slots.on_version = looked.set
    running = asyncio.create_task(slots.run("door", ""))
    try:
        await asyncio.wait_for(looked.wait(), 10)
        return view
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@pytest.mark.parametrize(
    ("snapshot_ms", "minutes"), [(0, ""), (SNAPSHOT_MS_MAX, ""), (3_600_000, "60 minutes")]
)
def test_a_snapshot_that_is_held_for_long_is_a_problem(snapshot_ms: int, minutes: str) -> None:
    """Rows that are gone pile up behind it, and nothing else would tell."""
    problems = asyncio.run(_problems(snapshot_ms))

    assert len(problems) == (1 if minutes else 0)
    assert all(minutes in problem and "pg_stat_activity" in problem for problem in problems)


@pytest.mark.parametrize("lag_bytes", [None, 0, 4096])
def test_the_lag_of_standbys_and_the_moves_of_slots_are_metrics(lag_bytes: int | None) -> None:
    """R41: a lag that cannot be known is not told as none."""
    view = asyncio.run(_view(Scene(0, lag_bytes)))
    view._slot_map.given, view._slot_map.taken = 3, 2

    readings = [(each.name, each.labels, each.value) for each in view.readings()]

    lags = [reading for reading in readings if reading[0] == CLUSTER_LAG]
    assert lags == ([] if lag_bytes is None else [(CLUSTER_LAG, {"store": "0"}, lag_bytes)])
    assert (CLUSTER_MOVES, {"how": "given"}, 3) in readings
    assert (CLUSTER_MOVES, {"how": "taken"}, 2) in readings
