"""How commands print messages: as text for people, or as JSON for programs."""

import json
import sys
from collections.abc import Callable

import click

from shardbus.app.cli.access import Options
from shardbus.app.cli.api_client import Document
from shardbus.app.cli.console import Console, note, output_failure, run_command
from shardbus.app.cli.failures import CommandError, Interrupted, ReaderGone, Usage
from shardbus.app.cli.messages.pipes import forget_output, output_pipe, wait_until_read
from shardbus.app.cli.messages.text import body_bytes, details

Text = Callable[[list[Document]], bytes]
"""Formats messages for people."""


class Printer:
    """Prints messages as they come; they are flushed when `show` returns.

    As one JSON list, one document per line, with all details, or in the format of `text`.
    """

    def __init__(self, options: Options, text: Text) -> None:
        self._is_json, self._is_lines = bool(options.get("is_json")), bool(options.get("is_lines"))
        self._is_detailed = bool(options.get("is_detailed"))
        if self._is_json + self._is_lines + self._is_detailed > 1:
            raise Usage("--json, --jsonl and --details print differently: give one of them")
        self._text = text
        self._count = 0
        self._pipe = output_pipe()

    @property
    def has_begun(self) -> bool:
        return self._count > 0

    def show(self, messages: list[Document]) -> None:
        if messages:
            sys.stdout.buffer.write(self._shown(messages))
            self._count += len(messages)
        sys.stdout.buffer.flush()

    def hand_over(self, message: Document, slow: Callable[[], None]) -> None:
        """Show a message and, if standard output is a pipe, wait until its reader has taken it.

        BrokenPipeError when the reader has gone before. `slow` is called if it takes long.
        """
        self.show([message])
        if self._pipe is not None:
            wait_until_read(self._pipe, slow)

    def end(self) -> None:
        """Close the list, so that an empty or truncated one is also one JSON document."""
        if self._is_json:
            sys.stdout.buffer.write(b"\n]\n" if self._count else b"[]\n")
        sys.stdout.buffer.flush()

    def _shown(self, messages: list[Document]) -> bytes:
        if self._is_json:
            listed = ",\n".join(json.dumps(message) for message in messages)
            return ((",\n" if self._count else "[\n") + listed).encode()
        if self._is_lines:
            return b"".join(json.dumps(message).encode() + b"\n" for message in messages)
        if self._is_detailed:
            text = "\n".join(details(message) for message in messages)
            return (f"\n{text}" if self._count else text).encode()
        return self._text(messages)


def bodies(messages: list[Document]) -> bytes:
    """Each body as it was sent, and a line end."""
    return b"".join(body_bytes(message) + b"\n" for message in messages)


def output_options() -> list[click.Parameter]:
    return [
        click.Option(
            ["--jsonl", "is_lines"],
            is_flag=True,
            help="Print one JSON document per line; `send --jsonl` reads them.",
        ),
        click.Option(
            ["--details", "is_detailed"], is_flag=True, help="Print everything about each message."
        ),
    ]


def run_printing(options: Options, text: Text, act: Callable[[Printer], None]) -> None:
    """Run a command that prints messages, and end the process.

    With --json there is always one document: the list, closed where it was interrupted, or the
    reason why there is none.
    """

    def command() -> int:
        printer = Printer(options, text)
        try:
            act(printer)
        except ReaderGone as error:
            forget_output()
            note(error.explained())
            return error.exit_code
        except (CommandError, KeyboardInterrupt) as error:
            failure = error if isinstance(error, CommandError) else Interrupted("interrupted")
            if not printer.has_begun:
                raise failure from error
            printer.end()
            note(failure.explained())
            return failure.exit_code
        except BrokenPipeError:
            # The reader of the pipe has closed it: click ends the process quietly.
            raise
        except OSError as error:
            raise output_failure(error) from error
        printer.end()
        return 0

    sys.exit(run_command(Console(bool(options.get("is_json"))), command))
