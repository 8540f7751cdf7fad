"""What `MessageStore` promises about the pieces of stages, for every store."""

import pytest

from shardbus.core.change import StageDrop, StagePut
from shardbus.stores.base import FragmentId, MessageStore, StoreError
from tests.stores.harness import Pen, StoreCase, read_all

OTHER = FragmentId(7, 4)


def test_a_stage_that_was_never_put_has_no_pieces(store: MessageStore, pen: Pen) -> None:
    assert store.read_stage(pen.fragment, b"a") == {}


def test_pieces_are_read_by_stage_in_rising_order_after_reopening(
    case: StoreCase, pen: Pen
) -> None:
    large = bytes(range(256)) * 4096
    pen.changes += [StagePut(b"a", 9, b"nine"), StagePut(b"a", 1, large), StagePut(b"b", 1, b"")]
    pen.changes.append(StagePut(bytes(range(256)), (1 << 63) - 1, b"\x00;"))
    pen.append([b"message"])
    pen.write(case.store)

    case.reopen()

    store = case.store
    assert list(store.read_stage(pen.fragment, b"a").items()) == [(1, large), (9, b"nine")]
    assert store.read_stage(pen.fragment, b"b") == {1: b""}
    assert store.read_stage(pen.fragment, bytes(range(256))) == {(1 << 63) - 1: b"\x00;"}
    assert [entry.payload for entry in read_all(store, pen.fragment)] == [b"message"]


def test_a_piece_that_is_put_again_is_replaced(store: MessageStore, pen: Pen) -> None:
    pen.changes.append(StagePut(b"a", 1, b"old"))
    pen.write(store)

    pen.changes.append(StagePut(b"a", 1, b"new"))
    pen.write(store)

    assert store.read_stage(pen.fragment, b"a") == {1: b"new"}


def test_a_dropped_stage_has_no_pieces_and_may_begin_anew(store: MessageStore, pen: Pen) -> None:
    pen.changes += [StagePut(b"a", 1, b"old"), StagePut(b"a", 2, b"old"), StagePut(b"b", 1, b"b")]
    pen.write(store)

    pen.changes += [StageDrop(b"a"), StageDrop(b"never there"), StagePut(b"a", 3, b"new")]
    pen.changes += [StagePut(b"c", 1, b"short lived"), StageDrop(b"c")]
    pen.write(store)

    assert store.read_stage(pen.fragment, b"a") == {3: b"new"}
    assert store.read_stage(pen.fragment, b"b") == {1: b"b"}
    assert store.read_stage(pen.fragment, b"c") == {}


def test_stages_belong_to_their_fragment_and_go_with_it(store: MessageStore, pen: Pen) -> None:
    other = Pen(OTHER)
    store.create([OTHER])
    pen.changes.append(StagePut(b"a", 1, b"mine"))
    other.changes += [StagePut(b"a", piece, b"theirs") for piece in range(1, 100)]
    store.commit([pen.commit(), other.commit()])

    store.delete([OTHER])
    while store.sweep():
        pass
    store.create([OTHER])

    assert store.read_stage(pen.fragment, b"a") == {1: b"mine"}
    assert store.read_stage(OTHER, b"a") == {}


def test_a_refused_commit_leaves_stages_as_they_were(store: MessageStore, pen: Pen) -> None:
    pen.append([b"one"])
    pen.changes += [StagePut(b"a", 1, b"kept"), StagePut(b"b", 1, b"kept")]
    pen.write(store)
    stale = Pen(pen.fragment)
    stale.append([b"one"])
    stale.changes += [StageDrop(b"a"), StagePut(b"b", 2, b"never")]

    with pytest.raises(StoreError):
        stale.write(store)

    assert store.read_stage(pen.fragment, b"a") == {1: b"kept"}
    assert store.read_stage(pen.fragment, b"b") == {1: b"kept"}


def test_a_large_commit_of_messages_and_stages_is_whole(case: StoreCase, pen: Pen) -> None:
    pen.changes += [StagePut(b"a", piece, b"%d" % piece) for piece in range(1, 700)]
    pen.append([b"x"] * 3_000)
    pen.write(case.store)

    case.reopen()

    assert len(case.store.read_stage(pen.fragment, b"a")) == 699
    assert len(read_all(case.store, pen.fragment)) == 3_000


def test_a_damaged_piece_is_told_and_the_others_are_read(case: StoreCase, pen: Pen) -> None:
    pen.changes += [StagePut(b"a", 1, b"sound"), StagePut(b"a", 2, b"bad"), StagePut(b"b", 2, b"b")]
    pen.write(case.store)

    case.damage_piece(pen.fragment, b"a", 2)

    assert case.store.read_stage(pen.fragment, b"a") == {1: b"sound", 2: None}
    assert case.store.read_stage(pen.fragment, b"b") == {2: b"b"}
    pen.changes.append(StagePut(b"a", 2, b"mended"))
    pen.write(case.store)
    assert case.store.read_stage(pen.fragment, b"a") == {1: b"sound", 2: b"mended"}
