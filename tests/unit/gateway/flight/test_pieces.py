"""Rows gathered into pieces, those of a fragment together (P3)."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from shardbus.core.errors import TOO_LARGE
from shardbus.core.namespace.placement import even_hash_starts, fragment_at, hash_point
from shardbus.gateway.flight.writing.drafts import Drafts
from shardbus.gateway.flight.writing.pieces import (
    HELD_BYTES_MAX,
    MESSAGE_BYTES_MAX,
    PIECE_BYTES_MAX,
    PIECE_COUNT_MAX,
    Piece,
    PieceGatherer,
)
from shardbus.gateway.flight.writing.sinking import drafts_of
from shardbus.message.sections import decode_message, split_batch
from tests.support.refusals import refusal_of

FRAGMENTS = 16
Row = tuple[str | None, bytes]
"""A key and a body."""
_TYPES: dict[str, pa.DataType] = {"partition_key": pa.string(), "body": pa.binary()}


def drafts(rows: list[Row]) -> Drafts:
    documents = [{"partition_key": key, "body": body} for key, body in rows]
    return drafts_of(pa.RecordBatch.from_pylist(documents, pa.schema(_TYPES)))


def gathered(batches: list[list[Row]], fragments: int = FRAGMENTS) -> list[list[Row]]:
    """All pieces; how many fragments there are is known once the first one was sent."""
    pieces = PieceGatherer()
    found: list[Piece] = []
    for batch in batches:
        pieces.take_in(drafts(batch))
        while piece := pieces.next():
            found.append(piece)
            pieces.spread(fragments)
    found += pieces.rest()
    return [rows_of(piece) for piece in found]


def rows_of(piece: Piece) -> list[Row]:
    content = bytes(piece.content())
    assert len(content) == piece.size_bytes
    rows = [_row(payload) for payload in split_batch(content)]
    assert len(rows) == piece.count
    return rows


def _row(payload: bytes) -> Row:
    message = decode_message(payload)
    assert isinstance(message.body, bytes)
    return message.head.partition_key, message.body


def fragment_of(key: str) -> int:
    return fragment_at(hash_point(key), even_hash_starts(FRAGMENTS))


def keyed(count: int, size_bytes: int, *, keys: int = 100) -> list[Row]:
    return [(f"k{row % keys}", row.to_bytes(4) + bytes(size_bytes - 4)) for row in range(count)]


def test_rows_without_keys_are_in_order() -> None:
    rows: list[Row] = [(None, bytes([row]) * 300_000) for row in range(10)]

    pieces = gathered([rows[:4], rows[4:]])

    assert [row for piece in pieces for row in piece] == rows
    assert [len(piece) for piece in pieces] == [3, 3, 3, 1]


def test_rows_of_an_entity_that_is_not_partitioned_are_in_order() -> None:
    rows = keyed(20, 300_000)

    pieces = gathered([rows], fragments=1)

    assert [row for piece in pieces for row in piece] == rows


def test_pieces_with_keys_are_of_one_fragment_while_there_are_many_rows() -> None:
    rows = keyed(3_000, 10_000)

    first, *others = gathered([rows[:1_000], rows[1_000:]])

    assert len({fragment_of(str(key)) for key, _ in first}) > 1
    sizes = [sum(len(body) for _, body in piece) for piece in others]
    held = next(at for at in range(len(others)) if sum(sizes[at:]) <= HELD_BYTES_MAX)
    for piece in others[:held]:
        assert len({fragment_of(str(key)) for key, _ in piece}) == 1
        assert sum(len(body) for _, body in piece) > HELD_BYTES_MAX / FRAGMENTS / 2
    assert held >= 15


def test_the_rest_is_packed_into_few_pieces() -> None:
    rows = keyed(400, 10_000)

    pieces = gathered([rows])

    assert len(pieces) == 5


def test_a_piece_has_not_too_many_rows() -> None:
    pieces = gathered([[(None, b"x")] * (2 * PIECE_COUNT_MAX + 1)])

    assert [len(piece) for piece in pieces] == [PIECE_COUNT_MAX, PIECE_COUNT_MAX, 1]


def test_a_row_that_is_larger_than_a_piece_is_one_behind_those_before_it() -> None:
    large = bytes(3 * PIECE_BYTES_MAX)

    pieces = gathered([[(None, b"a"), (None, large), (None, b"b")], [(None, large), (None, b"c")]])

    assert pieces == [
        [(None, b"a")],
        [(None, large)],
        [(None, b"b")],
        [(None, large)],
        [(None, b"c")],
    ]


def test_a_row_that_no_entity_takes_is_refused_by_its_number() -> None:
    pieces = PieceGatherer()
    pieces.take_in(drafts([(None, b"x")] * 3))
    assert pieces.next() is None
    pieces.take_in(drafts([(None, b"x"), (None, bytes(MESSAGE_BYTES_MAX))]))
    piece = pieces.next()
    assert piece is not None
    assert piece.count == 4

    with refusal_of(TOO_LARGE, "Row 4") as caught:
        pieces.next()

    assert caught.value.kind is TOO_LARGE


def batches_with(*keys: str | None) -> st.SearchStrategy[list[tuple[str | None, int]]]:
    return st.lists(st.tuples(st.sampled_from(keys), st.integers(1, 900_000)), max_size=12)


@given(
    st.lists(batches_with(None, "a", "b", "c", "d") | batches_with(None), max_size=5),
    st.sampled_from([1, 2, FRAGMENTS]),
)
def test_every_row_is_in_one_piece_and_rows_of_a_key_keep_their_order(
    sizes: list[list[tuple[str | None, int]]], fragments: int
) -> None:
    number = 0
    batches: list[list[Row]] = []
    for batch in sizes:
        rows: list[Row] = []
        for key, size_bytes in batch:
            number += 1
            rows.append((key, number.to_bytes(4) + bytes(size_bytes)))
        batches.append(rows)

    pieces = gathered(batches, fragments)

    assert _by_key(pieces) == _by_key(batches)
    for piece in pieces:
        assert 0 < sum(len(body) for _, body in piece) <= PIECE_BYTES_MAX


def _by_key(groups: list[list[Row]]) -> dict[str | None, list[bytes]]:
    found: dict[str | None, list[bytes]] = {}
    for rows in groups:
        for key, body in rows:
            found.setdefault(key, []).append(body)
    return found
