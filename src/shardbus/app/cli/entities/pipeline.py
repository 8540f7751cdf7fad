"""`shardbus pipeline ...`: Spark jobs that the bus runs, over the JSON API."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import click

from shardbus.app.cli.access import Options, access_from, access_options
from shardbus.app.cli.api_client import PIPELINE, ApiClient, Document
from shardbus.app.cli.completion import entity_argument
from shardbus.app.cli.confirm import confirm, yes_option
from shardbus.app.cli.console import Console, run_command
from shardbus.app.cli.entities.pipeline_options import definition_options, wanted_definition
from shardbus.app.cli.entities.pipeline_view import (
    ENDED,
    WAITING,
    has_begun,
    listed,
    progress_line,
    shown,
)
from shardbus.app.cli.failures import CommandError, Interrupted, ServerUnavailable, Usage
from shardbus.app.cli.groups import CommandGroup
from shardbus.app.cli.messages.removing import count_of
from shardbus.app.cli.tables import shortened, terminal_width

WATCH_S: Final = 1.0
LOOK_S: Final = 0.2
STOP_WAIT_S: Final = 150
LOG_LINES_MAX: Final = 500


@click.group(cls=CommandGroup)
def pipeline() -> None:
    """Define, run and watch pipelines: Spark jobs between entities and files."""


def _name() -> click.Argument:
    return entity_argument(PIPELINE)


@pipeline.command(
    params=[
        click.Argument(["name"]),
        *definition_options(),
        click.Option(["--start", "is_started"], is_flag=True, help="Start it after defining it."),
        *access_options(),
    ]
)
def create(
    name: str, is_started: bool, **options: str | int | bool | tuple[str, ...] | None
) -> None:
    """Define the pipeline NAME: a capture of an entity to files, or a replay of files."""

    def act(api: ApiClient, console: Console) -> None:
        made = api.put(_path(name), wanted_definition(name, options))
        _show(console, api.post(_path(name, "start"), {}) if is_started else made)

    _run({key: one for key, one in options.items() if not isinstance(one, tuple)}, act)


@pipeline.command("list", params=access_options())
def list_pipelines(**options: str | int | bool | None) -> None:
    """List pipelines: state, rows, speed, backlog."""

    def act(api: ApiClient, console: Console) -> None:
        found = api.get("pipelines")
        console.show(found, listed(found))

    _run(options, act)


@pipeline.command(params=[_name(), *access_options()])
def start(name: str, **options: str | int | bool | None) -> None:
    """Start the pipeline NAME; it also runs after restarts of the bus."""
    _run(options, lambda api, console: _show(console, api.post(_path(name, "start"), {})))


@pipeline.command(
    params=[
        _name(),
        click.Option(["--no-wait"], is_flag=True, help="Do not wait until its batch has ended."),
        *access_options(),
    ]
)
def stop(name: str, no_wait: bool, **options: str | int | bool | None) -> None:
    """Stop the pipeline NAME after its present batch."""

    def act(api: ApiClient, console: Console) -> None:
        found = api.post(_path(name, "stop"), {})
        if not no_wait:
            try:
                found = wait_until_over(lambda: api.get(_path(name)), time.sleep)
            except KeyboardInterrupt as error:
                raise Interrupted(f"interrupted: pipeline {name} is stopping") from error
        _show(console, found)

    _run(options, act)


@pipeline.command(
    params=[
        _name(),
        click.Option(
            ["--watch", "is_watching"], is_flag=True, help="Show one line that is updated in place."
        ),
        *access_options(),
    ]
)
def status(name: str, is_watching: bool, **options: str | int | bool | None) -> None:
    """Show the definition and the state of the pipeline NAME."""
    if is_watching and options.get("is_json"):
        is_watching = False
        _fail(options, Usage("--watch is for people and --json for programs: give one of them"))

    def act(api: ApiClient, console: Console) -> None:
        if is_watching:
            watch(lambda: _looked(api, name), time.sleep)
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
            help="Maximum number of lines, the latest ones.",
        ),
        *access_options(),
    ]
)
def logs(name: str, top: int | None, **options: str | int | bool | None) -> None:
    """Show the latest output of the driver of the pipeline NAME."""

    def act(api: ApiClient, console: Console) -> None:
        found = api.get(_path(name, "logs"), top=top)
        lines = found.get("lines")
        console.show(found, "\n".join(map(str, lines if isinstance(lines, list) else [])))

    _run(options, act)


@pipeline.command(params=[_name(), yes_option(), *access_options()])
def delete(name: str, **options: str | int | bool | None) -> None:
    """Delete the stopped pipeline NAME; what it captured or sent stays."""

    def act(api: ApiClient, console: Console) -> None:
        api.get(_path(name))
        confirm(options, f"Delete the pipeline {name}?")
        console.show(api.delete(_path(name)), f"deleted pipeline {name}")

    _run(options, act)


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


def _looked(api: ApiClient, name: str) -> Document:
    """The pipeline; while it has no progress of its own, with what waits for it on the bus."""
    found = api.get(_path(name))
    if has_begun(found) or found.get("state") in ENDED:
        return found
    with suppress(CommandError):
        found[WAITING] = count_of(api, str(found.get("entity")), "active")
    return found


def wait_until_over(look: Callable[[], Document], wait: Callable[[float], None]) -> Document:
    """The pipeline when it has ended; Unavailable when that takes too long."""
    for _ in range(round(STOP_WAIT_S / LOOK_S)):
        found = look()
        if found.get("state") in ENDED:
            return found
        wait(LOOK_S)
    raise ServerUnavailable(
        f"the pipeline has not stopped after {STOP_WAIT_S} s; `shardbus pipeline status` "
        "shows its state"
    )


def watch(look: Callable[[], Document], wait: Callable[[float], None]) -> None:
    """One line, updated in place until the pipeline has ended or the user interrupts."""
    width = 0
    try:
        while True:
            found = look()
            text = shortened(progress_line(found), terminal_width() - 1)
            click.echo(f"\r{text:<{width}}", nl=False)
            width = len(text)
            if found.get("state") in ENDED:
                break
            wait(WATCH_S)
    except KeyboardInterrupt:
        pass
    finally:
        click.echo()


def _show(console: Console, found: Document) -> None:
    console.show(found, shown(found))
