"""`shardbus export`: write a namespace in one of the formats that `apply` reads."""

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Final

import click

from shardbus.app.cli.access import access_from, access_options
from shardbus.app.cli.console import Console, run_command
from shardbus.app.cli.failures import Usage
from shardbus.app.setup.arm.writer import write_template
from shardbus.app.setup.current import visiting
from shardbus.app.setup.emulator import write_emulator
from shardbus.app.setup.model import Blueprint
from shardbus.app.setup.toml_writer import write_toml

TOML: Final = "toml"
EMULATOR: Final = "emulator"
ARM: Final = "arm"
FORMS: Final = (TOML, EMULATOR, ARM)


def _parameters() -> list[click.Parameter]:
    return [
        click.Option(
            ["--form"], type=click.Choice(FORMS), default=TOML, show_default=True, help="Form."
        ),
        click.Option(
            ["--out"], metavar="FILE", help="Write to this file, readable only by its owner."
        ),
        click.Option(
            ["--keys", "has_keys"], is_flag=True, help="Include the keys of access rules."
        ),
    ]


@click.command(params=[*_parameters(), *access_options()])
def export(**options: str | int | bool | None) -> None:
    """Write the whole namespace as a file that `apply` and `serve --config` read.

    What the format cannot express is printed on standard error.
    """
    console = Console(bool(options.get("is_json")))

    def command() -> int:
        has_keys = bool(options.get("has_keys"))
        with visiting(access_from(options)) as current:
            whole = exported(current.everything(with_keys=has_keys))
        text, losses = written(whole, str(options.get("form")), with_keys=has_keys)
        for loss in losses:
            click.echo(f"shardbus: this format cannot express {loss}", err=True)
        out = options.get("out")
        if out is None:
            console.show({"text": text, "losses": losses}, text.rstrip("\n"))
            return 0
        _write(Path(str(out)), text)
        console.show({"file": str(out), "losses": losses}, f"wrote {out}")
        return 0

    sys.exit(run_command(console, command))


def exported(whole: Blueprint) -> Blueprint:
    """Without properties that the tier decides: another tier decides otherwise, or refuses them."""
    settled = "EnablePartitioning" if whole.tier == "premium" else "MaxMessageSizeInKilobytes"
    whole.entities = [
        replace(
            entity,
            elements={name: text for name, text in entity.elements.items() if name != settled},
        )
        for entity in whole.entities
    ]
    return whole


def written(whole: Blueprint, form: str, *, with_keys: bool) -> tuple[str, list[str]]:
    """The text of a format, and what it cannot express."""
    if form == EMULATOR:
        return write_emulator(whole)
    if form == ARM:
        return write_template(whole, with_keys=with_keys)
    return write_toml(whole, with_keys=with_keys), []


def _write(path: Path, text: str) -> None:
    try:
        # It may hold keys.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise Usage(f"--out {path} cannot be written: {error.strerror}") from error
