"""`shardbus check`: examines and repairs a data directory."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from shardbus.app.cli.console import Console, run_command
from shardbus.app.cli.operations.store_option import store_option


@click.command(
    params=[
        click.Argument(["directory"], type=click.Path(path_type=Path)),
        store_option(),
        click.Option(
            ["--repair", "is_repairing"],
            is_flag=True,
            help="Write the sound data into new files; damaged files are kept as NAME.damaged-N.",
        ),
        click.Option(
            ["--adopt", "is_adopting"],
            is_flag=True,
            help="Continue with the existing stores: create a lost catalogue or store, and take "
            "over stores of another namespace. Their fragments are kept as orphans.",
        ),
        click.Option(["--json", "is_json"], is_flag=True, help="Print one JSON document."),
    ]
)
def check(
    directory: Path, store: str, is_repairing: bool, is_adopting: bool, is_json: bool
) -> None:
    """Examine the data DIRECTORY of a stopped server.

    Exit code 0: everything is sound, or was after the repair. 1: damage was found, and is listed.
    3: the directory is being served.
    """
    console = Console(is_json)

    def command() -> int:
        # Late, so that a client command does not pay for loading the stores.
        from shardbus.app.cli.operations.check_report import run_check

        return run_check(
            console, directory, store, is_repairing=is_repairing, is_adopting=is_adopting
        )

    sys.exit(run_command(console, command))
