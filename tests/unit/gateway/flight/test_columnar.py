"""Messages that are encoded column by column are those that are encoded row by row (P3)."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from shardbus.core.message_fields import SENT_TEXTS
from shardbus.gateway.flight.writing import sinking
from shardbus.gateway.flight.writing.columnar import encoded_at_once, in_sections_at_once
from shardbus.gateway.flight.writing.pieces import PieceGatherer
from shardbus.gateway.flight.writing.sinking import drafts_of
from shardbus.message.sections import encode_batch

TEXTS = pa.map_(pa.string(), pa.string())
NAMES = [each.column for each in SENT_TEXTS if each.column]
LENGTHS = (0, 1, 5, 20, 60, 120, 250, 254, 255, 256, 300, 70_000)


def row_by_row(batch: pa.RecordBatch, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    with monkeypatch.context() as patch:
        patch.setattr(sinking, "is_encoded_here", lambda names: False)
        return drafts_of(batch).encoded()


def text(dice: random.Random, longest: int) -> str:
    length = dice.choice([each for each in LENGTHS if each <= longest])
    return dice.choice(["é" * (length // 2), "ab" * (length // 2) + "c" * (length % 2)])


def column(dice: random.Random, rows: int, longest: int) -> list[str | None]:
    nulls = dice.choice([0.0, 0.0, 0.0, 0.2, 1.0])
    return [None if dice.random() < nulls else text(dice, longest) for _ in range(rows)]


def maps(dice: random.Random, rows: int, longest: int) -> list[list[tuple[str, str | None]] | None]:
    is_odd = dice.random() < 0.2
    found: list[list[tuple[str, str | None]] | None] = []
    for _ in range(rows):
        pairs: list[tuple[str, str | None]] = [
            (f"{at}{text(dice, 5)}", text(dice, longest)) for at in range(dice.randrange(1, 4))
        ]
        if is_odd:
            pairs = dice.choice([pairs, [], [("a", None)], pairs * 60])
        found.append(None if is_odd and dice.random() < 0.1 else pairs)
    return found


def batch_of(dice: random.Random) -> pa.RecordBatch:
    rows = dice.randrange(1, 12)
    longest = dice.choice([5, 20, 60, 70_000])
    names = dice.sample(NAMES, dice.randrange(0, 4))
    columns: dict[str, pa.Array[pa.Scalar[pa.DataType]]] = {
        name: pa.array(column(dice, rows, longest), pa.string()) for name in names
    }
    if dice.random() < 0.7:
        columns["properties"] = pa.array(maps(dice, rows, longest), TEXTS)
    if dice.random() < 0.9:
        bodies = pa.array(column(dice, rows, 70_000), pa.string())
        columns["body"] = bodies if dice.random() < 0.5 else bodies.cast(pa.binary())
    if not columns:
        columns["subject"] = pa.array(["s"] * rows)
    whole = pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
    first = dice.randrange(rows)
    return whole.slice(first, dice.randrange(1, rows - first + 1))


def test_both_ways_give_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    dice = random.Random(5)
    at_once = 0
    for _ in range(600):
        batch = batch_of(dice)
        found = encoded_at_once(batch)
        if found is not None:
            at_once += 1
            assert found.to_pylist() == row_by_row(batch, monkeypatch), batch.to_pydict()
            assert drafts_of(batch).encoded() == found.to_pylist()
            carried = in_sections_at_once(batch)
            assert carried is not None
            messages = [message or b"" for message in found.to_pylist()]
            assert carried.to_pylist() == [encode_batch([message]) for message in messages]
    # Both kinds of batches must come often for this to say anything.
    assert 100 < at_once < 500


def test_rows_of_a_sink_are_encoded_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = pa.RecordBatch.from_pydict(
        {
            "message_id": [f"order-{number}" for number in range(1_000)],
            "partition_key": [f"customer-{number % 7}" for number in range(1_000)],
            "properties": pa.array([[("kind", "order"), ("n", "1")]] * 1_000, TEXTS),
            "body": [b"x" * number for number in range(1_000)],
        }
    )

    drafts = drafts_of(batch)

    assert drafts.messages is not None
    assert drafts.encoded() == row_by_row(batch, monkeypatch)
    assert drafts.places([0, 1 << 14]) != []


def test_rows_without_keys_are_the_same_pieces_and_digest_either_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    batches = [
        pa.RecordBatch.from_pydict({"body": [b"%d" % row + bytes(30_000) for row in range(100)]}),
        pa.RecordBatch.from_pydict({"body": [b"%d" % row for row in range(5_000)]}),
        pa.RecordBatch.from_pydict({"body": [b"last", bytes(1_000_000), b"", b"one"]}),
    ]

    def put() -> tuple[list[bytes], str]:
        pieces, found = PieceGatherer(), []
        for batch in batches:
            pieces.take_in(drafts_of(batch))
            while piece := pieces.next():
                found.append(bytes(piece.content()))
        return found + [bytes(piece.content()) for piece in pieces.rest()], pieces.digest()

    assert drafts_of(batches[0]).sections is not None
    at_once = put()
    monkeypatch.setattr(sinking, "is_encoded_here", lambda names: False)

    assert put() == at_once
