"""The statements of a commit about the stages of a slot."""
# Compiled by mypyc.

from __future__ import annotations

from typing import Final, final

from shardbus.core.lifecycle.journal import LIFECYCLE_STAGE
from shardbus.stores.chunked.journal import ClosedPiece
from shardbus.stores.chunked.rows import Rows
from shardbus.stores.chunked.stages import FoundPiece, StageTables
from shardbus.stores.postgres.encoding import Arrays
from shardbus.stores.postgres.link import Link

_APPLY: Final = "SELECT apply_v1({})".format(", ".join(f"${n}" for n in range(1, 18)))
_PIECES: Final = """
SELECT id, parts FROM stage WHERE local = $1 AND stage = $2 AND piece BETWEEN $3 AND $4
"""
_PIECE_ROW: Final = "SELECT id, data FROM stage WHERE local = $1 AND stage = $2 AND piece = $3"
_PUT_PIECE: Final = """
INSERT INTO stage (local, stage, piece, data, parts) VALUES ($1, $2, $3, $4, $5)
"""
_PUT_CLOSED: Final = """
INSERT INTO stage (local, stage, piece, data, parts)
SELECT u.local, $1, u.piece, u.data, '{}'
FROM unnest($2::bigint[], $3::bigint[], $4::bytea[]) AS u(local, piece, data)
"""
_PUT_PART: Final = "INSERT INTO part VALUES ($1, 1, $2)"
_DROP_PIECES: Final = "DELETE FROM stage WHERE id = ANY ($1::bigint[])"
_DROP_PARTS: Final = "DELETE FROM part WHERE id = ANY ($1::bigint[])"


@final
class PostgresStages(StageTables):
    """The stages of a slot, within the transaction of its writer."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def insert_rows(self, rows: Rows) -> None:
        if rows.cells:
            self.apply(Arrays(rows.cells))

    def apply(self, arrays: Arrays) -> None:
        """Apply rows, after the fence."""
        self._link.fetch(_APPLY, arrays.mask, *arrays.columns)

    def find_pieces(self, local: int, stage: bytes, first: int, last: int) -> list[FoundPiece]:
        return [(row[0], row[1]) for row in self._link.fetch(_PIECES, local, stage, first, last)]

    def piece_row(self, local: int, stage: bytes, piece: int) -> tuple[int, bytes]:
        row = self._link.row(_PIECE_ROW, local, stage, piece)
        return (0, b"") if row is None else (row[0], row[1])

    def put_piece(
        self, local: int, stage: bytes, piece: int, packed: bytes, parts: list[int]
    ) -> None:
        self._link.fetch(_PUT_PIECE, local, stage, piece, packed, parts)

    def put_closed(self, pieces: list[ClosedPiece]) -> None:
        self._link.fetch(
            _PUT_CLOSED,
            LIFECYCLE_STAGE,
            [piece[0] for piece in pieces],
            [piece[1] for piece in pieces],
            [piece[2] for piece in pieces],
        )

    def put_part(self, number: int, body: bytes) -> None:
        self._link.fetch(_PUT_PART, number, body)

    def drop_rows(self, pieces: list[int]) -> None:
        self._link.fetch(_DROP_PIECES, pieces)

    def drop_parts(self, parts: list[int]) -> None:
        self._link.fetch(_DROP_PARTS, parts)
