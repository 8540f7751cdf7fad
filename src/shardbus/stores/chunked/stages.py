"""How a commit puts pieces of stages, drops them, and turns what they keep into chunks.

Its statements run after the rows of the commit are stored, in the order of the changes.
"""
# Compiled by mypyc.

from __future__ import annotations

from typing import Final, final

from shardbus.core.fragment.change import Adopt, StagePut
from shardbus.stores.base.store import NotStored
from shardbus.stores.chunked.batch import Batch
from shardbus.stores.chunked.chunk import counter_of, key_of
from shardbus.stores.chunked.directory import Chunk, Known
from shardbus.stores.chunked.journal import ClosedPiece
from shardbus.stores.chunked.rows import Rows
from shardbus.stores.chunked.staged import Adopted, StagedPiece, unpack_staged

# Chunks that are adopted at once: the heads of so many have two megabytes. A piece may add some.
ADOPT_ROWS_MAX: Final = 256

FoundPiece = tuple[int, list[int]]
"""The row of a piece, and its parts."""


class StageTables:
    """The statements about stages, within the transaction of the commit."""

    def insert_rows(self, rows: Rows) -> None:
        raise NotImplementedError

    def find_pieces(self, local: int, stage: bytes, first: int, last: int) -> list[FoundPiece]:
        """The pieces of a stage between two numbers, both included."""
        raise NotImplementedError

    def piece_row(self, local: int, stage: bytes, piece: int) -> tuple[int, bytes]:
        """The row of a piece and its record; an empty record if there is none."""
        raise NotImplementedError

    def put_piece(
        self, local: int, stage: bytes, piece: int, packed: bytes, parts: list[int]
    ) -> None:
        raise NotImplementedError

    def put_closed(self, pieces: list[ClosedPiece]) -> None:
        """Store pieces of journals."""
        raise NotImplementedError

    def put_part(self, number: int, body: bytes) -> None:
        """Store payloads of a piece, which is their only user."""
        raise NotImplementedError

    def drop_rows(self, pieces: list[int]) -> None:
        """Remove the rows of pieces, without their parts."""
        raise NotImplementedError

    def drop_parts(self, parts: list[int]) -> None:
        raise NotImplementedError


@final
class StageWriter:
    """The stages of one commit."""

    def __init__(self, tables: StageTables, batch: Batch) -> None:
        self._tables = tables
        self._batch = batch
        self._rows = Rows()

    def store(self) -> None:
        if self._batch.closed:
            self._tables.put_closed(self._batch.closed)
        adopted: list[int] = []
        for local, change in self._batch.stages:
            if isinstance(change, Adopt):
                adopted.append(self._adopt(local, change))
                if self._rows.count() >= ADOPT_ROWS_MAX:
                    self._tables.insert_rows(self._rows)
                    self._rows = Rows()
                continue
            if adopted:
                # Must come before their stage is removed, which would remove their parts too.
                self._tables.drop_rows(adopted)
                adopted = []
            if isinstance(change, StagePut):
                self._put_piece(local, change)
            else:
                found = self._tables.find_pieces(local, change.stage, 0, change.until)
                drop_pieces(self._tables, found)
        self._tables.insert_rows(self._rows)
        if adopted:
            self._tables.drop_rows(adopted)

    def _put_piece(self, local: int, change: StagePut) -> None:
        known = self._batch.known
        stage, number = change.stage, change.piece
        if not change.is_new:
            drop_pieces(self._tables, self._tables.find_pieces(local, stage, number, number))
        piece = StagedPiece(local, stage, number, change.data)
        for body in piece.keep(change.payloads, known.next_part):
            self._tables.put_part(known.next_part, body)
            known.next_part += 1
        self._tables.put_piece(local, stage, number, piece.pack(), piece.part_numbers())

    def _adopt(self, local: int, change: Adopt) -> int:
        """Turn the parts of a piece into chunks, in place; returns the row of the piece."""
        name = (local, change.stage, change.piece)
        number, data = self._tables.piece_row(local, change.stage, change.piece)
        piece = unpack_staged(data)
        if piece is None or piece.name() != name or piece.count() != change.count:
            raise NotStored(
                f"piece {change.piece} of a stage is not what is to be published: the fragment "
                "must be loaded again"
            )
        known = self._batch.known
        if local not in known.has_parts:
            known.has_parts.add(local)
            self._rows.has_parts(local)
        position = 0
        for part in piece.parts:
            key = key_of(local, counter_of(change.first) + position)
            self._add_adopted(Adopted(key, part, change, position), known)
            position += part.count
        return number

    def _add_adopted(self, adopted: Adopted, known: Known) -> None:
        chunk = Chunk(
            known.take_number(adopted.first),
            adopted.first,
            adopted.count,
            adopted.size_bytes,
            adopted.due_at_ms,
            adopted.is_mixed,
        )
        self._rows.append(chunk, adopted.head, str([adopted.part]))
        self._batch.directory.add_recent(chunk)


def drop_pieces(tables: StageTables, found: list[FoundPiece]) -> None:
    """Remove pieces with their parts."""
    parts: list[int] = []
    for _, listed in found:
        parts += listed
    if parts:
        tables.drop_parts(parts)
    if found:
        tables.drop_rows([number for number, _ in found])
