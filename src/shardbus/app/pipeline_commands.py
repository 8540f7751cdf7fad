"""`shardbus pipeline ...`: Spark jobs that the bus runs, over the JSON API."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Final

import click

from shardbus.app.access import Options, access_from, access_options
from shardbus.app.api_client import ApiClient, Document
from shardbus.app.completion import complete_entity
from shardbus.app.console import Console, Json, run_command, table
from shardbus.app.failures import CommandError, Unavailable, Usage

WATCH_S: Final = 1.0
STOP_WAIT_S: Final = 150
BAR_WIDTH: Final = 24
LOG_LINES_MAX: Final = 500

_OVER: Final = ("stopped", "finished")
_SHOWN: Final = (
    "name", "kind", "entity", "location", "keep", "once", "interval_ms", "state", "starts",
    "last_error",
)  # fmt: skip
_PROGRESS: Final = ("at", "batch", "rows", "rows_total", "rows_per_s", "backlog", "batch_ms")


@click.group()
def pipeline() -> None:
    """Define, run and watch pipelines: Spark jobs on the messages of an entity."""


def _name() -> click.Argument:
    return click.Argument(["name"])


@pipeline.command(
    params=[
        _name(),
        click.Option(
            ["--entity"],
            required=True,
            metavar="ENTITY",
            help="What is captured: a queue, TOPIC/Subscriptions/NAME, or either with "
            "/$DeadLetterQueue.",
            shell_complete=complete_entity,
        ),
        click.Option(
            ["--path"],
            metavar="PATH",
            help="Where to, below the server's --capture-dir.  [default: the pipeline's name]",
        ),
        click.Option(["--keep"], is_flag=True, help="Messages stay on the bus."),
        click.Option(["--once"], is_flag=True, help="Take what waits when started, then end."),
        click.Option(
            ["--interval-ms"], type=click.IntRange(0), metavar="MS", help="Between two batches."
        ),
        click.Option(
            ["--rows-max"], type=click.IntRange(0), metavar="N", help="Most rows of a batch."
        ),
        click.Option(["--start", "is_started"], is_flag=True, help="Start it, too."),
        *access_options(),
    ]
)
def create(name: str, is_started: bool, **options: str | int | bool | None) -> None:
    """Define the pipeline NAME, which captures an entity to Parquet files."""
    wanted: Document = {
        member: options[member]
        for member in ("entity", "keep", "once", "interval_ms", "rows_max")
        if options.get(member) not in (None, False)
    }
    wanted["path"] = options.get("path") or name

    def act(api: ApiClient, console: Console) -> None:
        made = api.put(_path(name), wanted)
        _show(console, api.post(_path(name, "start"), {}) if is_started else made)

    _run(options, act)


@pipeline.command("list", params=access_options())
def list_pipelines(**options: str | int | bool | None) -> None:
    """List pipelines: state, rows, backlog."""

    def act(api: ApiClient, console: Console) -> None:
        found = api.get("pipelines")
        console.show(found, _listed(found))

    _run(options, act)


@pipeline.command(params=[_name(), *access_options()])
def start(name: str, **options: str | int | bool | None) -> None:
    """Run the pipeline NAME, also after restarts of the bus."""
    _run(options, lambda api, console: _show(console, api.post(_path(name, "start"), {})))


@pipeline.command(
    params=[
        _name(),
        click.Option(["--no-wait"], is_flag=True, help="Do not wait until its batch has ended."),
        *access_options(),
    ]
)
def stop(name: str, no_wait: bool, **options: str | int | bool | None) -> None:
    """End the pipeline NAME when its batch has ended."""

    def act(api: ApiClient, console: Console) -> None:
        found = api.post(_path(name, "stop"), {})
        if not no_wait:
            found = wait_until_over(lambda: api.get(_path(name)), time.sleep)
        _show(console, found)

    _run(options, act)


@pipeline.command(
    params=[
        _name(),
        click.Option(
            ["--watch", "is_watching"], is_flag=True, help="One line that is written over."
        ),
        *access_options(),
    ]
)
def status(name: str, is_watching: bool, **options: str | int | bool | None) -> None:
    """Show how the pipeline NAME is defined, and how it goes."""
    if is_watching and options.get("is_json"):
        is_watching = False
        _fail(options, Usage("--watch is for people and --json for programs: give one of them"))

    def act(api: ApiClient, console: Console) -> None:
        if is_watching:
            watch(lambda: api.get(_path(name)), time.sleep)
        else:
            _show(console, api.get(_path(name)))

    _run(options, act)


@pipeline.command(
    params=[
        _name(),
        click.Option(
            ["--lines", "top"],
            type=click.IntRange(1, LOG_LINES_MAX),
            metavar="N",
            help="At most so many, the last ones.",
        ),
        *access_options(),
    ]
)
def logs(name: str, top: int | None, **options: str | int | bool | None) -> None:
    """Show what the driver of the pipeline NAME wrote last."""

    def act(api: ApiClient, console: Console) -> None:
        found = api.get(_path(name, "logs"), top=top)
        lines = found.get("lines")
        console.show(found, "\n".join(map(str, lines if isinstance(lines, list) else [])))

    _run(options, act)


@pipeline.command(params=[_name(), *access_options()])
def delete(name: str, **options: str | int | bool | None) -> None:
    """Delete the stopped pipeline NAME; what it captured stays."""
    _run(
        options,
        lambda api, console: console.show(api.delete(_path(name)), f"deleted pipeline {name}"),
    )


def _run(options: Options, act: Callable[[ApiClient, Console], None]) -> None:
    console = Console(bool(options.get("is_json")))

    def command() -> int:
        act(access_from(options).api(), console)
        return 0

    sys.exit(run_command(console, command))


def _fail(options: Options, error: CommandError) -> None:
    def command() -> int:
        raise error

    sys.exit(run_command(Console(bool(options.get("is_json"))), command))


def _path(name: str, verb: str = "") -> str:
    return f"pipelines/{name}/{verb}" if verb else f"pipelines/{name}"


def wait_until_over(look: Callable[[], Document], wait: Callable[[float], None]) -> Document:
    """The pipeline when it has ended; Unavailable when that takes too long."""
    for _ in range(STOP_WAIT_S):
        found = look()
        if found.get("state") in _OVER:
            return found
        wait(WATCH_S)
    raise Unavailable(
        f"the pipeline has not ended after {STOP_WAIT_S} s; `shardbus pipeline status` shows it"
    )


def watch(look: Callable[[], Document], wait: Callable[[float], None]) -> None:
    """One line, written over until the pipeline is over or somebody interrupts."""
    width = 0
    try:
        while True:
            found = look()
            text = progress_line(found)
            click.echo(f"\r{text:<{width}}", nl=False)
            width = len(text)
            if found.get("state") in _OVER:
                break
            wait(WATCH_S)
    except KeyboardInterrupt:
        pass
    finally:
        click.echo()


def progress_line(found: Document) -> str:
    """How far it is: of what was captured and what waits, the part that was captured."""
    progress = _progress(found)
    rows, backlog = _number(progress, "rows_total"), _number(progress, "backlog")
    share = rows / (rows + backlog) if rows + backlog else 0.0
    bar = "#" * int(share * BAR_WIDTH)
    line = (
        f"{found.get('name')} {found.get('state')} [{bar:<{BAR_WIDTH}}] {share:4.0%}  "
        f"{rows:,.0f} rows  {_number(progress, 'rows_per_s'):,.0f}/s  {backlog:,.0f} waiting  "
        f"batch {_number(progress, 'batch_ms'):,.0f} ms"
    )
    error = found.get("last_error")
    return f"{line}  {error}" if error else line


def _show(console: Console, found: Document) -> None:
    progress = _progress(found)
    rows = [(name.replace("_", " "), _word(found.get(name))) for name in _SHOWN]
    rows += [(name.replace("_", " "), _word(progress.get(name))) for name in _PROGRESS]
    console.show(found, table([row for row in rows if row[1]]))


def _listed(found: Document) -> str:
    heading = ("NAME", "KIND", "ENTITY", "STATE", "ROWS", "BACKLOG", "ERROR")
    listed = found.get("pipelines")
    rows = [
        (
            *(str(one.get(name)) for name in ("name", "kind", "entity", "state")),
            str(_progress(one).get("rows_total")),
            str(_progress(one).get("backlog")),
            str(one.get("last_error")),
        )
        for one in (listed if isinstance(listed, list) else [])
        if isinstance(one, dict)
    ]
    return table([heading, *rows])


def _progress(found: Document) -> Document:
    progress = found.get("progress")
    return progress if isinstance(progress, dict) else {}


def _number(document: Document, name: str) -> float:
    value = document.get(name)
    return float(value) if isinstance(value, int | float) else 0.0


def _word(value: Json) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else str(value)
