"""Tables for people that fit the width of the terminal."""

import os
import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence
from typing import Final

from shardbus.app.cli.console import table

Row = tuple[str, ...]

WIDTH_MIN: Final = 40
VALUE_WIDTH_MIN: Final = 20
_GAP: Final = "  "
_CUT: Final = "…"


class Columns:
    """The columns of a table that is not wider than the terminal, as far as they allow it.

    The first row is the heading. Columns in `optional` are left out where every cell is empty or 0,
    and then, in their order, while there is no room. Cells of the columns in `cut` are cut, down to
    the given width or that of the heading, the widest column first.
    """

    def __init__(
        self, rows: Sequence[Row], *, cut: Mapping[str, int], optional: Sequence[str] = ()
    ) -> None:
        heading, cells = rows[0], rows[1:]
        limit = terminal_width()
        self._cut = [name in cut for name in heading]
        self._kept = [
            place
            for place, name in enumerate(heading)
            if name not in optional or any(row[place] not in ("", "0") for row in cells)
        ]
        self._widths = _shrunk(rows, self._kept, cut, limit)
        for name in optional:
            if _total(self._widths) <= limit:
                break
            self._kept = [place for place in self._kept if heading[place] != name]
            self._widths = _shrunk(rows, self._kept, cut, limit)

    def text(self, rows: Sequence[Row]) -> str:
        return "\n".join(map(self._line, rows))

    def _line(self, row: Row) -> str:
        cells = (
            (shortened(row[place], width) if self._cut[place] else row[place]).ljust(width)
            for place, width in zip(self._kept, self._widths, strict=True)
        )
        return _GAP.join(cells).rstrip()


def fitted(rows: Sequence[Row], *, cut: Mapping[str, int], optional: Sequence[str] = ()) -> str:
    """A whole table, in the width of the terminal."""
    return Columns(rows, cut=cut, optional=optional).text(rows)


def list_text(rows: Sequence[Row], *, cut: Mapping[str, int], optional: Sequence[str] = ()) -> str:
    """A list of names: in the width of the terminal, or whole for a pipe, whose reader needs
    them.
    """
    if sys.stdout.isatty() or "COLUMNS" in os.environ:
        return fitted(rows, cut=cut, optional=optional)
    return table(rows)


def facts_text(rows: Sequence[Row]) -> str:
    """Names and values, a line for each; long values continue below in the width of the terminal.

    A value that is one word, such as the name of an entity, stays whole, so that it can be copied.
    For a pipe each value is one line.
    """
    if not (sys.stdout.isatty() or "COLUMNS" in os.environ):
        return table(rows)
    indent = max(len(name) for name, _ in rows) + len(_GAP)
    room = max(VALUE_WIDTH_MIN, terminal_width() - indent)
    lines: list[Row] = []
    for name, value in rows:
        parts = [value]
        if len(value) > room:
            parts = textwrap.wrap(value, room, break_long_words=False, break_on_hyphens=False)
        lines += [(name if place == 0 else "", part) for place, part in enumerate(parts)]
    return table(lines)


def shortened(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(0, width - 1)] + _CUT


def terminal_width() -> int:
    """That of the terminal or of COLUMNS; 80 when neither is known."""
    return max(WIDTH_MIN, shutil.get_terminal_size().columns)


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(_GAP) * max(0, len(widths) - 1)


def _shrunk(
    rows: Sequence[Row], kept: Sequence[int], cut: Mapping[str, int], limit: int
) -> list[int]:
    widths = [max(len(row[place]) for row in rows) for place in kept]
    least = {
        index: max(len(rows[0][place]), cut[rows[0][place]])
        for index, place in enumerate(kept)
        if rows[0][place] in cut
    }
    while _total(widths) > limit:
        wide = [index for index, low in least.items() if widths[index] > low]
        if not wide:
            break
        widths[max(wide, key=lambda index: widths[index])] -= 1
    return widths
