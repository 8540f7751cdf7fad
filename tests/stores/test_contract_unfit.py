"""What one commit of a transaction wants and cannot have: nothing is stored, and it is said so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from shardbus.core.fragment.change import Adopt, Append, RecordChange
from shardbus.core.message import Entry
from shardbus.stores.base.store import FragmentCommit, FragmentId, MessageStore, NotStored
from shardbus.stores.sqlite.store import SqliteStore
from tests.stores.harness import ENQUEUED_AT_MS, Pen, StoreCase, read_all

OTHER = FragmentId(7, 4)


def used_numbers(pen: Pen) -> FragmentCommit:
    again = Pen(pen.fragment)
    again.append([b"with a number that was used"])
    return again.commit()


def unknown_fragment(pen: Pen) -> FragmentCommit:
    stranger = Pen(FragmentId(99, 0))
    stranger.append([b"nowhere"])
    return stranger.commit()


def no_payload(pen: Pen) -> FragmentCommit:
    entry = Entry(pen.sequence(5), None, 1, enqueued_at_ms=ENQUEUED_AT_MS)
    return FragmentCommit(pen.fragment, [Append([entry])], pen.counters)


def no_such_piece(pen: Pen) -> FragmentCommit:
    adopt = Adopt(b"stage", 1, pen.sequence(5), 2, ENQUEUED_AT_MS, [0])
    return FragmentCommit(pen.fragment, [adopt], pen.counters)


@pytest.mark.parametrize("unfit", [used_numbers, unknown_fragment, no_payload, no_such_piece])
@pytest.mark.parametrize("is_first", [True, False])
def test_what_cannot_be_stored_is_told_apart_and_the_others_can_be(
    unfit: Callable[[Pen], FragmentCommit], is_first: bool, case: StoreCase, pen: Pen
) -> None:
    """D4: it is certain that nothing was stored, so nobody needs to be told *unknown*."""
    store = case.store
    pen.append([b"one"])
    pen.write(store)
    store.create([OTHER])
    other = Pen(OTHER)
    other.append([b"fits"])
    bad, good = unfit(pen), other.commit()

    with pytest.raises(NotStored):
        store.commit([bad, good] if is_first else [good, bad])

    assert read_all(store, OTHER) == []
    store.commit([good])
    pen.append([b"two"])
    pen.write(store)
    case.reopen()
    assert [entry.payload for entry in read_all(case.store, OTHER)] == [b"fits"]
    assert [entry.payload for entry in read_all(case.store, pen.fragment)] == [b"one", b"two"]


def test_a_value_that_no_column_takes_is_unfit_and_no_failure_of_the_disk(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db")
    pen, other = Pen(FragmentId(7, 3)), Pen(OTHER)
    store.create([pen.fragment, OTHER])
    pen.append([b"one"])
    other.append([b"fits"])
    good = other.commit()
    bad = pen.commit()
    bad.changes.append(RecordChange(1 << 70, b"key", b"data"))

    with pytest.raises(NotStored):
        store.commit([good, bad])

    store.commit([good])
    assert [entry.payload for entry in read_all(store, OTHER)] == [b"fits"]
    store.close()


def test_last_counters_are_those_of_the_last_commits(case: StoreCase, pen: Pen) -> None:
    store = case.store
    store.create([OTHER])
    pen.append([b"one", b"two", b"three"])
    pen.write(store)
    pen.remove(read_all(store, pen.fragment))
    pen.write(store)

    for _ in range(2):
        found = case.store.last_counters([OTHER, FragmentId(99, 0), pen.fragment])
        assert found == [0, 0, 3]
        case.reopen()


def test_nobody_has_no_counters(store: MessageStore) -> None:
    assert store.last_counters([]) == []
