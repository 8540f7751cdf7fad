"""One screen of the demo: a picture in, lines of text out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

from shardbus.demo.picture import (
    Capturing,
    FragmentBar,
    Picture,
    Subscribed,
    duration_text,
    printable,
    size_text,
)

WIDTH_MIN: Final = 20
WIDTH_MAX: Final = 120
CELL_BAR: Final = 9
CELL_WIDTH: Final = 26
WIDE_BAR: Final = 24
BAR_FULL_LEAST: Final = 5
"""This many messages fill a bar, unless a fragment has more."""

PLAIN: Final = ""
BOLD: Final = "1"
DIM: Final = "2"
RED: Final = "31"
GREEN: Final = "32"
YELLOW: Final = "33"
CYAN: Final = "36"

_STATE_COLOURS: Final = {"running": GREEN, "failing": RED, "unavailable": RED}
_EIGHTHS: Final = " ▏▎▍▌▋▊▉█"

Span = tuple[str, str]
"""A text with its colour."""


@final
@dataclass(frozen=True, slots=True)
class Look:
    """The abilities of the terminal."""

    width: int
    height: int
    has_colour: bool = True
    has_blocks: bool = True


@final
@dataclass(frozen=True, slots=True)
class Row:
    """A line; where there is no room, lines of the least weight are left out first, the last of
    them.
    """

    spans: tuple[Span, ...]
    weight: int


def draw(picture: Picture, look: Look) -> list[str]:
    """At most as many lines as the terminal has, none wider than it."""
    width = max(WIDTH_MIN, min(look.width, WIDTH_MAX))
    painter = _Painter(look, width)
    rows = [
        *painter.head(picture),
        *painter.queue(picture),
        *painter.topic(picture),
        *painter.pipeline(picture.capturing),
        *painter.tips(picture),
    ]
    return [_painted(row, look) for row in _fitting(rows, max(1, look.height))]


def bar(share: float, width: int, *, has_blocks: bool) -> str:
    """A bar of exactly that width; a share above 0 is never shown as an empty bar."""
    share = max(0.0, min(share, 1.0))
    if not has_blocks:
        count = max(round(share * width), int(share > 0))
        return "#" * count + "." * (width - count)
    eighths = max(round(share * width * 8), int(share > 0))
    full, part = divmod(eighths, 8)
    return ("█" * full + (_EIGHTHS[part] if part else "")).ljust(width)


@final
class _Painter:
    """The sections, each a list of rows."""

    def __init__(self, look: Look, width: int) -> None:
        self._look = look
        self._width = width

    def head(self, picture: Picture) -> list[Row]:
        left: tuple[Span, ...] = (
            (BOLD, "Shardbus demo"),
            (DIM, f"  up {duration_text(picture.elapsed_s)}  "),
            (PLAIN, picture.place.url),
        )
        rows = [self._spread(left, (DIM, picture.ending or "Ctrl-C ends it"), 9)]
        if picture.problem:
            rows.append(Row(((RED, "! "), (PLAIN, picture.problem)), 8))
        return [*rows, _BLANK]

    def queue(self, picture: Picture) -> list[Row]:
        count = len(picture.fragments)
        kind = f"  queue of {count} fragments" if count != 1 else "  queue"
        there: Span = (
            PLAIN,
            f"{picture.waiting:,} waiting  {picture.scheduled:,} scheduled  "
            f"{picture.dead_letters:,} dead letters",
        )
        counts = picture.counts
        rates = (
            ("sent", picture.sent_per_s, counts.sent),
            ("received", picture.received_per_s, counts.received),
            ("completed", picture.completed_per_s, counts.completed),
        )
        spans: list[Span] = [(PLAIN, " ")]
        for word, per_s, total in rates:
            spans += [(CYAN, f"{per_s:.1f}/s "), (PLAIN, f"{word} "), (DIM, f"{total:,}   ")]
        title = self._spread(((BOLD, picture.queue), (DIM, kind)), there, 7)
        return [title, *self._fragments(picture.fragments), Row(tuple(spans), 7), _BLANK]

    def topic(self, picture: Picture) -> list[Row]:
        if not picture.topic:
            return []
        rate = (PLAIN, f"{picture.published_per_s:.1f}/s sent  {picture.counts.published:,}")
        title = self._spread(((BOLD, picture.topic), (DIM, "  topic")), rate, 5)
        return [title, *map(self._subscription, picture.subscriptions), _BLANK]

    def pipeline(self, capturing: Capturing | None) -> list[Row]:
        if capturing is None:
            return []
        colour = _STATE_COLOURS.get(capturing.state, YELLOW)
        left: tuple[Span, ...] = (
            (BOLD, capturing.name),
            (DIM, "  Spark pipeline "),
            (colour, capturing.state),
        )
        last = (
            f"batch {capturing.batch}: {capturing.batch_rows:,} rows in {capturing.batch_ms:,} ms"
            if capturing.batch_ms
            else ""
        )
        rows = [self._spread(left, (DIM, last), 6)]
        if capturing.note:
            rows.append(Row(((PLAIN, f" {capturing.note}"),), 6))
        if capturing.batch_ms:
            rows += [self._captured(capturing), Row(((DIM, f" {capturing.location}"),), 3)]
        return [*rows, _BLANK]

    def tips(self, picture: Picture) -> list[Row]:
        if picture.capturing is None:
            return []
        found = picture.place.tips(picture.capturing.name, picture.queue)
        title = Row(((DIM, "In another terminal:"),), 2)
        return [title, *(Row(((PLAIN, f" {tip}"),), 2) for tip in found)]

    def _fragments(self, fragments: Sequence[FragmentBar]) -> list[Row]:
        columns = max(1, self._width // CELL_WIDTH)
        lines = -(-len(fragments) // columns)
        most = max([BAR_FULL_LEAST, *(fragment.waiting for fragment in fragments)])
        rows: list[Row] = []
        for line in range(lines):
            cells = fragments[line::lines]
            spans = tuple(span for cell in cells for span in self._cell(cell, most))
            rows.append(Row(spans, 4))
        return rows

    def _cell(self, fragment: FragmentBar, most: int) -> tuple[Span, ...]:
        if not fragment.is_available:
            return ((DIM, f"{fragment.number:>3} "), (RED, "unreachable".ljust(CELL_WIDTH - 4)))
        shown = bar(fragment.waiting / most, CELL_BAR, has_blocks=self._look.has_blocks)
        numbers = f" {fragment.waiting:>4} {fragment.per_s:>4.1f}/s"
        return (
            (DIM, f"{fragment.number:>3} "),
            (CYAN, shown),
            (PLAIN, numbers.ljust(CELL_WIDTH - CELL_BAR - 4)),
        )

    def _subscription(self, found: Subscribed) -> Row:
        left: tuple[Span, ...] = ((PLAIN, f" {found.name:<8} "), (DIM, f"takes {found.rule}"))
        return self._spread(left, (PLAIN, f"{found.waiting:,} waiting"), 5)

    def _captured(self, capturing: Capturing) -> Row:
        total = capturing.rows + capturing.backlog
        share = capturing.rows / total if total else 0.0
        files = (
            f"{capturing.files:,} files, {size_text(capturing.size_bytes)}"
            if capturing.files >= 0
            else ""
        )
        left: tuple[Span, ...] = (
            (GREEN, f" {bar(share, WIDE_BAR, has_blocks=self._look.has_blocks)}"),
            (BOLD, f" {capturing.rows:,} rows captured"),
            (PLAIN, f"  {capturing.backlog:,} waiting"),
        )
        return self._spread(left, (DIM, files), 6)

    def _spread(self, left: Sequence[Span], right: Span, weight: int) -> Row:
        """Text at the left and at the right; the right is left out where both do not fit."""
        used = sum(len(text) for _, text in left)
        gap = self._width - used - len(right[1])
        if gap < 2:
            return Row(tuple(left), weight)
        return Row((*left, (PLAIN, " " * gap), right), weight)


_BLANK: Final = Row((), 1)


def _fitting(rows: Sequence[Row], height: int) -> list[Row]:
    kept = list(rows)
    while kept and not kept[-1].spans:
        kept.pop()
    while len(kept) > height:
        least = min(row.weight for row in kept)
        last = max(index for index, row in enumerate(kept) if row.weight == least)
        del kept[last]
    return kept


def _painted(row: Row, look: Look) -> str:
    room, pieces = min(max(look.width, 1), WIDTH_MAX), list[str]()
    for colour, text in row.spans:
        shown = printable(text[:room])
        room -= len(shown)
        is_painted = look.has_colour and colour and shown.strip()
        pieces.append(f"\x1b[{colour}m{shown}\x1b[0m" if is_painted else shown)
    return "".join(pieces).rstrip()
