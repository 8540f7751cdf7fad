"""The output of a command: text for people, or exactly one JSON document for programs."""

import json
from collections.abc import Callable, Mapping, Sequence

import click

from shardbus.app.cli.failures import CommandError

Json = None | bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"]


class Console:
    """Standard output, in one of the two forms."""

    def __init__(self, is_json: bool) -> None:
        self._is_json = is_json

    def show(self, document: Json, text: str) -> None:
        click.echo(json.dumps(document, indent=2) if self._is_json else text)

    def fail(self, error: CommandError) -> None:
        """Print the failure on standard error; with --json also as the one document."""
        click.echo(f"shardbus: {error}", err=True)
        if self._is_json:
            click.echo(json.dumps({"error": {"kind": error.word, "message": str(error)}}))


def run_command(console: Console, command: Callable[[], int]) -> int:
    """The exit code of the command; an expected failure is printed, any other exception is a
    bug.
    """
    try:
        return command()
    except CommandError as error:
        console.fail(error)
        return error.exit_code


def table(rows: Sequence[tuple[str, ...]]) -> str:
    """Columns as wide as their widest cell, two spaces apart."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
    return "\n".join(lines)
