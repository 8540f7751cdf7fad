"""`shardbus pipeline ...`: Spark jobs that the bus runs, over the JSON API."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TextIO, final

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
from shardbus.app.cli.failures import CommandError, Interrupted, NotFound, ServerUnavailable, Usage
from shardbus.app.cli.groups import CommandGroup
from shardbus.app.cli.messages.removing import count_of
from shardbus.app.cli.tables import shortened, terminal_width
from shardbus.app.cli.triage.view import shown as letters
from shardbus.app.cli.triage.view import top_option, write_page

WATCH_S: Final = 1.0
LOOK_S: Final = 0.2
STOP_WAIT_S: Final = 150
NOTICE_S: Final = 0.7
PATIENCE_S: Final = 3.0
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
    """Define the pipeline NAME; --kind chooses what it does."""

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
        click.Option(
            ["--finish", "is_finishing"],
            is_flag=True,
            help="First write the present batch and complete all claimed messages; this may take "
            "minutes, and also works after a stop.",
        ),
        click.Option(["--no-wait"], is_flag=True, help="Do not wait until it has stopped."),
        *access_options(),
    ]
)
def stop(name: str, is_finishing: bool, no_wait: bool, **options: str | int | bool | None) -> None:
    """Stop the pipeline NAME within three seconds. If its batch takes longer, the messages of the
    batch stay claimed, and the next start runs it again.
    """

    def act(api: ApiClient, console: Console) -> None:
        found = api.post(_path(name, "stop"), {}, finish=1 if is_finishing else None)
        if not no_wait:
            found = _when_over(api, name)
        _show(console, found)
        error = found.get("last_error")
        if is_finishing and error:
            raise CommandError(
                f"pipeline {name} could not finish: {error} (`shardbus pipeline logs {name}` shows "
                "the last output of its driver)"
            )

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


@pipeline.command(
    params=[
        _name(),
        top_option(),
        click.Option(["--html"], metavar="FILE", help="Write the report as a page of HTML."),
        *access_options(),
    ]
)
def report(name: str, top: int, html: str | None, **options: str | int | bool | None) -> None:
    """Show the newest report of the pipeline NAME, which is a triage."""

    def act(api: ApiClient, console: Console) -> None:
        found = api.get(_path(name, "report"), top=top, page=None if html is None else 1)
        page = found.pop("page", None)
        if not found.get("name"):
            raise NotFound(f"pipeline {name} has not made a report yet")
        if html is not None:
            write_page(html, str(page))
        console.show(found, f"{letters(found, top)}\n\nthe report is in {found.get('location')}")

    _run(options, act)


@pipeline.command(
    params=[
        _name(),
        click.Option(
            ["--abandon", "is_abandoned"],
            is_flag=True,
            help="Do not complete a batch that was cut off: its messages go back to receivers, "
            "even if they were written.",
        ),
        yes_option(),
        *access_options(),
    ]
)
def delete(name: str, is_abandoned: bool, **options: str | int | bool | None) -> None:
    """Delete the stopped pipeline NAME; what it captured or sent stays. A batch that was cut off is
    completed first.
    """

    def act(api: ApiClient, console: Console) -> None:
        state = api.get(_path(name)).get("state")
        confirm(options, f"Delete the pipeline {name}?")
        if state in ENDED and not is_abandoned:
            api.post(_path(name, "stop"), {}, finish=1)
            _when_over(api, name)
        gone = api.delete(_path(name), abandon=1 if is_abandoned else None)
        console.show(gone, f"deleted pipeline {name}")

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


def _when_over(api: ApiClient, name: str) -> Document:
    """The pipeline when it has stopped."""
    notice = StopNotice(name)
    try:
        return wait_until_over(lambda: api.get(_path(name)), time.sleep, notice.tell)
    except KeyboardInterrupt as error:
        raise Interrupted(
            f"interrupted: pipeline {name} continues to stop; `shardbus pipeline status {name}` "
            "shows whether it has stopped"
        ) from error
    finally:
        notice.clear()


def _looked(api: ApiClient, name: str) -> Document:
    """The pipeline; while it has no progress, with the number of messages that wait on the bus."""
    found = api.get(_path(name))
    if has_begun(found) or found.get("state") in ENDED:
        return found
    line = "dead_letter" if found.get("kind") == "triage" else "active"
    with suppress(CommandError):
        found[WAITING] = count_of(api, str(found.get("entity")), line)
    return found


def wait_until_over(
    look: Callable[[], Document],
    wait: Callable[[float], None],
    tell: Callable[[float], None] = lambda waited_s: None,
) -> Document:
    """The pipeline when it has ended; Unavailable when that takes too long. `tell` is called with
    the seconds that have passed.
    """
    for looks in range(round(STOP_WAIT_S / LOOK_S)):
        found = look()
        if found.get("state") in ENDED:
            return found
        tell(looks * LOOK_S)
        wait(LOOK_S)
    raise ServerUnavailable(
        f"the pipeline has not stopped after {STOP_WAIT_S} s; `shardbus pipeline status` "
        "shows its state"
    )


@final
class StopNotice:
    """Reports on standard error that a stop takes long: on a terminal in one line that counts the
    seconds, elsewhere once.
    """

    def __init__(self, name: str, stream: TextIO | None = None) -> None:
        self._name = name
        self._stream = sys.stderr if stream is None else stream
        self._is_watched = self._stream.isatty()
        self._told = ""

    def tell(self, waited_s: float) -> None:
        text = f"pipeline {self._name} is stopping"
        if self._is_watched and waited_s >= NOTICE_S:
            self._write(shortened(f"{text}, {waited_s:.0f} s", terminal_width() - 1))
        elif not self._told and waited_s >= PATIENCE_S:
            self._told = f"{text}: its last batch is completed first, which may take minutes"
            click.echo(self._told, file=self._stream)

    def clear(self) -> None:
        if self._is_watched and self._told:
            self._write("")
            click.echo("\r", file=self._stream, nl=False)

    def _write(self, text: str) -> None:
        click.echo(f"\r{text:<{len(self._told)}}", file=self._stream, nl=False)
        self._told = text


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
