"""The rows of a commit as the arrays that `apply_v1` takes."""
# Compiled by mypyc.

from __future__ import annotations

from typing import Final, final

from shardbus.stores.chunked.rows import BRING, CHANGE, COLUMNS, COUNTERS, Cell

Column = list[Cell] | None

_KEY: Final = 1
_BODY: Final = 12
_DATA: Final = 13
_NAME: Final = 14


@final
class Arrays:
    """A column for each argument of `apply_v1`, None where no row has a value.

    Counters are apart: each fragment has some in every commit, and the last ones are meant.
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
                self.counters[local] = data
                continue
            self.mask |= 1 << kind
            if kind in (BRING, CHANGE) and cells[at + _NAME] is not None:
                self.mask |= 1
            others += cells[at : at + COLUMNS]
        for column in range(COLUMNS):
            self._add(others[column::COLUMNS], column)

    def _add(self, cells: list[Cell], column: int) -> None:
        if column != _BODY:
            self.columns.append(_column(cells))
            return
        # A text is the list of the parts that a chunk has in place of a body.
        self.columns.append(_column([None if isinstance(cell, str) else cell for cell in cells]))
        self.columns.append(_column([cell if isinstance(cell, str) else None for cell in cells]))


def _column(cells: list[Cell]) -> Column:
    for cell in cells:
        if cell is not None:
            return cells
    return None
