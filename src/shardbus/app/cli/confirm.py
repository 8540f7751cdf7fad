"""Asks before something is deleted."""

import sys

import click

from shardbus.app.cli.access import Options
from shardbus.app.cli.failures import CommandError, Usage


def yes_option() -> click.Option:
    return click.Option(["--yes", "is_sure"], is_flag=True, help="Do not ask for confirmation.")


def confirm(options: Options, question: str) -> None:
    """Return when the user agrees, or said so with --yes.

    Usage without a terminal, CommandError when the user says no.
    """
    if options.get("is_sure"):
        return
    if not sys.stdin.isatty():
        raise Usage(f"{question} No terminal to confirm on; pass --yes.")
    try:
        is_sure = click.confirm(question, err=True)
    except click.Abort:
        # Ctrl-C or the end of the input, in the middle of the line.
        click.echo(err=True)
        is_sure = False
    if not is_sure:
        raise CommandError("nothing was deleted")
