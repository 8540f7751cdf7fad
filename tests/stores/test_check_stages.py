"""`check` and `repair` of stages."""

from __future__ import annotations

from pathlib import Path

import pytest

from shardbus.core.fragment.change import Adopt, StagePut
from shardbus.core.message import MAIN_LINE, NEVER_MS
from shardbus.stores.base.check import StoreReport
from shardbus.stores.sqlite.examine.check import check_store
from shardbus.stores.sqlite.examine.repair import repair_store
from shardbus.stores.sqlite.store import SqliteStore
from tests.stores.filled import FRAGMENTS, Filled, filled, served
from tests.stores.harness import Pen, Scalpel, read_all

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
    assert "can no longer be published" in damage.meaning
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

    assert damage.what == "piece 1 of stage 61 differs from its list entry"
    assert not damage.is_loss
    assert [one.what for one in checked(store.path).damages] == []
    assert pieces(store.path) == PIECES


def test_a_piece_of_a_fragment_that_is_not_listed_is_told(store: Filled) -> None:
    with Scalpel(store.path) as scalpel:
        scalpel.execute("DELETE FROM fragment WHERE is_deleted = 1")

    [damage] = checked(store.path).damages

    assert damage.what == "piece 1 of stage 61 belongs to a fragment that is not listed"


# Payloads that are kept beside pieces.

KEPT = [b"%d:" % number + bytes(900) for number in range(600)]


@pytest.fixture
def kept(store: Filled) -> Filled:
    """With a piece that has payloads beside it, and one whose payloads are messages already."""
    live = SqliteStore(store.path)
    pen = Pen(FRAGMENT, live.load(FRAGMENT).counters)
    pen.changes += [StagePut(b"b", piece, b"about", KEPT) for piece in (1, 2)]
    pen.write(live)
    first = pen.counters.last_counter + 1
    pen.counters.last_counter += len(KEPT)
    pen.counters.lines[MAIN_LINE].count += len(KEPT)
    pen.counters.lines[MAIN_LINE].size_bytes += sum(len(payload) for payload in KEPT)
    pen.changes.append(Adopt(b"b", 2, pen.sequence(first), len(KEPT), 1, [NEVER_MS]))
    pen.write(live)
    live.close()
    return store


def adopted(path: Path) -> list[bytes | None]:
    """What was adopted, of what is served."""
    live = SqliteStore(path)
    try:
        return [entry.payload for entry in read_all(live, FRAGMENT) if entry.enqueued_at_ms == 1]
    finally:
        live.close()


def test_kept_payloads_are_part_of_their_pieces(kept: Filled) -> None:
    report = checked(kept.path)

    assert [damage.what for damage in report.damages] == []
    assert report.pieces == len(PIECES) + 1
    assert adopted(kept.path) == KEPT


def test_a_repair_keeps_what_is_staged_and_what_was_adopted(kept: Filled) -> None:
    with Scalpel(kept.path) as scalpel:
        scalpel.flip_piece(FRAGMENT, b"a", 2)

    repair_store(kept.path, lambda _: None)

    assert [damage.what for damage in checked(kept.path).damages] == []
    assert adopted(kept.path) == KEPT
    live = SqliteStore(kept.path)
    assert live.read_stage(FRAGMENT, b"b") == {1: b"about"}
    assert live.check_stage(FRAGMENT, b"b") == []
    pen = Pen(FRAGMENT, live.load(FRAGMENT).counters)
    first = pen.counters.last_counter + 1
    pen.counters.last_counter += len(KEPT)
    pen.changes.append(Adopt(b"b", 1, pen.sequence(first), len(KEPT), 1, [NEVER_MS]))
    pen.write(live)
    live.close()
    assert adopted(kept.path) == KEPT + KEPT
    with Scalpel(kept.path) as scalpel:
        scalpel.assert_parts_agree()


def test_a_damaged_payload_beside_a_piece_costs_the_piece(kept: Filled) -> None:
    with Scalpel(kept.path) as scalpel:
        scalpel.flip_staged(FRAGMENT, b"b", 1, 5_000)

    [damage] = checked(kept.path).damages
    repair_store(kept.path, lambda _: None)

    assert damage.what == "a payload of piece 1 of stage 62 fails its checksum"
    assert damage.is_loss
    assert [one.what for one in checked(kept.path).damages] == []
    live = SqliteStore(kept.path)
    assert live.read_stage(FRAGMENT, b"b") == {}
    live.close()
    with Scalpel(kept.path) as scalpel:
        scalpel.assert_parts_agree()


def test_a_piece_that_lists_other_parts_than_it_has_is_put_right(kept: Filled) -> None:
    with Scalpel(kept.path) as scalpel:
        scalpel.execute("UPDATE stage SET parts = '[]' WHERE stage = x'62'")

    [damage] = checked(kept.path).damages
    repair_store(kept.path, lambda _: None)

    assert damage.what == "piece 1 of stage 62 lists other parts than its record"
    assert not damage.is_loss
    assert [one.what for one in checked(kept.path).damages] == []
    with Scalpel(kept.path) as scalpel:
        scalpel.assert_parts_agree()
