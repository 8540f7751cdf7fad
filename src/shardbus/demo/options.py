"""What `shardbus demo` takes beside the options of `shardbus serve`, which it passes on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import click

from shardbus.app.server.settings import TABLE, Kind

ORDERS_PER_S: Final = 20
ORDERS_PER_S_MAX: Final = 500


def demo_options() -> list[click.Parameter]:
    return [
        click.Option(["--no-demo", "is_plain"], is_flag=True, help="Only serve."),
        click.Option(
            ["--orders-per-s"],
            type=click.IntRange(1, ORDERS_PER_S_MAX),
            default=ORDERS_PER_S,
            show_default=True,
            metavar="N",
            help="Sample orders a second, on average.",
        ),
        click.Option(
            ["--prepare"],
            default="",
            metavar="COMMAND",
            help="Shell command that installs what the pipeline needs, while the bus serves.",
        ),
    ]


def serve_arguments(flags: Mapping[str, str], config: Sequence[str]) -> list[str]:
    """The arguments of `serve` that give the same settings; `flags` has what was given."""
    arguments = [word for file in config for word in ("--config", file)]
    for row in TABLE:
        value = flags.get(row.name)
        if value is None:
            continue
        if row.kind is Kind.SWITCH:
            arguments.append(row.flag if value == str(True) else f"--no-{row.flag[2:]}")
        else:
            arguments += [row.flag, value]
    return arguments
