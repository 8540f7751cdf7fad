"""Lifecycle records in every kind of store: stored with their commit, read again, checked (P8)."""

from pathlib import Path

from shardbus.core.fragment.records import LIFECYCLE
from shardbus.core.lifecycle.journal import LIFECYCLE_STAGE, Journal
from shardbus.core.lifecycle.rows import CONSUME, unpacked
from shardbus.core.limits import LIFECYCLE_MS_MAX
from shardbus.stores.base.store import FragmentId
from shardbus.stores.sqlite.examine.check import check_store
from shardbus.stores.sqlite.snapshot import open_snapshot
from shardbus.stores.sqlite.store import SqliteStore
from tests.stores.harness import Pen, StoreCase


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
