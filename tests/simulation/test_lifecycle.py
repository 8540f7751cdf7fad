"""Lifecycle records are stored with what they tell, whoever dies when (P8).

After every history the stored records of each fragment, replayed, give the counters that the store
has. Where the disk was full a row says so, and that fragment is left out.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from shardbus.core.lifecycle import rows as events
from shardbus.core.lifecycle.journal import LIFECYCLE_STAGE
from shardbus.core.lifecycle.rows import EVENTS, Rows, unpacked
from shardbus.core.message import ACTIVE, DEFERRED, SCHEDULED
from shardbus.stores.base.store import FragmentCommit, FragmentId
from shardbus.stores.sqlite.store import SqliteStore
from tests.model.core.replay import Replay
from tests.simulation.faults import Disk
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


# A file is closed and opened after so many commits.
COMMITS_OPEN = 97


class Files:
    """Whatever the simulated disks store, a file of each stores too."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._commits = 0
        self.stores: dict[Disk, SqliteStore] = {}

    def close(self) -> None:
        for store in self.stores.values():
            store.close()

    def create(self, disk: Disk, fragments: Sequence[FragmentId]) -> None:
        disk.kept.create(fragments)
        self.of(disk).create(fragments)

    def delete(self, disk: Disk, fragments: Sequence[FragmentId]) -> None:
        disk.kept.delete(fragments)
        self.of(disk).delete(fragments)

    def commit(self, disk: Disk, commits: Sequence[FragmentCommit]) -> None:
        disk.before_commit(commits)
        disk.kept.commit(commits)
        self.of(disk).commit(commits)
        self._commits += 1
        if self._commits % COMMITS_OPEN == 0:
            self.stores.pop(disk).close()
        disk.after_commit(commits)

    def of(self, disk: Disk) -> SqliteStore:
        if disk not in self.stores:
            path = self._directory / f"{id(disk)}.db"
            self.stores[disk] = SqliteStore(path, durability="relaxed")
        return self.stores[disk]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Files]:
    made = Files(tmp_path)
    for name in ("create", "delete", "commit"):
        forward = getattr(made, name)
        monkeypatch.setattr(Disk, name, lambda disk, given, do=forward: do(disk, given))
    yield made
    made.close()


@pytest.mark.parametrize(
    ("run", "seed"),
    [
        (run_recorded, 1),
        pytest.param(run_recorded, 2, marks=pytest.mark.release),
        pytest.param(run_linked_recorded, 1, marks=pytest.mark.release),
    ],
)
def test_a_file_has_the_records_that_memory_has(
    run: Callable[[int], Simulation], seed: int, files: Files
) -> None:
    """P8: the memory of the simulation keeps a block by itself; a file has pieces of several."""
    simulation = run(seed)

    read = 0
    for plan in simulation.plans:
        for fragment in plan.fragment_ids():
            disk = simulation.store_of(plan, fragment.number)
            expected = disk.kept.read_stage(fragment, LIFECYCLE_STAGE)
            assert files.of(disk).read_stage(fragment, LIFECYCLE_STAGE) == expected
            read += len(expected)
    assert read > 500
