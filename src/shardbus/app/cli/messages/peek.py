"""`shardbus peek`: shows messages without changing them."""

from typing import Final

import click

from shardbus.app.cli.access import Options, access_options, text_option
from shardbus.app.cli.api_client import ApiClient
from shardbus.app.cli.console import note
from shardbus.app.cli.failures import Usage
from shardbus.app.cli.messages.browsing import browse
from shardbus.app.cli.messages.entity_path import (
    dead_letter_option,
    entity_parameters,
    message_path,
    with_api,
)
from shardbus.app.cli.messages.output import Printer, output_options, run_printing
from shardbus.app.cli.messages.text import MESSAGES, MessageTable

COUNT_DEFAULT: Final = 20
COUNT_MAX: Final = 1_000_000_000


def count_options() -> list[click.Parameter]:
    return [
        click.Option(
            ["--count"],
            type=click.IntRange(1, COUNT_MAX),
            metavar="N",
            help=f"Number of messages.  [default: {COUNT_DEFAULT}]",
        ),
        click.Option(["--all", "is_all"], is_flag=True, help="All messages."),
    ]


def count_from(options: Options) -> int | None:
    """The number of messages; None: all."""
    given = options.get("count")
    if options.get("is_all"):
        if given is not None:
            raise Usage("give --count or --all, not both")
        return None
    return given if isinstance(given, int) else COUNT_DEFAULT


@click.command(
    params=[
        *entity_parameters(),
        *count_options(),
        click.Option(
            ["--from", "start"],
            type=click.IntRange(0),
            metavar="NUMBER",
            help="Start at this sequence number.",
        ),
        click.Option(["--session"], metavar="ID", help="Only messages of this session."),
        dead_letter_option(),
        *output_options(),
        *access_options(),
    ]
)
def peek(entity: str, **options: str | int | bool | None) -> None:
    """Show messages of ENTITY in every state; they are neither locked, counted nor removed."""

    def act(printer: Printer) -> None:
        is_dead_letter = bool(options.get("is_dead_letter"))
        path = message_path(entity, options, is_dead_letter=is_dead_letter)
        with_api(options, lambda api: show_pages(printer, api, path, options))

    run_printing(options, MessageTable(MESSAGES).shown, act)


def show_pages(printer: Printer, api: ApiClient, path: str, options: Options) -> None:
    """Print what the options select, page by page."""
    start = options.get("start")
    pages = browse(
        api,
        path,
        count=count_from(options),
        start=start if isinstance(start, int) else None,
        session_id=text_option(options, "session"),
    )
    for messages in pages:
        printer.show(messages)
    if not printer.has_begun:
        note(f"there are no messages in {path}")
