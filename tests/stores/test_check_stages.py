"""`check` and `repair` of stages."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardbus.core.change import StagePut
from shardbus.stores.check import check_store
from shardbus.stores.damage import StoreReport
from shardbus.stores.repair import repair_store
from shardbus.stores.sqlite import SqliteStore
from tests.stores.filled import FRAGMENTS, Filled, filled, served
from tests.stores.harness import Pen, Scalpel

FRAGMENT = FRAGMENTS[1]
PIECES = {1: b"first", 2: b"second" * 5_000}


@pytest.fixture
def store(tmp_path: Path) -> Filled:
    """With a stage of one fragment, and of one that was deleted and is not swept yet."""
    made = filled(tmp_path / "broker-0.db")
    live = SqliteStore(made.path)
    pen = Pen(FRAGMENT, live.load(FRAGMENT).counters)
    pen.changes += [StagePut(b"a", piece, data) for piece, data in PIECES.items()]
    pen.write(live)
    gone = FRAGMENT._replace(number=9)
    live.create([gone])
    other = Pen(gone)
    other.changes.append(StagePut(b"a", 1, b"of nobody"))
    other.write(live)
    live.delete([gone])
    live.close()
    return made


def checked(path: Path) -> StoreReport:
    return check_store(path, lambda _: None)


def pieces(path: Path) -> dict[int, bytes | None]:
    live = SqliteStore(path)
    try:
        return live.read_stage(FRAGMENT, b"a")
    finally:
        live.close()


def test_sound_pieces_are_counted(store: Filled) -> None:
    report = checked(store.path)

    assert [damage.what for damage in report.damages] == []
    assert report.pieces == len(PIECES)


@pytest.mark.parametrize("at", [0, 3, 12, 20, 23, -1])
def test_a_damaged_piece_is_told_and_removed_by_a_repair(store: Filled, at: int) -> None:
    with Scalpel(store.path) as scalpel:
        scalpel.flip_piece(FRAGMENT, b"a", 2, at)
    assert pieces(store.path) == {1: b"first", 2: None}

    [damage] = checked(store.path).damages
    repair_store(store.path, lambda _: None)

    assert damage.what == "piece 2 of stage 61 fails its checksum"
    assert "cannot be published any more" in damage.meaning
    assert (damage.entity_id, damage.fragment, damage.is_loss) == (*FRAGMENT, True)
    assert [one.what for one in checked(store.path).damages] == []
    assert pieces(store.path) == {1: b"first"}
    assert served(store.path) == store.shelf


@pytest.mark.parametrize("change", ["piece = 7", "stage = x'00'", "local = 0"])
def test_a_piece_under_a_wrong_name_is_put_right(store: Filled, change: str) -> None:
    with Scalpel(store.path) as scalpel:
        scalpel.execute(f"UPDATE stage SET {change} WHERE id = 1")

    [damage] = checked(store.path).damages
    repair_store(store.path, lambda _: None)

    assert damage.what == "piece 1 of stage 61 is not as it is listed"
    assert not damage.is_loss
    assert [one.what for one in checked(store.path).damages] == []
    assert pieces(store.path) == PIECES


def test_a_piece_of_a_fragment_that_is_not_listed_is_told(store: Filled) -> None:
    with Scalpel(store.path) as scalpel:
        scalpel.execute("DELETE FROM fragment WHERE is_deleted = 1")

    [damage] = checked(store.path).damages

    assert damage.what == "piece 1 of stage 61 belongs to a fragment that is not listed"
