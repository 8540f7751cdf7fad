"""The option `--store` of commands that use the stores of a stopped server."""

from __future__ import annotations

import click

from shardbus.app.server.store_kinds import DEFAULT_STORE


def store_option(text: str = "Kind of its stores, as the server has it.") -> click.Option:
    return click.Option(
        ["--store"], default=DEFAULT_STORE, show_default=True, envvar="SHARDBUS_STORE", help=text
    )
