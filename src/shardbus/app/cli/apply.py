"""`shardbus apply`: show what a file would change, and change it."""

import sys
from pathlib import Path
from typing import Final

import click

from shardbus.app.cli.access import access_from, access_options
from shardbus.app.cli.console import Console, Json, note, run_command
from shardbus.app.cli.failures import CommandError, Usage
from shardbus.app.server.settings import TABLE
from shardbus.app.setup.application import Applied, apply_plan, check_possible
from shardbus.app.setup.current import visiting
from shardbus.app.setup.difference import plan
from shardbus.app.setup.files import read_parameters, read_setup
from shardbus.app.setup.model import Blueprint, combined
from shardbus.app.setup.step import SAME, SetupPlan, Step

SOMETHING_TO_DO: Final = 5
"""The exit code of `--dry-run` when the bus differs from the file."""

_SETTING_KEYS: Final = frozenset(key for row in TABLE for key in (row.file_key, row.name))

Names = tuple[str, ...]


def _parameters() -> list[click.Parameter]:
    return [
        click.Argument(["files"], nargs=-1, required=True, metavar="FILE..."),
        click.Option(
            ["--dry-run", "is_dry"], is_flag=True, help="Show the changes without making them."
        ),
        click.Option(
            ["--delete-missing", "deletes"],
            is_flag=True,
            help="Delete entities, with their messages, that are on the bus but not in the files.",
        ),
        click.Option(
            ["--parameters", "parameter_files"],
            multiple=True,
            metavar="FILE",
            help="File with values for the parameters of an ARM template.",
        ),
        click.Option(
            ["--parameter", "parameter_texts"],
            multiple=True,
            metavar="NAME=VALUE",
            help="Value of one parameter of an ARM template.",
        ),
    ]


@click.command(params=[*_parameters(), *access_options()])
def apply(
    files: Names,
    parameter_files: Names,
    parameter_texts: Names,
    **options: str | int | bool | None,
) -> None:
    """Bring a namespace to the state in FILE: our TOML, an emulator's Config.json, an ARM template.

    + is created, ~ changed, - deleted, = there already, ! cannot be changed. Nothing is deleted
    without --delete-missing, except the default rule of a subscription for which the file gives
    other rules. A --dry-run exits with 0 when there is nothing to do, with 5 when there is, and
    with 1 when something cannot be done.
    """
    is_json = bool(options.get("is_json"))
    console = Console(is_json)

    def command() -> int:
        values = read_parameters([Path(name) for name in parameter_files], list(parameter_texts))
        said = {name: read_setup(Path(name), values, _SETTING_KEYS) for name in files}
        if options.get("deletes"):
            _check_speaking(said)
        blueprint = combined(list(said.values()))
        with visiting(access_from(options)) as current:
            found = plan(blueprint, current, deletes_missing=bool(options.get("deletes")))
            return apply_found(console, found, is_dry=bool(options.get("is_dry")), is_json=is_json)

    sys.exit(run_command(console, command))


def apply_found(console: Console, found: SetupPlan, *, is_dry: bool, is_json: bool) -> int:
    """Execute a plan, or only show it; returns the exit code."""
    for warning in found.warnings:
        note(warning)
    return _show(console, found) if is_dry else _apply(console, found, is_json)


def _check_speaking(said: dict[str, Blueprint]) -> None:
    """A file that was truncated, or has only settings, must not mean an empty namespace."""
    for name, blueprint in said.items():
        if blueprint.is_empty():
            raise Usage(
                f"{name} has no entity: with --delete-missing all entities would be deleted; "
                "leave out the file or the option"
            )


def _show(console: Console, found: SetupPlan) -> int:
    lines = [step.lines() for step in found.steps]
    console.show(_document(found, [], None, is_dry=True), "\n".join([*lines, *_ends(found)]))
    if found.blocked():
        return CommandError.exit_code
    return SOMETHING_TO_DO if found.todo() else 0


def _apply(console: Console, found: SetupPlan, is_json: bool) -> int:
    check_possible(found)
    if not is_json:
        for step in found.steps:
            if step.sign == SAME:
                click.echo(step.lines())
    applied = apply_plan(found, lambda step: None if is_json else click.echo(step.lines()))
    if is_json:
        console.show(_document(found, applied.done, applied.failure, is_dry=False), "")
    else:
        click.echo("\n".join(_ends(found, applied)))
    if applied.failure is None:
        return 0
    click.echo(f"shardbus: {applied.failure}", err=True)
    return applied.failure.exit_code


def _ends(found: SetupPlan, applied: Applied | None = None) -> list[str]:
    """The lines below the steps."""
    lines = [f"not in the file, and kept: {name}" for name in found.unlisted]
    count = len(found.todo())
    if applied is not None:
        return [*lines, f"{len(applied.done)} of {count} changes made"]
    return [*lines, f"{count} changes to make" if count else "nothing to do"]


def _document(
    found: SetupPlan, done: list[Step], failure: CommandError | None, *, is_dry: bool
) -> Json:
    finished = set(map(id, done))
    document: dict[str, Json] = {
        "is_dry_run": is_dry,
        "steps": [step.document(is_done=id(step) in finished) for step in found.steps],
        "unlisted": found.unlisted,
        "warnings": found.warnings,
    }
    if failure is not None:
        document["error"] = {"kind": failure.word, "message": str(failure)}
    return document
