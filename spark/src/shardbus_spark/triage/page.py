"""The report as one HTML page without scripts, fonts or anything else to load.

Everything that comes from letters passes through `markup`; the policy in the head makes a browser
refuse anything that markup does not escape.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from shardbus_spark.triage.plot import Series, markup, plot
from shardbus_spark.triage.report import Group, Report

SERIES_MAX: Final = 5
"""The largest groups have a colour each; the rest share one."""
_REST: Final = "all others"
_MOMENTS: Final = frozenset({"Enqueued", "Last"})
_POLICY: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
)

_STYLE: Final = """
:root { color-scheme: light dark; --back: #fff; --card: #f6f7f9; --text: #1c2430; --dim: #566072;
  --line: #d5dae2; --s0: #2563c9; --s1: #b4530a; --s2: #0f7b5f; --s3: #8b3fb8; --s4: #b3264b;
  --s5: #7a8496; }
@media (prefers-color-scheme: dark) { :root { --back: #12161d; --card: #1b212b; --text: #e6e9ef;
  --dim: #a3adbd; --line: #38414f; --s0: #6ea4f7; --s1: #f0a04b; --s2: #46c49c; --s3: #c68cf0;
  --s4: #f2799a; --s5: #8d97a8; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 72rem; padding: 1.5rem; background: var(--back);
  color: var(--text); font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 .25rem; overflow-wrap: anywhere; } h2 { font-size: 1.1rem;
  margin: 2rem 0 .5rem; }
p, .dim { color: var(--dim); } p { margin: .25rem 0 1rem; }
code { font: 13px/1.45 ui-monospace, monospace; overflow-wrap: anywhere; white-space: pre-wrap; }
svg { width: 100%; height: auto; display: block; }
svg text { font: 12px system-ui, sans-serif; fill: var(--dim); }
.grid { stroke: var(--line); } .s0 { fill: var(--s0); } .s1 { fill: var(--s1); }
.s2 { fill: var(--s2); } .s3 { fill: var(--s3); } .s4 { fill: var(--s4); } .s5 { fill: var(--s5); }
.wide { overflow-x: auto; } table { border-collapse: collapse; width: 100%; min-width: 44rem; }
svg.plot { min-width: 52rem; }
th, td { text-align: left; vertical-align: top; padding: .35rem .6rem;
  border-bottom: 1px solid var(--line); } th { color: var(--dim); font-weight: 600; }
td { overflow-wrap: anywhere; } td time, td a { white-space: nowrap; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
ul.key { list-style: none; padding: 0; display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; }
ul.key li { overflow-wrap: anywhere; }
ul.key svg { display: inline-block; width: .8rem; height: .8rem; margin-right: .4rem; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 8px;
  padding: .75rem 1rem; margin: .75rem 0; } section h3 { margin: 0; font-size: 1rem;
  overflow-wrap: anywhere; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1rem; margin: .5rem 0; }
dt { color: var(--dim); } dd { margin: 0; overflow-wrap: anywhere; min-width: 0; }
summary { cursor: pointer; color: var(--dim); } details { margin: .5rem 0; }
a { color: var(--s0); }
"""


def page_of(report: Report) -> str:
    """The whole page."""
    names = ", ".join(report["entities"][:3])
    more = len(report["entities"]) - 3
    title = f"Dead letters of {names}{f' and {more} more' if more > 0 else ''}"
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{escape(_POLICY)}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{markup(title)}</title><style>{_STYLE}</style></head><body><main>",
        f"<h1>{markup(title)}</h1>",
        f"<p>{_summary(report)}</p>",
    ]
    if report["groups"]:
        parts += [*_plot(report), *_overview(report), "<h2>The groups</h2>"]
        parts += map(_group, report["groups"])
    return "\n".join([*parts, "</main></body></html>", ""])


def _summary(report: Report) -> str:
    made = f"as of {markup(report['made_at'])}"
    if not report["letters"]:
        return f"There are none, {made}."
    listed = len(report["groups"])
    rest = report["group_count"] - listed
    cut = f" (the {listed:,} largest are listed)" if rest > 0 else ""
    return (
        f"{report['letters']:,} dead letters in {report['group_count']:,} "
        f"{'group' if report['group_count'] == 1 else 'groups'}{cut}, enqueued from "
        f"{markup(report['first_at'])} to {markup(report['last_at'])}; {made}."
    )


def _series(report: Report) -> list[Series]:
    largest = report["groups"][:SERIES_MAX]
    found = [
        Series(_name(group), group["over_time"], f"s{place}") for place, group in enumerate(largest)
    ]
    rest = [
        total - sum(group["over_time"][place] for group in largest)
        for place, total in enumerate(report["over_time"])
    ]
    return [*found, Series(_REST, rest, "s5")] if any(rest) else found


def _name(group: Group) -> str:
    return f"{group['id']} {group['reason'] or '(no reason)'}"


def _plot(report: Report) -> Iterable[str]:
    series = _series(report)
    yield "<h2>Over time</h2>"
    yield (
        f"<p>When the letters were enqueued, in steps of {_duration(report['step_s'])}, by group. "
        "The table below the plot has the same numbers.</p>"
    )
    yield f'<div class="wide" tabindex="0" role="group">{plot(report["steps"], series)}</div>'
    yield '<ul class="key">'
    for each in series:
        yield (
            f'<li><svg viewBox="0 0 10 10" aria-hidden="true"><rect class="{each.tone}" width="10" '
            f'height="10" rx="2"></rect></svg>{markup(each.name[:80])}</li>'
        )
    yield "</ul>"
    yield "<details><summary>The numbers of the plot</summary>"
    yield _table(
        ("Enqueued from", *(each.name.split(" ")[0] if each.name != _REST else _REST
         for each in series)),
        [
            (step, *(f"{each.counts[place]:,}" for each in series))
            for place, step in enumerate(report["steps"])
            if any(each.counts[place] for each in series)
        ],
        numbers=range(1, len(series) + 1),
    )  # fmt: skip
    yield "</details>"


def _overview(report: Report) -> Iterable[str]:
    yield "<h2>Overview</h2>"
    has_many = len(report["entities"]) > 1
    heading = ("Group", "Letters", "Reason", "Subject", "Last", *(("Entity",) if has_many else ()))
    rows = []
    for group in report["groups"]:
        cells = (group["id"], f"{group['count']:,}", group["reason"], group["subject"])
        entity = (group["entity"],) if has_many else ()
        rows.append((*cells, group["last_at"], *entity))
    yield _table(heading, rows, numbers=(1,), links=True)


def _group(group: Group) -> str:
    facts = [
        ("Entity", group["entity"]),
        ("Reason", group["reason"]),
        ("Description", group["description"]),
        ("Source", group["source"]),
        ("Subject", group["subject"]),
        ("Content", group["shape"]),
        ("Enqueued", f"{group['first_at']} to {group['last_at']}"),
    ]
    listed = "".join(f"<dt>{name}</dt><dd>{markup(text)}</dd>" for name, text in facts if text)
    samples = [
        (
            str(sample["sequence_number"]),
            sample["message_id"],
            sample["enqueued_at"],
            str(sample["delivery_count"]),
            sample["excerpt"],
        )
        for sample in group["samples"]
    ]
    heading = ("Number", "Message id", "Enqueued", "Deliveries", "Body")
    letters = "letter" if group["count"] == 1 else "letters"
    return (
        f'<section id="g-{markup(group["id"])}"><h3>{markup(_name(group))} '
        f'<span class="dim">{group["count"]:,} {letters}</span></h3><dl>{listed}</dl>'
        f"<details open><summary>Samples</summary>{_table(heading, samples, code=4)}"
        "</details></section>"
    )


def _table(
    heading: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    numbers: Iterable[int] = (),
    code: int = -1,
    links: bool = False,
) -> str:
    right = set(numbers)

    def cell(place: int, text: str) -> str:
        shown = markup(text)
        if place == code:
            shown = f"<code>{shown}</code>"
        elif heading[place] in _MOMENTS:
            shown = f"<time>{shown}</time>"
        elif links and place == 0:
            shown = f'<a href="#g-{shown}">{shown}</a>'
        return f'<td class="n">{shown}</td>' if place in right else f"<td>{shown}</td>"

    names = "".join(
        f'<th scope="col"{" class=n" if place in right else ""}>{markup(name)}</th>'
        for place, name in enumerate(heading)
    )
    body = "".join(
        f"<tr>{''.join(cell(place, text) for place, text in enumerate(row))}</tr>" for row in rows
    )
    return (
        f'<div class="wide" tabindex="0" role="group"><table><thead><tr>{names}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _duration(seconds: int) -> str:
    for unit, length in (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1)):
        if seconds % length == 0:
            count = seconds // length
            return f"{count} {unit}" if count == 1 else f"{count} {unit}s"
    raise AssertionError("a second divides everything")
