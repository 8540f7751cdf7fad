"""`check` and `repair` of the records that fragments keep."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardbus.stores.base.check import StoreReport
from shardbus.stores.base.store import FragmentId, StoreError
from shardbus.stores.sqlite.examine.check import check_store
from shardbus.stores.sqlite.examine.repair import COUNTER_SKIP, repair_store
from shardbus.stores.sqlite.store import SqliteStore
from tests.stores.filled import FRAGMENTS, Filled, filled, served
from tests.stores.harness import Pen, Scalpel

FRAGMENT = FRAGMENTS[1]
RECORDS = {(1, b"a"): b"first", (1, b"b"): b"second", (2, b"a"): b"third" * 5_000}


@pytest.fixture
def store(tmp_path: Path) -> Filled:
    """With records of one fragment, and of one that was deleted and is not swept yet."""
    made = filled(tmp_path / "broker-0.db")
    live = SqliteStore(made.path)
    pen = Pen(FRAGMENT, live.load(FRAGMENT).counters)
    for (kind, key), data in RECORDS.items():
        pen.record(kind, key, data)
    pen.write(live)
    gone = FRAGMENT._replace(number=9)
    live.create([gone])
    other = Pen(gone)
    other.record(1, b"a", b"of nobody")
    other.write(live)
    live.delete([gone])
    live.close()
    return made


def checked(path: Path) -> StoreReport:
    return check_store(path, lambda _: None)


def records(path: Path) -> dict[tuple[int, bytes], bytes]:
    live = SqliteStore(path)
    try:
        return live.load(FRAGMENT).records
    finally:
        live.close()


def counters(path: Path) -> dict[FragmentId, int]:
    """The last number that each fragment used."""
    live = SqliteStore(path)
    try:
        return {each: live.load(each).counters.last_counter for each in live.fragments()}
    finally:
        live.close()


def test_sound_records_are_counted(store: Filled) -> None:
    report = checked(store.path)

    assert [damage.what for damage in report.damages] == []
    assert report.records == len(RECORDS)


@pytest.mark.parametrize("at", [0, 3, 12, 20, 23, -1])
def test_a_damaged_record_is_told_and_removed_by_a_repair(store: Filled, at: int) -> None:
    with Scalpel(store.path) as scalpel:
        scalpel.flip_record(FRAGMENT, 2, b"a", at)
    with pytest.raises(StoreError, match="records \\(of kind 2\\) of fragment 1 of entity 7"):
        records(store.path)

    [damage] = checked(store.path).damages
    outcome = repair_store(store.path, lambda _: None)

    assert damage.what == "record 61 of kind 2 fails its checksum"
    assert "a repair removes the record" in damage.meaning
    assert (damage.entity_id, damage.fragment, damage.is_loss) == (*FRAGMENT, True)
    assert [one.what for one in outcome.report.damages] == [damage.what]
    assert [one.what for one in checked(store.path).damages] == []
    assert records(store.path) == {name: RECORDS[name] for name in list(RECORDS)[:2]}
    assert served(store.path) == store.shelf


def test_numbers_go_on_far_behind_where_a_record_is_lost(store: Filled) -> None:
    """R27: it may have held transfer numbers, which can be above those of all messages."""
    before = counters(store.path)
    with Scalpel(store.path) as scalpel:
        scalpel.flip_record(FRAGMENT, 2, b"a", 0)

    repair_store(store.path, lambda _: None)

    after = counters(store.path)
    assert after.pop(FRAGMENT) >= before.pop(FRAGMENT) + COUNTER_SKIP
    assert after == before


@pytest.mark.parametrize("change", ["kind = 7", "key = x'00'", "local = 0"])
def test_a_record_under_a_wrong_name_is_put_right(store: Filled, change: str) -> None:
    with Scalpel(store.path) as scalpel:
        scalpel.execute(f"UPDATE record SET {change} WHERE id = 1")

    [damage] = checked(store.path).damages
    repair_store(store.path, lambda _: None)

    assert damage.what == "record 61 of kind 1 differs from its list entry"
    assert not damage.is_loss
    assert [one.what for one in checked(store.path).damages] == []
    assert records(store.path) == RECORDS


def test_a_record_of_no_fragment_is_told_and_left_behind(store: Filled) -> None:
    with Scalpel(store.path) as scalpel:
        scalpel.execute("UPDATE fragment SET local = 77 WHERE entity_id = 7 AND number = 9")

    [damage] = checked(store.path).damages
    repair_store(store.path, lambda _: None)

    assert damage.what == "record 61 of kind 1 belongs to a fragment that is not listed"
    assert [one.what for one in checked(store.path).damages] == []
