"""The options of `shardbus demo` in addition to those of `shardbus serve`, which it passes on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import click

from shardbus.app.server.setting import Kind
from shardbus.app.server.settings import TABLE

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
            help="Average number of sample orders per second.",
        ),
        click.Option(
            ["--prepare"],
            default="",
            metavar="COMMAND",
            help="Shell command that installs the pipeline's libraries while the bus serves.",
        ),
    ]


def serve_arguments(flags: Mapping[str, str], config: Sequence[str]) -> list[str]:
    """The arguments of `serve` for the same settings; `flags` has the given ones."""
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
