"""The options that a pipeline is defined with, and what is asked of the API for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import click

from shardbus.app.api_client import Document
from shardbus.app.completion import complete_entity
from shardbus.app.failures import Usage
from shardbus.gateway.http.api_pipelines import BODIES, CAPTURE, KINDS, REPLAY_FORMATS

_MEMBERS: Final = {
    "kind": "kind", "entity": "entity", "path": "path", "format": "format", "keep": "keep",
    "once": "once", "interval_ms": "interval_ms", "rows_max": "rows_max", "compact": "compact",
    "from_pipeline": "from_pipeline", "since": "from", "until": "to",
    "time_column": "time_column", "where": "where", "rate": "rate_max", "body": "body",
}  # fmt: skip
_FLAGS: Final = ("keep", "once")


def definition_options() -> list[click.Option]:
    """Of both kinds, and then those of each."""
    return [
        click.Option(
            ["--kind"],
            type=click.Choice(KINDS),
            help="capture: messages to files. replay: rows of files to an entity.  "
            "[default: capture]",
        ),
        click.Option(
            ["--entity"],
            required=True,
            metavar="ENTITY",
            help="What is captured: a queue, TOPIC/Subscriptions/NAME, or either with "
            "/$DeadLetterQueue. Of a replay: the queue or topic that rows are sent to.",
            shell_complete=complete_entity,
        ),
        click.Option(
            ["--path"],
            metavar="PATH",
            help="Where to, or of a replay where from, below the server's --capture-dir.  "
            "[default: a capture's name]",
        ),
        click.Option(
            ["--format"],
            type=click.Choice(REPLAY_FORMATS),
            help="Of the files; a capture writes parquet or delta.  [default: parquet]",
        ),
        *_capture_options(),
        *_replay_options(),
    ]


def _capture_options() -> list[click.Option]:
    return [
        click.Option(["--keep"], is_flag=True, help="Messages stay on the bus."),
        click.Option(["--once"], is_flag=True, help="Take what waits when started, then end."),
        click.Option(
            ["--interval-ms"], type=click.IntRange(0), metavar="MS", help="Between two batches."
        ),
        click.Option(
            ["--rows-max"], type=click.IntRange(0), metavar="N", help="Most rows of a batch."
        ),
        click.Option(
            ["--compact/--no-compact"],
            default=None,
            help="Whether small files of hours that are over become large ones.  "
            "[default: compact]",
        ),
    ]


def _replay_options() -> list[click.Option]:
    return [
        click.Option(
            ["--from-pipeline"],
            metavar="NAME",
            help="Replay what this capture has captured, instead of a --path.",
        ),
        click.Option(
            ["--since"], metavar="TIME", help="Replay rows of this time and later, in UTC."
        ),
        click.Option(["--until"], metavar="TIME", help="Replay rows before this time, in UTC."),
        click.Option(
            ["--time-column"],
            metavar="COLUMN",
            help="What these times are about.  [default: enqueued_time]",
        ),
        click.Option(
            ["--where"],
            metavar="CONDITION",
            help="Replay rows that meet it, as in SQL: \"properties['region'] = 'north'\".",
        ),
        click.Option(
            ["--rate"],
            type=click.IntRange(0),
            metavar="N",
            help="Most rows sent in a second.  [default: as many as can be]",
        ),
        click.Option(
            ["--column", "columns"],
            multiple=True,
            metavar="COLUMN=SOURCE",
            help="Make this column of a message of that one of the table; of none if it is empty. "
            "May be given again.",
        ),
        click.Option(
            ["--body"],
            type=click.Choice(BODIES),
            help="json: the body of a message is the whole row as JSON.  [default: column]",
        ),
    ]


def wanted_definition(
    name: str, columns: Sequence[str], options: dict[str, str | int | bool | None]
) -> Document:
    """What is asked of the API; Usage when an option cannot be read."""
    wanted: Document = {
        member: options[option]
        for option, member in _MEMBERS.items()
        if options.get(option) is not None and not (option in _FLAGS and not options[option])
    }
    if wanted.get("kind", CAPTURE) == CAPTURE:
        wanted.setdefault("path", name)
    if columns:
        wanted["columns"] = dict(_pair(text) for text in columns)
    return wanted


def _pair(text: str) -> tuple[str, str]:
    target, separator, source = text.partition("=")
    if not target or not separator:
        raise Usage(f"--column {text!r} must be COLUMN=SOURCE, as in body=payload")
    return target, source
