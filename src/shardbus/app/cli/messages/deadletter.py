"""`shardbus deadletter`: lists, resubmits and purges messages that could not be delivered."""

import sys
from collections import Counter

import click

from shardbus.app.cli.access import Options, access_options
from shardbus.app.cli.api_client import ApiClient, Document
from shardbus.app.cli.confirm import yes_option
from shardbus.app.cli.console import Console, Json, counted, note, run_command
from shardbus.app.cli.failures import NotFound, Usage
from shardbus.app.cli.groups import CommandGroup
from shardbus.app.cli.messages.browsing import browse
from shardbus.app.cli.messages.entity_path import (
    entity_parameters,
    message_path,
    whole,
    with_api,
)
from shardbus.app.cli.messages.output import Printer, output_options, run_printing
from shardbus.app.cli.messages.peek import COUNT_MAX, count_options, show_pages
from shardbus.app.cli.messages.purge import age_options, run_purge
from shardbus.app.cli.messages.removing import count_of, resubmit
from shardbus.app.cli.messages.text import DEAD_LETTERS, MessageTable
from shardbus.app.cli.tables import list_text

NUMBERS_MAX = 1_000


@click.group(cls=CommandGroup)
def deadletter() -> None:
    """List, resubmit and purge dead letters."""


@deadletter.command(
    "list",
    params=[
        *entity_parameters(),
        *count_options(),
        click.Option(
            ["--summary", "is_summary"],
            is_flag=True,
            help="Show only the number of dead letters for each reason.",
        ),
        *output_options(),
        *access_options(),
    ],
)
def list_dead_letters(entity: str, **options: str | int | bool | None) -> None:
    """Show the dead letters of ENTITY: reason, description, time, body."""
    if options.get("is_summary"):
        _run_summary(entity, options)

    def act(printer: Printer) -> None:
        path = message_path(entity, options, is_dead_letter=True)
        with_api(options, lambda api: show_pages(printer, api, path, options))

    run_printing(options, MessageTable(DEAD_LETTERS).shown, act)


@deadletter.command(
    "resubmit",
    params=[
        *entity_parameters(),
        click.Option(
            ["--count"],
            type=click.IntRange(1, COUNT_MAX),
            metavar="N",
            help="Maximum number, the oldest first.  [default: all]",
        ),
        click.Option(
            ["--number", "numbers"],
            type=click.IntRange(0),
            multiple=True,
            metavar="NUMBER",
            help="Only the dead letter with this sequence number; may be repeated.",
        ),
        *access_options(),
    ],
)
def resubmit_dead_letters(
    entity: str, numbers: tuple[int, ...], **options: str | int | bool | None
) -> None:
    """Send the dead letters of ENTITY again, as they were first sent, each of them once.

    Those of a subscription go to its topic, and so to every subscription whose rules match.
    """
    console = Console(bool(options.get("is_json")))

    def command() -> int:
        path = message_path(entity, options)
        done = with_api(options, lambda api: _resubmit(api, path, numbers, options))
        document: Document = {"entity": path, "resubmitted": done}
        console.show(document, f"resubmitted {counted(done, 'dead letter')} of {path}")
        return 0

    sys.exit(run_command(console, command))


@deadletter.command(
    "purge", params=[*entity_parameters(), *age_options(), yes_option(), *access_options()]
)
def purge_dead_letters(entity: str, **options: str | int | bool | None) -> None:
    """Remove the dead letters of ENTITY."""
    run_purge(entity, options, is_dead_letter=True)


def _resubmit(api: ApiClient, path: str, numbers: tuple[int, ...], options: Options) -> int:
    given = options.get("count")
    if numbers:
        if isinstance(given, int):
            raise Usage("give --count or --number, not both")
        return _resubmit_numbered(api, path, numbers)
    count = given if isinstance(given, int) else count_of(api, path, "dead_letter")
    return resubmit(api, path, count)


def _resubmit_numbered(api: ApiClient, path: str, numbers: tuple[int, ...]) -> int:
    if len(numbers) > NUMBERS_MAX:
        raise Usage(f"at most {NUMBERS_MAX} numbers can be given at once")
    body: Document = {"sequence_numbers": list(numbers)}
    answer = api.post(f"entities/{path}/dead-letters/resubmit", body)
    done, missing = whole(answer, "resubmitted"), answer.get("missing")
    if isinstance(missing, list) and missing:
        listed = ", ".join(map(str, missing))
        raise NotFound(
            f"{counted(done, 'dead letter')} resubmitted; these numbers were not found, or are "
            f"locked: {listed} (`shardbus deadletter list {path}` shows what there is)"
        )
    return done


def _run_summary(entity: str, options: Options) -> None:
    console = Console(bool(options.get("is_json")))

    def command() -> int:
        path = message_path(entity, options, is_dead_letter=True)
        reasons = with_api(options, lambda api: _reasons(api, path))
        listed = reasons.most_common()
        document: Json = [{"reason": reason, "count": count} for reason, count in listed]
        if not listed:
            note(f"there are no messages in {path}")
            if not options.get("is_json"):
                return 0
        rows = [(reason or "(none)", str(count)) for reason, count in listed]
        console.show(document, list_text([("REASON", "COUNT"), *rows], cut={"REASON": 20}))
        return 0

    sys.exit(run_command(console, command))


def _reasons(api: ApiClient, path: str) -> Counter[str]:
    return Counter(
        str(message.get("dead_letter_reason", ""))
        for messages in browse(api, path, count=None)
        for message in messages
    )
