"""A plot of counts over time as SVG: stacked bars."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final, NamedTuple

from shardbus_spark.triage.shapes import visible

WIDTH: Final = 960
HEIGHT: Final = 260
LEFT: Final = 56
RIGHT: Final = 12
TOP: Final = 10
BOTTOM: Final = 34
LABELS_MAX: Final = 5
_GRID: Final = 4
_LABEL_WIDTH: Final = 130


class Series(NamedTuple):
    """Counts by step, drawn in the colour of the class `tone`."""

    name: str
    counts: Sequence[int]
    tone: str


def markup(text: str) -> str:
    """A text as markup: it cannot contain a tag, an attribute or a change of direction."""
    return escape(visible(text), quote=True)


def plot(steps: Sequence[str], series: Sequence[Series]) -> str:
    """The SVG of counts by step, one series above the other."""
    totals = [sum(each.counts[place] for each in series) for place in range(len(steps))]
    top = ceiling(max(totals, default=0))
    parts = [
        f'<svg class="plot" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="Letters over '
        'time; the table below has the numbers">'
    ]
    parts += _grid(top)
    parts += _bars(steps, series, top)
    parts += _labels(steps)
    return "".join([*parts, "</svg>"])


def ceiling(count: int) -> int:
    """A round number, not below the count, that can be divided by the lines of the grid."""
    size = 1
    while True:
        for factor in (4, 8, 12, 20, 40):
            if factor * size >= count:
                return factor * size
        size *= 10


def shown(count: int) -> str:
    """A count of the axis, which has no room for seven digits: exact, since it is round."""
    return f"{count / 1_000_000:,g} M" if count >= 1_000_000 else f"{count:,}"


def _y(count: int, top: int) -> float:
    return HEIGHT - BOTTOM - count * (HEIGHT - BOTTOM - TOP) / top


def _grid(top: int) -> list[str]:
    found = []
    for line in range(_GRID + 1):
        count = top * line // _GRID
        y = _y(count, top)
        found.append(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}">'
            f'</line><text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{shown(count)}</text>'
        )
    return found


def _bars(steps: Sequence[str], series: Sequence[Series], top: int) -> list[str]:
    found = []
    width = (WIDTH - LEFT - RIGHT) / max(len(steps), 1)
    bar = min(max(width - 1.5, width * 0.7), 80)
    for place, step in enumerate(steps):
        below = 0
        x = LEFT + place * width + (width - bar) / 2
        for each in series:
            count = each.counts[place]
            if not count:
                continue
            y, base = _y(below + count, top), _y(below, top)
            found.append(
                f'<rect class="{each.tone}" x="{x:.1f}" y="{y:.1f}" width="{bar:.1f}" '
                f'height="{max(base - y, 0.5):.1f}"><title>'
                f"{markup(f'{step}: {count:,} of {each.name[:80]}')}</title></rect>"
            )
            below += count
    return found


def _labels(steps: Sequence[str]) -> list[str]:
    if not steps:
        return []
    width = (WIDTH - LEFT - RIGHT) / len(steps)
    every = -(-len(steps) // LABELS_MAX)
    has_seconds = any(not step.endswith(":00Z") for step in steps)
    found = []
    for place in range(0, len(steps), every):
        x = LEFT + (place + 0.5) * width
        if x > WIDTH - _LABEL_WIDTH / 2:
            break
        moment = steps[place][: 19 if has_seconds else 16].replace("T", " ")
        found.append(
            f'<text x="{max(x, _LABEL_WIDTH / 2):.1f}" y="{HEIGHT - BOTTOM + 20}" '
            f'text-anchor="middle">{moment}</text>'
        )
    return found
