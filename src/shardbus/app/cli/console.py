"""The output of a command: text for people, or exactly one JSON document for programs."""

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import click

from shardbus.app.cli.failures import CommandError, Interrupted

Json = None | bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"]

DEBUG: Final = "SHARDBUS_DEBUG"
"""The environment variable that makes an internal error a traceback."""


class Console:
    """Standard output, in one of the two forms."""

    def __init__(self, is_json: bool) -> None:
        self._is_json = is_json

    def show(self, document: Json, text: str) -> None:
        try:
            click.echo(json.dumps(document, indent=2) if self._is_json else for_terminal(text))
        except BrokenPipeError:
            raise
        except OSError as error:
            raise output_failure(error) from error

    def fail(self, error: CommandError) -> None:
        """Print the failure on standard error; with --json also as the one document."""
        told = error.explained()
        note(told)
        if self._is_json:
            click.echo(json.dumps({"error": {"kind": error.word, "message": told}}))


def note(text: str) -> None:
    """A line about the command itself, on standard error; a reader that has gone misses it."""
    with suppress(BrokenPipeError):
        click.echo(f"shardbus: {text}", err=True)


def output_failure(error: OSError) -> CommandError:
    return CommandError(f"standard output cannot be written: {error.strerror}")


def run_command(console: Console, command: Callable[[], int]) -> int:
    """The exit code of the command. Every failure is one line; none is a traceback."""
    try:
        return command()
    except CommandError as error:
        return _failed(console, error)
    except KeyboardInterrupt:
        return _failed(console, Interrupted("interrupted"))
    except (BrokenPipeError, click.exceptions.Exit, click.ClickException, click.Abort):
        # click ends the process quietly, or with its own text.
        raise
    except Exception as error:
        if os.environ.get(DEBUG):
            raise
        return _failed(console, CommandError(internal_error_text(error)))


def internal_error_text(error: Exception) -> str:
    """A mistake of ours, with its place in the code."""
    place, trace = "", error.__traceback__
    while trace is not None:
        place = f" at {Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}"
        trace = trace.tb_next
    return (
        f"internal error{place}: {type(error).__name__}: {error} "
        f"(set {DEBUG}=1 for the traceback, and report it)"
    )


def _failed(console: Console, error: CommandError) -> int:
    with suppress(BrokenPipeError):
        console.fail(error)
    return error.exit_code


def table(rows: Sequence[tuple[str, ...]]) -> str:
    """Columns as wide as their widest cell, two spaces apart."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
    return "\n".join(lines)


def counted(count: int, noun: str) -> str:
    """`1 message`, `2,000 messages`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def size_text(size_bytes: int) -> str:
    """A size in the largest unit that keeps it above one: `512 B`, `1.5 KB`, `2.0 GB`."""
    if size_bytes < 1024:
        return f"{size_bytes} B"
    size = float(size_bytes)
    for unit in ("KB", "MB", "GB", "TB"):
        size /= 1024
        if size < 1023.95 or unit == "TB":
            break
    return f"{size:.1f} {unit}"


def for_terminal(text: str) -> str:
    """The text in the encoding of standard output: signs that it lacks are written in ASCII."""
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return text.replace("≥", ">=").replace("…", "...")
    return text
