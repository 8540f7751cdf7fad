"""`shardbus receive`: prints messages, then completes them, so that none is lost in between."""

from typing import Final

import click

from shardbus.app.cli.access import Options, access_options, text_option
from shardbus.app.cli.console import note
from shardbus.app.cli.failures import Usage
from shardbus.app.cli.messages.entity_path import (
    dead_letter_option,
    entity_parameters,
    message_path,
    with_api,
)
from shardbus.app.cli.messages.options import duration_ms
from shardbus.app.cli.messages.output import Printer, bodies, output_options, run_printing
from shardbus.app.cli.messages.receiving import ReceiveOptions, Receiving

WAIT: Final = "5s"
# The maximum number of locks held until the end: more than one request can settle.
KEPT_COUNT_MAX: Final = 1_000
COUNT_MAX: Final = 1_000_000_000


@click.command(
    params=[
        *entity_parameters(),
        click.Option(
            ["--count"],
            type=click.IntRange(1, COUNT_MAX),
            metavar="N",
            help="Number of messages.  [default: 1]",
        ),
        click.Option(["--all", "is_all"], is_flag=True, help="All available messages."),
        click.Option(
            ["--wait"],
            metavar="DURATION",
            help=f"How long to wait for a message.  [default: {WAIT}; with --all 0s]",
        ),
        click.Option(
            ["--delete", "is_deleting"],
            is_flag=True,
            help="Delete messages as they are handed out: faster, but messages that are not "
            "printed are lost.",
        ),
        click.Option(
            ["--peek-lock", "is_locking"],
            is_flag=True,
            help="Print messages and leave them locked until they are settled or expire.",
        ),
        click.Option(
            ["--abandon", "is_abandoning"], is_flag=True, help="Print messages and return them."
        ),
        click.Option(
            ["--dead-letter-reason"],
            metavar="TEXT",
            help="Print messages and dead-letter them for this reason.",
        ),
        click.Option(["--session"], metavar="ID", help="Only messages of this session."),
        click.Option(
            ["--next-session", "is_next_session"],
            is_flag=True,
            help="Only messages of the next free session.",
        ),
        dead_letter_option(),
        *output_options(),
        *access_options(),
    ]
)
def receive(entity: str, **options: str | int | bool | None) -> None:
    """Receive from ENTITY: print the bodies of messages, one per line, and complete them.

    A message is completed after it was printed and, where the output is a pipe, taken by the
    reader; if that fails it is returned. From an entity with sessions the messages of free sessions
    come, one session after the other.
    """

    def act(printer: Printer) -> None:
        is_dead_letter = bool(options.get("is_dead_letter"))
        path = message_path(entity, options, is_dead_letter=is_dead_letter)
        wish = wish_from(path, options)
        with_api(options, lambda api: Receiving(api, wish, printer.hand_over).run())
        if not printer.has_begun:
            note(f"no message came from {path}")

    run_printing(options, bodies, act)


def wish_from(path: str, options: Options) -> ReceiveOptions:
    """What the options select; Usage when they contradict each other."""
    ways = ("is_deleting", "is_locking", "is_abandoning", "dead_letter_reason")
    if sum(bool(options.get(way)) for way in ways) > 1:
        raise Usage("give one of --delete, --peek-lock, --abandon and --dead-letter-reason")
    is_all, given = bool(options.get("is_all")), options.get("count")
    session_id = text_option(options, "session")
    is_next_session = bool(options.get("is_next_session"))
    if is_all and given is not None:
        raise Usage("give --count or --all, not both")
    if session_id is not None and is_next_session:
        raise Usage("give --session or --next-session, not both")
    reason = text_option(options, "dead_letter_reason")
    if reason is not None and options.get("is_dead_letter"):
        raise Usage("a dead letter cannot be dead-lettered again")
    count = None if is_all else given if isinstance(given, int) else 1
    action = _action(options, reason)
    if action in ("", "abandon") and not options.get("is_deleting"):
        _check_kept(count)
    wait = text_option(options, "wait") or ("0s" if is_all else WAIT)
    return ReceiveOptions(
        path,
        count,
        duration_ms("--wait", wait),
        action=action,
        reason=reason,
        is_deleting=bool(options.get("is_deleting")),
        session_id=session_id,
        is_one_session=is_next_session,
    )


def _action(options: Options, reason: str | None) -> str:
    if options.get("is_deleting") or options.get("is_locking"):
        return ""
    if options.get("is_abandoning"):
        return "abandon"
    return "complete" if reason is None else "dead_letter"


def _check_kept(count: int | None) -> None:
    if count is None or count > KEPT_COUNT_MAX:
        raise Usage(
            f"--abandon and --peek-lock keep messages locked: give --count, at most "
            f"{KEPT_COUNT_MAX}; `shardbus peek --all` shows messages without locking them"
        )
