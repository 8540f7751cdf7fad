"""`shardbus test-server`: a private bus for the tests of any language."""

import json
import sys
from collections.abc import Mapping

import click

from shardbus.app.cli.console import Console, Json, run_command
from shardbus.app.cli.failures import Usage


@click.command("test-server")
@click.option(
    "--config",
    multiple=True,
    metavar="FILE",
    help="Entities and settings: an emulator's Config.json, an ARM template or TOML; may be given "
    "several times.",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="A setting of `serve`, as in tier=premium; may be given several times.",
)
@click.option("--now", default="", metavar="MOMENT", help="Moment at which its time starts.")
@click.option("--frozen", "is_frozen", is_flag=True, help="Start with its time stopped.")
@click.option("--on-disk", is_flag=True, help="Store messages in files instead of memory.")
@click.option("--warm", is_flag=True, help="Start and stop buses by lines of JSON on stdin.")
@click.option("--json", "is_json", is_flag=True, help="Print one JSON document when ready.")
def test_server(  # noqa: PLR0913 - one parameter per option
    config: tuple[str, ...],
    settings: tuple[str, ...],
    now: str,
    is_frozen: bool,
    on_disk: bool,
    warm: bool,
    is_json: bool,
) -> None:
    """Serve a private bus for tests on free ports, whose time a test can stop and move. It ends
    with its parent, and when its standard input is closed.
    """

    def command() -> int:
        if warm:
            from shardbus.app.testing.warm_process import run_warm

            return run_warm()
        _serve(config, _given(settings), now, is_frozen, not on_disk, is_json)
        return 0

    sys.exit(run_command(Console(is_json), command))


def _serve(
    config: tuple[str, ...],
    settings: dict[str, str],
    now: str,
    is_frozen: bool,
    is_in_memory: bool,
    is_json: bool,
) -> None:
    from shardbus.app.server.serving import log_to_stderr
    from shardbus.app.testing.serving import TestBus, end_with_parent, new_directory, serve_test

    def tell(document: Mapping[str, Json]) -> None:
        # One line: a program may read it while the server runs.
        click.echo(json.dumps(document) if is_json else _text(document))

    log_to_stderr("warning")
    end_with_parent()
    serve_test(TestBus(config, settings, now, is_frozen, is_in_memory), new_directory(), tell)


def _text(document: Mapping[str, Json]) -> str:
    return f"ready {document['connectionString']} {document['httpUrl']}"


def _given(settings: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in settings:
        name, equals, value = text.partition("=")
        if not equals:
            raise Usage(f"--set {text}: write NAME=VALUE")
        found[name] = value
    return found
