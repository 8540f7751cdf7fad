"""The rows of a commit as the arrays that `apply_v1` takes."""
# Compiled by mypyc.

from __future__ import annotations

from typing import Final, final

from shardbus.stores.chunked.chunk import COUNTERS_BYTES
from shardbus.stores.chunked.rows import BRING, CHANGE, COLUMNS, COUNTERS, Cell

Column = list[Cell] | None

_KEY: Final = 1
_HEAD: Final = 11
_BODY: Final = 12
_DATA: Final = 13
_NAME: Final = 14
# After counters: there is no open piece (any more). Without it `commit_v1` leaves the one that is
# there, as it must for nodes of earlier builds.
_NO_PIECE: Final = b"\x00"


@final
class Arrays:
    """A column for each argument of `apply_v1`, None where no row has a value.

    Counters are separate: each fragment has some in every commit, and the last ones count.
    """

    def __init__(self, cells: list[Cell]) -> None:
        self.counters: dict[int, bytes] = {}
        self.mask = 0
        self.columns: list[Column] = []
        others: list[Cell] = []
        for at in range(0, len(cells), COLUMNS):
            kind = cells[at]
            assert isinstance(kind, int)
            if kind == COUNTERS:
                local, data = cells[at + _KEY], cells[at + _DATA]
                assert isinstance(local, int) and isinstance(data, bytes)
                self.counters[local] = data if len(data) > COUNTERS_BYTES else data + _NO_PIECE
                continue
            self.mask |= 1 << kind
            if kind in (BRING, CHANGE) and cells[at + _NAME] is not None:
                self.mask |= 1
            others += cells[at : at + COLUMNS]
        for column in range(COLUMNS):
            self._add(others[column::COLUMNS], column)

    def size_bytes(self) -> int:
        """The size of all values that are bytes."""
        total = 0
        for column in self.columns:
            if column is None:
                continue
            for cell in column:
                if isinstance(cell, bytes):
                    total += len(cell)
        return total

    def _add(self, cells: list[Cell], column: int) -> None:
        if column != _BODY:
            self.columns.append(_column(cells))
            return
        # A text instead of a body is the list of the chunk's parts.
        self.columns.append(_column([None if isinstance(cell, str) else cell for cell in cells]))
        self.columns.append(_column([cell if isinstance(cell, str) else None for cell in cells]))


def divided(cells: list[Cell], bytes_max: int) -> list[Arrays]:
    """Divide rows into pieces of at most this size, or of one row; counters come first."""
    pieces: list[Arrays] = []
    start = 0
    size_bytes = 0
    for at in range(0, len(cells), COLUMNS):
        row_bytes = 0
        for cell in cells[at + _HEAD : at + COLUMNS]:
            if isinstance(cell, bytes):
                row_bytes += len(cell)
        if at > start and size_bytes + row_bytes > bytes_max:
            pieces.append(Arrays(cells[start:at]))
            start = at
            size_bytes = 0
        size_bytes += row_bytes
    pieces.append(Arrays(cells[start:] if start else cells))
    for piece in pieces[1:]:
        pieces[0].counters.update(piece.counters)
    return pieces


def _column(cells: list[Cell]) -> Column:
    for cell in cells:
        if cell is not None:
            return cells
    return None
