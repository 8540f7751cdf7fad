"""Output about pipelines: a table, a list, and one line that is updated in place."""

from __future__ import annotations

from typing import Final

from shardbus.app.cli.api_client import Document
from shardbus.app.cli.console import Json
from shardbus.app.cli.tables import facts_text, fitted

BAR_WIDTH: Final = 12
ENDED: Final = ("stopped", "finished")
REPLAY: Final = "replay"

WAITING: Final = "waiting"
"""The number of active messages of the entity; the command adds it while there is no progress."""

_UNTOLD: Final = ("path", "incarnation", "progress")
_ONLY_IF_ANY: Final = ("rate_max", "rows_planned", "rows_max")


def progress_line(found: Document) -> str:
    """The progress: the share of rows captured or sent in all rows, including those that wait."""
    progress = _progress(found)
    rows, backlog = _number(progress, "rows_total"), _number(progress, "backlog")
    share = rows / (rows + backlog) if rows + backlog else 0.0
    if found.get("kind") == REPLAY and found.get("state") == "finished":
        share = 1.0
    bar = "#" * int(share * BAR_WIDTH)
    head = f"{found.get('name')} {found.get('state')}"
    error = found.get("last_error")
    if not has_begun(found):
        told = str(error) if error else _beginning(found)
        return f"{head}  {told}"
    told = _sent(found, progress) if found.get("kind") == REPLAY else _captured(progress)
    line = f"{head} [{bar:<{BAR_WIDTH}}] {share:4.0%}  {told}"
    return f"{line}  {error}" if error else line


def has_begun(found: Document) -> bool:
    """Whether a batch has ended: before that, all numbers of the progress are 0."""
    return found.get("kind") == REPLAY or _progress(found).get("at") is not None


def _beginning(found: Document) -> str:
    waiting = found.get(WAITING)
    if found.get("state") in ENDED:
        return "no batch yet"
    if not isinstance(waiting, int):
        return "Spark is starting"
    return f"Spark is starting  {waiting:,} waiting in {found.get('entity')}"


def shown(found: Document) -> str:
    """Everything known about a pipeline, a line for each value."""
    progress = _progress(found)
    rows = [(name, value) for name, value in found.items() if name not in _UNTOLD]
    rows += progress.items() if has_begun(found) else [("progress", "no batch yet")]
    told = [
        (name.replace("_", " "), _word(value))
        for name, value in rows
        if value or name not in _ONLY_IF_ANY
    ]
    return facts_text([row for row in told if row[1]])


def listed(found: Document) -> str:
    """A line for each pipeline."""
    heading = ("NAME", "KIND", "ENTITY", "STATE", "ROWS", "ROWS/S", "BACKLOG")
    pipelines = found.get("pipelines")
    known = [
        one for one in (pipelines if isinstance(pipelines, list) else []) if isinstance(one, dict)
    ]
    rows = [
        (*(str(one.get(name)) for name in ("name", "kind", "entity", "state")), *_numbers(one))
        for one in known
    ]
    errors = [f"{one.get('name')}: {one.get('last_error')}" for one in known if one["last_error"]]
    return "\n".join([fitted([heading, *rows], cut={"ENTITY": 12}), *errors])


def _numbers(found: Document) -> tuple[str, str, str]:
    if not has_begun(found):
        return ("-", "-", "-")
    progress = _progress(found)
    rate = f"{_number(progress, 'rows_per_s'):.0f}"
    return (str(progress.get("rows_total")), rate, str(progress.get("backlog")))


def duration(seconds: float) -> str:
    """A duration for people, in one or two units."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest:02} s"
    return f"{minutes // 60} h {minutes % 60:02} min"


def _captured(progress: Document) -> str:
    return (
        f"{_number(progress, 'rows_total'):,.0f} rows  {_speed(progress)}  "
        f"{_number(progress, 'backlog'):,.0f} waiting  {_batch(progress)}"
    )


def _sent(found: Document, progress: Document) -> str:
    planned, rate = _number(progress, "rows_planned"), _number(progress, "rows_per_s")
    rows = _number(progress, "rows_total")
    is_over = found.get("state") in ENDED
    if not planned:
        return "no row was selected" if found.get("state") == "finished" else "selecting rows"
    told = f"{rows:,.0f} of {planned:,.0f} rows  {_speed(progress)}"
    if rate and not is_over:
        told += f"  about {duration((planned - rows) / rate)} left"
    return f"{told}  {_batch(progress)}"


def _speed(progress: Document) -> str:
    return f"{_number(progress, 'rows_per_s'):,.0f}/s"


def _batch(progress: Document) -> str:
    return f"batch {_number(progress, 'batch_ms'):,.0f} ms"


def _progress(found: Document) -> Document:
    progress = found.get("progress")
    return progress if isinstance(progress, dict) else {}


def _number(document: Document, name: str) -> float:
    value = document.get(name)
    return float(value) if isinstance(value, int | float) else 0.0


def _word(value: Json) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{target}={source}" for target, source in value.items())
    return "" if value is None else str(value)
