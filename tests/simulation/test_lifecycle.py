"""Lifecycle records are stored with what they tell, whoever dies when (P8).

After every commit the stored records of its fragment, replayed, give the messages that the store
has. Where a full disk cost rows, a record or a row says so; from that row on the replay continues
with what the store has.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from shardbus.core.fragment.change import Change, StagePut, Update
from shardbus.core.fragment.records import MISSING
from shardbus.core.lifecycle import rows as events
from shardbus.core.lifecycle.journal import LIFECYCLE_STAGE, RECORD_KEY
from shardbus.core.lifecycle.rows import EVENTS, Rows, unpacked
from shardbus.core.message import ACTIVE, DEFERRED, DELAYED, SCHEDULED, SET_ASIDE
from shardbus.stores.base.store import FragmentCommit, FragmentId
from shardbus.stores.memory.store import MemoryFragment, MemoryStore
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


class Watch:
    """Replays what each commit stores, and compares."""

    def __init__(self) -> None:
        self.gaps = 0
        self._replays: dict[MemoryFragment, Replay] = {}
        # What a commit may store without any other change: the last number, and how many duplicates
        # were dropped.
        self._counted: dict[MemoryFragment, tuple[int, int]] = {}

    def commit(self, store: MemoryStore, commits: Sequence[FragmentCommit]) -> None:
        for commit in commits:
            kept = store._fragments[commit.fragment]
            counted = commit.counters.last_counter, commit.counters.duplicates
            # A commit without any change asks whether the store writes again.
            stored = [each for each in commit.changes if not _is_empty(each)]
            is_asking = not commit.changes
            assert stored or is_asking or counted != self._counted.get(kept), commit.fragment
            self._counted[kept] = counted
            replay = self._replays.setdefault(kept, Replay())
            for change in commit.changes:
                if isinstance(change, StagePut) and change.stage == LIFECYCLE_STAGE:
                    self._play(replay, unpacked(change.data), kept)
            if (MISSING, RECORD_KEY) not in kept.records:
                assert _told(replay) == _stored(kept), commit.fragment

    def _play(self, replay: Replay, rows: Rows, kept: MemoryFragment) -> None:
        if events.GAP not in rows.events:
            replay.play(rows)
            return
        self.gaps += 1
        replay.messages = _stored(kept)
        replay.locked.clear()
        for event, number in zip(rows.events, rows.numbers, strict=True):
            change = replay.locked.add if event == events.LOCK else replay.locked.discard
            change(number)


def _is_empty(change: Change) -> bool:
    return isinstance(change, Update) and not change.entries


def _told(replay: Replay) -> dict[int, tuple[int, int]]:
    return {
        number: (line, SCHEDULED if state == DELAYED else state)
        for number, (line, state) in replay.messages.items()
    }


def _stored(kept: MemoryFragment) -> dict[int, tuple[int, int]]:
    return {
        number: (entry.line, SCHEDULED if entry.state == DELAYED else entry.state)
        for number, entry in kept.entries.items()
        if entry.state != SET_ASIDE
    }


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    made = Watch()
    store = MemoryStore.commit

    def commit(kept: MemoryStore, commits: Sequence[FragmentCommit]) -> None:
        store(kept, commits)
        made.commit(kept, commits)

    monkeypatch.setattr(MemoryStore, "commit", commit)
    return made


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
    run: Callable[[int], Simulation], seeds: range, watch: Watch
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


@pytest.mark.parametrize(
    ("run", "seed"),
    [
        (run_recorded, 202),
        (run_linked_recorded, 100),
        *[pytest.param(run_recorded, seed, marks=pytest.mark.release) for seed in (9, 40, 89)],
        pytest.param(run_linked_recorded, 89, marks=pytest.mark.release),
    ],
)
def test_a_fragment_that_is_loaded_while_the_disk_is_full_tells_the_gap(
    run: Callable[[int], Simulation], seed: int, watch: Watch
) -> None:
    """P8: the gap was lost with the memory of the process, and the records had messages that were
    gone. No seed that was played had a full disk.
    """
    run(seed)

    assert watch.gaps


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
