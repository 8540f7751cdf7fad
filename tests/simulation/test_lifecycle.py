"""Lifecycle records are stored with what they tell, whoever dies when (P8).

After every history the stored records of each fragment, replayed, give the counters that the store
has. Where the disk was full a row says so, and that fragment is left out.
"""

from collections import Counter
from collections.abc import Callable

import pytest

from shardbus.core.lifecycle import rows as events
from shardbus.core.lifecycle.journal import LIFECYCLE_STAGE
from shardbus.core.lifecycle.rows import EVENTS, Rows, unpacked
from shardbus.core.message import ACTIVE, DEFERRED, SCHEDULED
from tests.model.core.replay import Replay
from tests.simulation.scenario import run_linked_recorded, run_recorded
from tests.simulation.simulation import Simulation


def records(simulation: Simulation) -> list[tuple[list[Rows], Counter[tuple[int, int]]]]:
    """The stored blocks of each fragment, and its stored counters."""
    found: list[tuple[list[Rows], Counter[tuple[int, int]]]] = []
    for plan in simulation.plans:
        for fragment in plan.fragment_ids():
            kept = simulation.store_of(plan, fragment.number).kept
            stored = kept.read_stage(fragment, LIFECYCLE_STAGE)
            blocks = [unpacked(data) for _, data in sorted(stored.items()) if data is not None]
            counters: Counter[tuple[int, int]] = Counter()
            for number, line in enumerate(kept.load(fragment).counters.lines):
                counters[number, ACTIVE] = line.count
                counters[number, DEFERRED] = line.deferred
                counters[number, SCHEDULED] = line.scheduled
            found.append((blocks, +counters))
    return found


@pytest.mark.parametrize(
    ("run", "seeds"),
    [
        (run_recorded, range(1, 3)),
        (run_linked_recorded, range(1, 3)),
        pytest.param(run_recorded, range(3, 7), marks=pytest.mark.release),
        pytest.param(run_linked_recorded, range(3, 5), marks=pytest.mark.release),
    ],
)
def test_the_stored_records_give_the_stored_state(
    run: Callable[[int], Simulation], seeds: range
) -> None:
    seen: Counter[str] = Counter()
    for seed in seeds:
        for blocks, counters in records(run(seed)):
            told = [event for rows in blocks for event in rows.events]
            seen.update(EVENTS[event] for event in told)
            if events.GAP in told:
                continue
            replay = Replay()
            for rows in blocks:
                replay.play(rows)
            assert replay.counts() == counters

    common = ("enqueue", "lock", "complete", "abandon", "lock_lost", "load", "dead_letter")
    assert all(seen[event] for event in common), seen
