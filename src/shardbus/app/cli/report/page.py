"""The report as one self-contained page of HTML: no scripts, no fonts, nothing to load.

Keys and names of receivers are chosen by clients: every text passes through `markup`, and the
policy in the head makes a browser refuse scripts and external resources. Each plot has a table with
the same numbers.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Final

from shardbus.app.cli.api_client import Document
from shardbus.app.cli.console import Json

_POLICY: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
)
_UNSEEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_WIDTH: Final = 960
_HEIGHT: Final = 240
_LEFT: Final = 64
_BOTTOM: Final = 24
_LABELS: Final = 5
_GRID: Final = 2
_NOTHING: Final = "\N{EN DASH}"
# Where an axis may end: at counts whose half is whole, for the line in the middle of the grid, and
# at times that are round in the unit in which they are shown.
_COUNT_TOPS: Final = (2, 4, 6, 8, 10, 12, 14, 16, 18)
_TIME_TOPS_MS: Final = (
    *(2, 4, 10, 20, 40, 100, 200, 400, 1_000, 2_000, 4_000, 6_000, 10_000, 20_000, 40_000),
    *(60_000, 120_000, 240_000, 600_000, 1_200_000, 2_400_000, 3_600_000),
    *(7_200_000, 14_400_000, 28_800_000, 43_200_000, 86_400_000),
)
_DAY_MS: Final = 86_400_000

_STYLE: Final = """
:root { color-scheme: light dark; --back: #fff; --card: #f6f7f9; --text: #1c2430; --dim: #566072;
  --line: #d5dae2; --s0: #2563c9; --s1: #b4530a; --s2: #b3264b; }
@media (prefers-color-scheme: dark) { :root { --back: #12161d; --card: #1b212b; --text: #e6e9ef;
  --dim: #a3adbd; --line: #38414f; --s0: #6ea4f7; --s1: #f0a04b; --s2: #f2799a; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 72rem; padding: 1.5rem; background: var(--back);
  color: var(--text); font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 .25rem; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 2rem 0 .25rem; }
p { color: var(--dim); margin: .25rem 0 .75rem; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(13rem, 1fr));
  gap: .75rem; }
.figures div { background: var(--card); border: 1px solid var(--line); border-radius: 8px;
  padding: .5rem .75rem; } .figures b { display: block; font-size: 1.25rem;
  white-space: nowrap; }
.figures span { color: var(--dim); }
svg { width: 100%; height: auto; display: block; }
svg text { font: 12px system-ui, sans-serif; fill: var(--dim); }
.grid { stroke: var(--line); } .line { fill: none; stroke-width: 2; stroke-linejoin: round; }
.line.s0 { stroke: var(--s0); } .line.s1 { stroke: var(--s1); stroke-dasharray: 6 3; }
.line.s2 { stroke: var(--s2); stroke-dasharray: 2 3; }
.bar { fill: var(--s0); } ul { list-style: none; padding: 0; display: flex; flex-wrap: wrap;
  gap: .25rem 1.5rem; } li svg { display: inline-block; width: 2rem; height: .7rem;
  margin-right: .4rem; }
.wide { overflow-x: auto; } svg.plot { min-width: 52rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid var(--line);
  overflow-wrap: anywhere; } th { color: var(--dim); font-weight: 600; overflow-wrap: normal; }
td:first-child { min-width: 6rem; } .names td:first-child { min-width: 18rem; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; } td.n { white-space: nowrap; }
summary { cursor: pointer; color: var(--dim); }
"""


def page_of(report: Document) -> str:
    """The whole page."""
    title = f"Lifecycle of {report['entity']}"
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{escape(_POLICY)}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{markup(title)}</title><style>{_STYLE}</style></head><body><main>",
        f"<h1>{markup(title)}</h1>",
        f"<p>{_summary(report)}</p>",
    ]
    if whole(report["rows"]):
        parts += [*_figures(report), *_time(report), *_fragments(report), *_keys(report)]
        parts += [*_receivers(report), *_events(report)]
    return "\n".join([*parts, "</main></body></html>", ""])


def markup(text: object) -> str:
    """A text that is neither markup nor invisible."""
    seen = [
        each if unicodedata.category(each) not in _UNSEEN else f"\\u{{{ord(each):x}}}"
        for each in str(text)
    ]
    return escape("".join(seen), quote=True)


def duration(ms: int) -> str:
    """Milliseconds in the largest unit that leaves a number of at least 1."""
    for size_ms, unit in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s")):
        if ms >= size_ms:
            return f"{ms / size_ms:.3g} {unit}"
    return f"{ms} ms"


def whole(value: Json) -> int:
    assert isinstance(value, int)
    return value


def _part(report: Document, name: str) -> Document:
    value = report[name]
    assert isinstance(value, dict)
    return value


def _rows(report: Document, name: str) -> list[Document]:
    value = report[name]
    assert isinstance(value, list)
    return [row for row in value if isinstance(row, dict)]


def _numbers(part: Document, name: str) -> list[int]:
    value = part[name]
    assert isinstance(value, list)
    return [whole(number) for number in value]


def _moment(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S}"


def _summary(report: Document) -> str:
    made = f"as of {markup(report['made_at'])}"
    if not whole(report["rows"]):
        return f"There are no records, {made}."
    first, last = whole(report["first_ms"]), whole(report["last_ms"])
    text = (
        f"{whole(report['rows']):,} records from {_moment(first)} to {_moment(last)} UTC; {made}."
    )
    if not report["is_whole"]:
        text += " There are more: use --rows."
    if damaged := whole(report["damaged_blocks"]):
        text += f" {damaged:,} blocks could not be read."
    return text


def _figures(report: Document) -> Iterable[str]:
    events = _part(report, "events")
    waits, holds = _part(report, "time_in_queue_ms"), _part(report, "time_to_settle_ms")
    enqueued = whole(events.get("enqueue", 0)) + whole(events.get("publish", 0))
    redelivered = sum(whole(count) for count in _part(report, "redeliveries").values())
    shown = [
        (f"{enqueued:,}", "enqueued"),
        (f"{whole(events.get('complete', 0)):,}", "completed"),
        (f"{_time_of(waits, 'p50')} / {_time_of(waits, 'p99')}", "in queue, p50 / p99"),
        (f"{_time_of(holds, 'p50')} / {_time_of(holds, 'p99')}", "to settle, p50 / p99"),
        (f"{redelivered:,}", "redeliveries"),
        (f"{whole(report['lost_locks']):,}", "lost locks"),
        (f"{whole(events.get('dead_letter', 0)):,}", "dead letters"),
        (f"{report['skew']}", "skew: the busiest fragment, 1 is even"),
    ]
    yield '<div class="figures">'
    for value, name in shown:
        yield f"<div><b>{markup(value)}</b><span>{markup(name)}</span></div>"
    yield "</div>"


def _time(report: Document) -> Iterable[str]:
    over = _part(report, "over_time")
    starts, step_ms = _numbers(over, "start_ms"), whole(over["step_ms"])
    if not starts:
        return
    yield "<h2>Throughput</h2>"
    yield f"<p>Messages in each {duration(step_ms)}.</p>"
    flows = [(name, _numbers(over, name)) for name in ("enqueued", "settled", "failed")]
    flowed = [True] * len(starts)
    yield _plot(starts, flows, flowed, axis_count, count_top)
    yield _twin(starts, flows, flowed, _counted)
    yield "<h2>Time in queue</h2>"
    yield (
        "<p>From the enqueueing of a message to its first delivery; without a line, no message was "
        "delivered for the first time.</p>"
    )
    delivered = [bool(count) for count in _numbers(over, "delivered")]
    waits = [("median", _numbers(over, "queue_p50_ms")), ("p99", _numbers(over, "queue_p99_ms"))]
    yield _plot(starts, waits, delivered, duration, time_top)
    yield _twin(starts, waits, delivered, duration)


def _fragments(report: Document) -> Iterable[str]:
    rows = _rows(report, "fragments")
    yield "<h2>Fragments</h2>"
    yield "<p>How many messages each fragment got. Keys choose the fragment.</p>"
    if len(rows) > 1:
        yield _bars([(f"fragment {row['name']}", whole(row["enqueued"])) for row in rows], _counted)
    yield _parties("Fragment", rows)


def _keys(report: Document) -> Iterable[str]:
    rows = _rows(report, "keys")
    if not rows:
        return
    yield "<h2>Hot keys</h2>"
    yield f"<p>The largest of {whole(report['key_count']):,} session ids and partition keys.</p>"
    yield _bars([(str(row["key"]), whole(row["enqueued"])) for row in rows], _counted)
    table = [(str(row["key"]), f"{whole(row['enqueued']):,}", _share(row)) for row in rows]
    yield _table(("Key", "Enqueued", "Share"), table)


def _receivers(report: Document) -> Iterable[str]:
    rows = _rows(report, "receivers")
    if not rows:
        return
    yield "<h2>Receivers</h2>"
    yield (
        f"<p>The slowest of {whole(report['receiver_count']):,} by the 99th percentile of the time "
        "to settle. Clients choose these names.</p>"
    )
    holds = [_part(row, "time_to_settle_ms") for row in rows]
    yield _bars(
        [(str(row["name"]), whole(hold["p99"])) for row, hold in zip(rows, holds, strict=True)],
        duration,
    )
    yield f'<div class="names">{_parties("Receiver", rows)}</div>'


def _events(report: Document) -> Iterable[str]:
    yield "<h2>Events</h2>"
    rows = [(name, f"{whole(count):,}") for name, count in _part(report, "events").items()]
    yield _table(("Event", "Rows"), rows)
    redeliveries = _part(report, "redeliveries")
    if redeliveries:
        yield "<h2>Redeliveries</h2>"
        rows = [(f"after {count} failed", f"{whole(n):,}") for count, n in redeliveries.items()]
        yield _table(("Delivery", "Messages"), rows)


def _time_of(percentiles: Document, rank: str) -> str:
    """A percentile; a dash if no times were measured."""
    return duration(whole(percentiles[rank])) if whole(percentiles["count"]) else _NOTHING


def _share(row: Document) -> str:
    share = row["share"]
    assert isinstance(share, float | int)
    return f"{100 * share:.1f} %"


def _parties(noun: str, rows: Sequence[Document]) -> str:
    """A row for each fragment or receiver; receivers enqueue nothing."""
    is_home = noun == "Fragment"
    head = ["Locked", "Settled", "Abandoned", "Lost locks"]
    head += ["In queue p50", "In queue p99", "To settle p50", "To settle p99"]
    table: list[list[str]] = []
    for row in rows:
        names = ("locked", "settled", "abandoned", "lost_locks")
        counts = [f"{whole(row[name]):,}" for name in names]
        waits, holds = _part(row, "time_in_queue_ms"), _part(row, "time_to_settle_ms")
        times = [_time_of(part, rank) for part in (waits, holds) for rank in ("p50", "p99")]
        sent = [f"{whole(row['enqueued']):,}", _share(row)] if is_home else []
        table.append([str(row["name"]), *sent, *counts, *times])
    return _table([noun, *(["Enqueued", "Share"] if is_home else []), *head], table)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The first column is text, the others are numbers."""
    parts = ['<div class="wide"><table><thead><tr>']
    parts += [_cell("th", place, text) for place, text in enumerate(head)]
    parts.append("</tr></thead><tbody>")
    for row in rows:
        cells = "".join(_cell("td", place, text) for place, text in enumerate(row))
        parts.append(f"<tr>{cells}</tr>")
    parts.append("</tbody></table></div>")
    return "".join(parts)


def _cell(tag: str, place: int, text: str) -> str:
    kind = ' class="n"' if place else ""
    return f"<{tag}{kind}>{markup(text[:200])}</{tag}>"


def _twin(
    starts: Sequence[int],
    series: Sequence[tuple[str, list[int]]],
    is_known: Sequence[bool],
    said: Callable[[int], str],
) -> str:
    """The numbers of a plot as a table."""
    rows = [
        (_moment(start), *(said(values[place]) for _, values in series))
        for place, start in enumerate(starts)
        if is_known[place] and any(values[place] for _, values in series)
    ]
    table = _table(("From (UTC)", *(name for name, _ in series)), rows)
    return f"<details><summary>The numbers of the plot</summary>{table}</details>"


def count_top(most: int) -> int:
    """The end of an axis of messages: a round number, at least `most`, whose half is whole."""
    size = 1
    while True:
        for factor in _COUNT_TOPS:
            if factor * size >= most:
                return factor * size
        size *= 10


def time_top(most_ms: int) -> int:
    """The end of an axis of times: a round time, at least `most_ms`, whose half is round."""
    for top_ms in _TIME_TOPS_MS:
        if top_ms >= most_ms:
            return top_ms
    return count_top(-(-most_ms // _DAY_MS)) * _DAY_MS


def _plot(
    starts: Sequence[int],
    series: Sequence[tuple[str, list[int]]],
    is_known: Sequence[bool],
    said: Callable[[int], str],
    top_of: Callable[[int], int],
) -> str:
    """Lines over time, distinguished by colour and dashes, with gaps where nothing is known."""
    top = top_of(max(max(values) for _, values in series))
    parts = [
        '<div class="wide" tabindex="0" role="group">'
        f'<svg class="plot" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        'aria-label="A plot over time">'
    ]
    for line in range(_GRID + 1):
        y = _y(top * line // _GRID, top)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - 8}" y1="{y}" y2="{y}"></line>')
        label = markup(said(top * line // _GRID))
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4}" text-anchor="end">{label}</text>')
    parts += _moments(starts)
    for tone, (_, values) in enumerate(series):
        parts += _lines(values, is_known, top, tone)
    parts.append("</svg></div><ul>")
    for tone, (name, _) in enumerate(series):
        parts.append(
            f'<li><svg viewBox="0 0 30 10" aria-hidden="true"><line class="line s{tone}" x1="0" '
            f'x2="30" y1="5" y2="5"></line></svg>{markup(name)}</li>'
        )
    return "".join([*parts, "</ul>"])


def _moments(starts: Sequence[int]) -> Iterable[str]:
    """The labels of the axis of time: the first and the last, and some in between."""
    last = len(starts) - 1
    for place in sorted({last * label // (_LABELS - 1) for label in range(_LABELS)}):
        anchor = "start" if place == 0 else "end" if place == last else "middle"
        label = markup(_moment(starts[place])[5:])
        x = f"{_x(place, len(starts)):.1f}"
        yield f'<text x="{x}" y="{_HEIGHT - 6}" text-anchor="{anchor}">{label}</text>'


def _lines(values: Sequence[int], is_known: Sequence[bool], top: int, tone: int) -> Iterable[str]:
    """One line for each run of neighbouring known values; a single value is a short line."""
    places = [place for place, known in enumerate(is_known) if known]
    runs: list[list[int]] = []
    for place in places:
        if runs and runs[-1][-1] == place - 1:
            runs[-1].append(place)
        else:
            runs.append([place])
    for run in runs:
        points = [(_x(place, len(values)), _y(values[place], top)) for place in run]
        if len(points) == 1:
            x, y = points[0]
            points = [(max(x - 4, _LEFT), y), (min(x + 4, _WIDTH - 8), y)]
        drawn = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        yield f'<polyline class="line s{tone}" points="{drawn}"></polyline>'


def _x(place: int, count: int) -> float:
    return _LEFT + (_WIDTH - _LEFT - 8) * place / max(count - 1, 1)


def _y(value: int, top: int) -> float:
    bottom = _HEIGHT - _BOTTOM
    return bottom - (bottom - 12) * value / top


def axis_count(count: int) -> str:
    """A count of an axis, which has no room for eight digits: exact, since it is round."""
    return f"{count / 1_000_000:,g} M" if count >= 1_000_000 else f"{count:,}"


def _counted(count: int) -> str:
    return f"{count:,}"


def _bars(rows: Sequence[tuple[str, int]], said: Callable[[int], str]) -> str:
    top = max((value for _, value in rows), default=0) or 1
    height = 22 * len(rows)
    parts = [
        '<div class="wide" tabindex="0" role="group">'
        f'<svg class="plot" viewBox="0 0 {_WIDTH} {height}" role="img" '
        'aria-label="A bar for each row">'
    ]
    for place, (name, value) in enumerate(rows):
        y, wide = 22 * place, 560 * value / top
        label = markup(name if len(name) <= 36 else f"{name[:17]}…{name[-18:]}")
        parts.append(f'<text x="250" y="{y + 15}" text-anchor="end">{label}</text>')
        parts.append(
            f'<rect class="bar" x="258" y="{y + 4}" width="{wide:.1f}" height="14"></rect>'
        )
        parts.append(f'<text x="{264 + wide:.1f}" y="{y + 15}">{said(value)}</text>')
    return "".join([*parts, "</svg></div>"])
