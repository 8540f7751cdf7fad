"""The option `--store` of commands that use the stores of a stopped server."""

from __future__ import annotations

import click

from shardbus.app.server.store_kinds import DEFAULT_STORE


def store_option(text: str = "Kind of its stores, as the server has it.") -> click.Option:
    return click.Option(
        ["--store"],
        multiple=True,
        default=(DEFAULT_STORE,),
        show_default=True,
        envvar="SHARDBUS_STORE",
        callback=joined,
        help=f"{text} Repeat it for each database of a cluster.",
    )


def joined(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> str | None:
    """The stores that were given as one setting, separated by spaces; None if there are none."""
    if len(given) > 1 and any(each.startswith(DEFAULT_STORE) for each in given):
        raise click.UsageError(
            f"{' '.join(given)}: only databases of a cluster can be several; name one store, or "
            "only databases"
        )
    return " ".join(given) if given else None
