"""Which partition reads what, and how a limit is shared."""

from itertools import pairwise

import pytest

from shardbus_spark import planning
from shardbus_spark.address import Address
from shardbus_spark.batch import browse_pieces
from shardbus_spark.entity import FragmentState
from shardbus_spark.limits import shared
from shardbus_spark.options import read_options
from shardbus_spark.planning import Piece, partitions_for, shares

OPTIONS = read_options({"entity": "orders"})
HERE = Address()


def _pieces(*rows: int) -> list[Piece]:
    return [Piece(f"t{index}", count, (index, 0)) for index, count in enumerate(rows)]


def test_pieces_are_spread_evenly_and_always_alike() -> None:
    pieces = _pieces(10, 90, 40, 50, 10)

    [first, second] = shares(pieces, 2, HERE)

    assert (first.tickets, second.tickets) == (["t0", "t1"], ["t2", "t3", "t4"])
    assert shares(list(reversed(pieces)), 2, HERE) == [first, second]


def test_partitions_are_as_many_as_cores_unless_there_is_much_to_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(planning, "_cores", lambda: 6)
    found = [partitions_for(rows, 0) for rows in (0, 3_000_000, 5_000_000, 10**9)]
    monkeypatch.setattr(planning, "_cores", lambda: 256)

    assert found == [6, 6, 10, planning.PARTITIONS_MAX]
    assert partitions_for(0, 0) == planning.CORES_MAX
    assert partitions_for(10**9, 3) == 3


def test_there_are_no_more_partitions_than_pieces() -> None:
    assert len(shares(_pieces(1, 1), 8, HERE)) == 2


def test_a_long_range_is_cut_without_gap_and_without_overlap() -> None:
    part = FragmentState(3, 100, 1100, 1000, 0)

    pieces = browse_pieces(OPTIONS, "7", part, 100, 1100, piece_rows=300)

    bounds = [tuple(map(int, (_member(p, "from"), _member(p, "to")))) for p in pieces]
    assert (bounds[0][0], bounds[-1][1], len(bounds)) == (100, 1100, 4)
    assert all(low[1] == high[0] for low, high in pairwise(bounds))


def test_numbers_that_nobody_has_any_more_are_not_read() -> None:
    part = FragmentState(0, 900, 1000, 100, 0)

    [piece] = browse_pieces(OPTIONS, "7", part, 1, 1000, piece_rows=1000)

    assert _member(piece, "from") == "900"
    assert browse_pieces(OPTIONS, "7", part, 1, 900, piece_rows=10) == []


def test_a_limit_is_shared_by_size_and_everybody_gets_something() -> None:
    assert shared({0: 10, 1: 0, 2: 990}, 100) == {0: 1, 2: 99}
    assert shared({0: 1, 1: 99_999}, 10) == {0: 1, 1: 9}
    assert shared({0: 10, 1: 5}, 15) == shared({0: 10, 1: 5}, 0) == {0: 10, 1: 5}


def _member(piece: Piece, name: str) -> str:
    return piece.ticket.split(f'"{name}": ')[1].split(",")[0]
