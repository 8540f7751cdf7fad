"""`shardbus fragments`: the broker, state and contents of each fragment of an entity."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Final

import click

from shardbus.app.cli.access import Options, access_from, access_options
from shardbus.app.cli.api_client import Document
from shardbus.app.cli.completion import complete_entity
from shardbus.app.cli.console import Console, run_command, size_text
from shardbus.app.cli.failures import Usage
from shardbus.app.cli.tables import fitted

WATCH_S: Final = 1.0

_COLUMNS: Final = (
    ("FRAGMENT", "number"),
    ("BROKER", "broker"),
    ("STATE", "state"),
    ("ACTIVE", "active"),
    ("DEFERRED", "deferred"),
    ("SCHEDULED", "scheduled"),
    ("DEAD", "dead_letter"),
    ("SIZE", "size_bytes"),
)
_COUNTS: Final = ("active", "deferred", "scheduled", "dead_letter", "size_bytes")
_HEADING: Final = tuple(heading for heading, _ in _COLUMNS)
_WATCHED_HEADING: Final = (*_HEADING, "IN/S", "OUT/S")
# Left out where there are none, and then where there is no room.
_OPTIONAL: Final = ("DEFERRED", "SCHEDULED")
_HELD: Final = (
    "active", "deferred", "scheduled", "dead_letter", "transfer_dead_letter", "set_aside",
)  # fmt: skip


@click.command(
    params=[
        click.Argument(["entity"], shell_complete=complete_entity),
        click.Option(
            ["--watch", "is_watching"], is_flag=True, help="Update every second, with rates."
        ),
        *access_options(),
    ]
)
def fragments(entity: str, is_watching: bool, **options: str | int | bool | None) -> None:
    """Show the fragments of ENTITY: broker, state and reason, counts, size."""
    console = Console(bool(options.get("is_json")))
    sys.exit(run_command(console, lambda: _run(console, entity, is_watching, options)))


def _run(console: Console, entity: str, is_watching: bool, options: Options) -> int:
    api = access_from(options).api()
    path = f"entities/{entity}/fragments"
    if not is_watching:
        found = api.get(path)
        console.show(found, shown(found))
        return 0
    if options.get("is_json"):
        raise Usage("--watch is for people and --json for programs: give one of them")
    watched = Watched(time.monotonic)
    watch(lambda: watched.shown(api.get(path)), time.sleep)
    return 0


def watch(look: Callable[[], str], wait: Callable[[float], None]) -> None:
    """Print the output of `look` again and again, until interrupted."""
    try:
        while True:
            text = look()
            click.clear()
            click.echo(text)
            wait(WATCH_S)
    except KeyboardInterrupt:
        return


def shown(document: Document) -> str:
    """A row for each fragment, the availability of the entity, and why fragments are
    unavailable.
    """
    return _text(document, _HEADING, [_row(part) for part in _parts(document)])


def _text(document: Document, heading: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    shown = fitted([heading, *rows], cut={}, optional=_OPTIONAL)
    return "\n".join([_title(document), shown, *_reasons(document)])


def _reasons(document: Document) -> list[str]:
    """A line for each reason, with its fragments."""
    fragments: dict[str, list[str]] = {}
    for part in _parts(document):
        if part.get("reason"):
            fragments.setdefault(str(part["reason"]), []).append(str(part.get("number")))
    return [f"fragment {', '.join(numbers)}: {reason}" for reason, numbers in fragments.items()]


def _parts(document: Document) -> list[Document]:
    parts = document.get("fragments")
    listed = parts if isinstance(parts, list) else []
    return [part for part in listed if isinstance(part, dict)]


def _title(document: Document) -> str:
    return f"{document.get('name')}: {document.get('availability')}"


class Watched:
    """Looks at the same fragments again and again, and computes rates."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._looked_at_s = 0.0
        self._before: dict[int, tuple[int, int]] = {}

    def shown(self, document: Document) -> str:
        now_s = self._clock()
        elapsed_s = now_s - self._looked_at_s
        rows = [self._row(part, elapsed_s) for part in _parts(document)]
        self._looked_at_s = now_s
        return _text(document, _WATCHED_HEADING, rows)

    def _row(self, part: Document, elapsed_s: float) -> tuple[str, ...]:
        known = _row(part)
        if part.get("state") != "available":
            return (*known, "?", "?")
        number, sent = _whole(part, "number"), _whole(part, "sent_total")
        gone = sent - sum(_whole(part, name) for name in _HELD)
        before = self._before.get(number)
        self._before[number] = (sent, gone)
        if before is None or elapsed_s <= 0:
            return (*known, "-", "-")
        rates = ((sent - before[0]) / elapsed_s, (gone - before[1]) / elapsed_s)
        return (*known, *(f"{rate:.0f}" for rate in rates))


def _whole(part: Document, name: str) -> int:
    value = part.get(name, 0)
    return value if isinstance(value, int) else 0


def _row(part: Document) -> tuple[str, ...]:
    # The contents of an unreachable fragment are unknown; zero would be wrong.
    is_known = part.get("state") == "available"
    return tuple(
        _cell(part, name) if is_known or name not in _COUNTS else "?" for _, name in _COLUMNS
    )


def _cell(part: Document, name: str) -> str:
    return size_text(_whole(part, name)) if name == "size_bytes" else str(part.get(name, ""))
