"""`shardbus move`: moves a namespace to another place, of the same or another kind of store."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from shardbus.app.cli.console import Console, run_command
from shardbus.app.cli.failures import Usage
from shardbus.app.cli.operations.store_option import joined
from shardbus.app.server.store_kinds import DEFAULT_STORE


@click.command(
    params=[
        click.Option(
            ["--from", "source"],
            required=True,
            multiple=True,
            callback=joined,
            metavar="STORE",
            help=f"Where the namespace is: `{DEFAULT_STORE}DATA_DIR`, or the URL of a database. "
            "Repeat it for each database of a cluster.",
        ),
        click.Option(
            ["--to", "target"],
            multiple=True,
            callback=joined,
            metavar="STORE",
            help="Where it goes: a new or empty directory, or an empty database; repeat it for "
            "several databases of a new cluster.",
        ),
        click.Option(
            ["--data-dir"],
            type=click.Path(path_type=Path),
            help="Data directory of the bus whose stores are in a database; by default the "
            "directory that is moved.",
        ),
        click.Option(
            ["--release", "is_releasing"],
            is_flag=True,
            help="Allow --from to be served again, after a move or instead of finishing one.",
        ),
        click.Option(["--json", "is_json"], is_flag=True, help="Print one JSON document."),
    ]
)
def move(
    source: str, target: str | None, data_dir: Path | None, is_releasing: bool, is_json: bool
) -> None:
    """Move a namespace that nobody serves from one kind of store to another.

    The target is compared with the source, message by message. The source stays unchanged and is
    marked, so that it is not served by mistake. If the command is interrupted, run it again. Exit
    code 0: moved. 1: not moved, or moved with damage that the source had. 2: the target cannot be
    used. 3: a server is using the source or the target.
    """
    console = Console(is_json)

    def command() -> int:
        # Late, so that a client command does not pay for loading the stores.
        from shardbus.app.backups.namespace_move import run_move, run_release

        if is_releasing == (target is not None):
            raise Usage("give either --to STORE or --release")
        if target is None:
            return run_release(console, source, data_dir)
        return run_move(console, source, target, data_dir)

    sys.exit(run_command(console, command))
