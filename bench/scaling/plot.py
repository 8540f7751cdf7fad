"""The rates as a plot: a line for each number of stores, and what would be linear."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log2
from typing import Final

from bench.scaling.load import Rate

WIDTH: Final = 640
HEIGHT: Final = 400
LEFT: Final = 72
RIGHT: Final = 150
TOP: Final = 44
BOTTOM: Final = 52
COLOURS: Final = ("#1f6feb", "#c2410c", "#15803d", "#7c3aed")
_STYLE: Final = "text{font:13px system-ui,sans-serif;fill:#333}.axis{stroke:#999}.grid{stroke:#eee}"


def svg(rates: Mapping[int, Sequence[Rate]], share: float) -> str:
    """By number of stores; both axes double from line to line, so that linear is straight."""
    scale = _Scale([rate for line in rates.values() for rate in line])
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="Messages a second by brokers">',
        f'<style>{_STYLE}</style><rect width="100%" height="100%" fill="#fff"/>',
        f'<text x="{LEFT}" y="24">Accepted messages a second; each broker has '
        f"{share:.0%} of a processor</text>",
        *scale.axes(),
    ]
    labels: list[tuple[float, str, str]] = []
    for colour, (stores, line) in zip(COLOURS, rates.items(), strict=False):
        points = [(scale.x(rate.brokers), scale.y(rate.messages_s)) for rate in line]
        parts.append(_line(points, colour, ""))
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>' for x, y in points]
        labels.append((points[-1][1], f"{stores} store{'s' * (stores > 1)}", colour))
    first = next(iter(rates.values()))[0].messages_s
    ends = [(scale.x(count), scale.y(first * count)) for count in (1, scale.brokers_max)]
    parts.append(_line(ends, "#666", ' stroke-dasharray="5 4"'))
    labels.append((ends[-1][1], "linear, 1 store", "#666"))
    x = WIDTH - RIGHT + 12
    for y, text, colour in _apart(labels):
        parts.append(f'<text x="{x}" y="{y + 4:.1f}" style="fill:{colour}">{text}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


class _Scale:
    def __init__(self, rates: Sequence[Rate]) -> None:
        self.brokers_max = max(rate.brokers for rate in rates)
        least = min(rate.messages_s / rate.brokers for rate in rates) * 0.8
        most = max(
            max(rate.messages_s for rate in rates),
            max(rate.messages_s for rate in rates if rate.brokers == 1) * self.brokers_max,
        )
        self._low, self._high = log2(least), log2(most * 1.15)

    def x(self, brokers: int) -> float:
        return LEFT + 24 + log2(brokers) / log2(self.brokers_max) * (WIDTH - LEFT - RIGHT - 48)

    def y(self, rate: float) -> float:
        part = (log2(rate) - self._low) / (self._high - self._low)
        return HEIGHT - BOTTOM - part * (HEIGHT - TOP - BOTTOM)

    def axes(self) -> list[str]:
        right, floor = WIDTH - RIGHT, HEIGHT - BOTTOM
        parts = [f'<path class="axis" d="M{LEFT} {TOP}V{floor}H{right}" fill="none"/>']
        marks = [step * 10**power for power in range(1, 6) for step in (1, 2, 5)]
        for mark in marks:
            if self._low <= log2(mark) <= self._high:
                y = self.y(mark)
                parts.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{right}"/>')
                parts.append(
                    f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{mark:,}</text>'
                )
        count = 1
        while count <= self.brokers_max:
            x = self.x(count)
            parts.append(f'<text x="{x:.1f}" y="{floor + 20}" text-anchor="middle">{count}</text>')
            count *= 2
        middle = (LEFT + right) / 2
        parts.append(
            f'<text x="{middle:.0f}" y="{HEIGHT - 10}" text-anchor="middle">brokers</text>'
        )
        return parts


def _line(points: Sequence[tuple[float, float]], colour: str, more: str) -> str:
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    return f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"{more}/>'


def _apart(labels: Sequence[tuple[float, str, str]]) -> list[tuple[float, str, str]]:
    """Labels from top to bottom, none over another."""
    placed: list[tuple[float, str, str]] = []
    for y, text, colour in sorted(labels):
        least = placed[-1][0] + 17 if placed else y
        placed.append((max(y, least), text, colour))
    return placed
