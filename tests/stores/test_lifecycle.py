"""Lifecycle records in every kind of store: stored with their commit, read again, checked (P8)."""

from pathlib import Path

import pytest

from shardbus.core.fragment.records import LIFECYCLE
from shardbus.core.lifecycle.journal import LIFECYCLE_STAGE, Journal
from shardbus.core.lifecycle.rows import CONSUME, unpacked
from shardbus.core.limits import LIFECYCLE_MS_MAX, LIFECYCLE_SEGMENTS
from shardbus.stores.base.store import FragmentId
from shardbus.stores.sqlite.examine.check import check_store
from shardbus.stores.sqlite.examine.repair import repair_store
from shardbus.stores.sqlite.snapshot import open_snapshot
from shardbus.stores.sqlite.store import SqliteStore
from tests.stores.harness import Pen, Scalpel, StoreCase


def record(journal: Journal, pen: Pen, *numbers: int) -> None:
    journal.gone(CONSUME, list(numbers))
    pen.changes += journal.take()


def test_a_journal_goes_on_in_a_store_that_is_opened_again(case: StoreCase, pen: Pen) -> None:
    journal = Journal(None, 1_000, is_on=True)
    record(journal, pen, 1, 2)
    pen.append([b"message"])
    pen.write(case.store)
    record(journal, pen, 5)
    pen.append([b"message"])
    pen.write(case.store)

    case.reopen()
    image = case.store.load(pen.fragment)
    again = Journal(image.records[LIFECYCLE, b""], 2_000, is_on=True)
    record(again, pen, 9)
    pen.append([b"message"])
    pen.write(case.store)

    blocks = case.store.read_stage(pen.fragment, LIFECYCLE_STAGE)
    found = [unpacked(data).numbers for data in blocks.values() if data is not None]
    assert found == [[1, 2], [5], [9]]


def test_what_is_too_old_is_removed_from_the_store(case: StoreCase, pen: Pen) -> None:
    journal = Journal(None, 1_000, is_on=True)
    for turn in range(4):
        journal.at_ms += LIFECYCLE_MS_MAX // 2
        record(journal, pen, turn + 1)
        pen.append([b"message"])
        pen.write(case.store)

    blocks = case.store.read_stage(pen.fragment, LIFECYCLE_STAGE)

    assert 0 < len(blocks) < 4 and max(blocks) == 4


def test_records_are_read_from_a_copy(tmp_path: Path) -> None:
    """P8: a backup contains them, and a check finds them sound."""
    store, pen = SqliteStore(tmp_path / "store.db"), Pen(FragmentId(1, 0))
    store.create([pen.fragment])
    journal = Journal(None, 1_000, is_on=True)
    record(journal, pen, 1, 2, 3)
    pen.append([b"message"])
    pen.write(store)
    store.close()

    kept = open_snapshot(tmp_path / "store.db")
    kept.copy(tmp_path / "copy.db", lambda _: None)
    kept.close()

    report = check_store(tmp_path / "copy.db", lambda _: None)
    assert report.pieces == 1 and report.is_sound()
    copy = SqliteStore(tmp_path / "copy.db")
    [data] = copy.read_stage(pen.fragment, LIFECYCLE_STAGE).values()
    copy.close()
    assert data is not None and unpacked(data).numbers == [1, 2, 3]


@pytest.mark.parametrize("dropped", [0, 3])
def test_a_repair_rebuilds_the_record_of_a_journal_from_its_blocks(
    tmp_path: Path, dropped: int
) -> None:
    """P8: without the record the numbers of blocks began again at 1. Every commit of the
    fragment was refused as soon as it met a number that was kept: at once, or after as many commits
    as had been dropped. Histories are simulated without damage, and the tests of damage had no
    commits after the repair.
    """
    path, fragment = tmp_path / "store.db", FragmentId(1, 0)
    store, pen = SqliteStore(path), Pen(fragment)
    store.create([fragment])
    other = Pen(FragmentId(1, 1))
    store.create([other.fragment])
    journal = Journal(None, LIFECYCLE_MS_MAX, is_on=True)
    step_ms = LIFECYCLE_MS_MAX // LIFECYCLE_SEGMENTS
    for number in range(1, 9):
        journal.at_ms += step_ms
        record(journal, pen, number)
        pen.append([b"%d" % number])
        pen.write(store)
    if dropped:
        journal.at_ms += LIFECYCLE_MS_MAX - 8 * step_ms
        for _ in range(dropped):
            journal.at_ms += step_ms
            record(journal, pen, 9)
            pen.write(store)
    kept = store.read_stage(fragment, LIFECYCLE_STAGE)
    record(Journal(None, 1, is_on=True), other, 1)
    other.write(store)
    store.close()
    with Scalpel(path) as scalpel:
        scalpel.flip_record(fragment, LIFECYCLE, b"")
        scalpel.flip_open_piece(other.fragment)

    damages = check_store(path, lambda _: None).damages
    assert [" of events" in damage.meaning for damage in damages] == [True, True]
    repair_store(path, lambda _: None)

    store = SqliteStore(path)
    image = store.load(fragment)
    again = Journal(image.records[LIFECYCLE, b""], journal.at_ms, is_on=True)
    # Of a piece that also has younger blocks even those that were dropped are found again.
    assert min(kept) == again.first <= dropped + 1
    pen = Pen(fragment, image.counters)
    for number in range(2 * len(kept)):
        record(again, pen, number + 10)
        pen.append([b"after"])
        pen.write(store)
    found = store.read_stage(fragment, LIFECYCLE_STAGE)
    assert {number: found[number] for number in kept} == kept
    assert len(found) == 3 * len(kept)
    # What is too old is dropped segment by segment, not all at once.
    first = again.first
    data = kept[first + 1]
    assert data is not None
    again.at_ms = unpacked(data).at_ms[-1] + LIFECYCLE_MS_MAX
    record(again, pen, 99)
    pen.write(store)
    # A piece goes when all of its blocks are too old; nobody reads blocks before the first.
    left = store.read_stage(fragment, LIFECYCLE_STAGE, after=again.first - 1)
    assert first < again.first <= first + 2
    kept_numbers = [*sorted(found), again.next - 1]
    assert list(left) == [number for number in kept_numbers if number >= again.first]
    store.close()
