"""`shardbus purge`: removes the active messages of an entity."""

import sys
from datetime import UTC, datetime, timedelta

import click

from shardbus.app.cli.access import Options, access_options, text_option
from shardbus.app.cli.api_client import ApiClient, Document
from shardbus.app.cli.confirm import confirm, yes_option
from shardbus.app.cli.console import Console, counted, run_command
from shardbus.app.cli.failures import Usage
from shardbus.app.cli.messages.entity_path import (
    DEAD_LETTERS,
    dead_letter_option,
    entity_parameters,
    message_path,
    with_api,
)
from shardbus.app.cli.messages.options import duration_ms, moment
from shardbus.app.cli.messages.removing import count_of, purge


def age_options() -> list[click.Parameter]:
    return [
        click.Option(
            ["--before"], metavar="TIME", help="Only messages enqueued before this time (UTC)."
        ),
        click.Option(
            ["--older-than"], metavar="DURATION", help="Only messages older than this, as in 2h."
        ),
    ]


@click.command(
    "purge",
    params=[
        *entity_parameters(),
        click.Option(["--session"], metavar="ID", help="Only messages of this session."),
        *age_options(),
        dead_letter_option(),
        yes_option(),
        *access_options(),
    ],
)
def purge_command(entity: str, **options: str | int | bool | None) -> None:
    """Remove the active messages of ENTITY that are not locked.

    Scheduled and deferred messages stay.
    """
    path_options = bool(options.get("is_dead_letter"))
    run_purge(entity, options, is_dead_letter=path_options)


def run_purge(entity: str, options: Options, *, is_dead_letter: bool) -> None:
    """Ask, remove, report the number, and end the process."""
    console = Console(bool(options.get("is_json")))

    def command() -> int:
        path = message_path(entity, options, is_dead_letter=is_dead_letter)
        before = _before(options)
        with_api(options, lambda api: _ask(api, path, options, is_dead_letter=is_dead_letter))
        session_id = text_option(options, "session")
        purged = with_api(
            options, lambda api: purge(api, path, before=before, session_id=session_id)
        )
        document: Document = {"entity": path, "purged": purged}
        console.show(document, f"purged {counted(purged, 'message')} from {path}")
        return 0

    sys.exit(run_command(console, command))


def _before(options: Options) -> str | None:
    before, older_than = text_option(options, "before"), text_option(options, "older_than")
    if before is not None and older_than is not None:
        raise Usage("give --before or --older-than, not both")
    now = datetime.now(UTC)
    if older_than is not None:
        age = timedelta(milliseconds=duration_ms("--older-than", older_than))
        return (now - age).isoformat()
    return None if before is None else moment("--before", before, now)


def _ask(api: ApiClient, path: str, options: Options, *, is_dead_letter: bool) -> None:
    if options.get("is_sure"):
        return
    entity = path.removesuffix(f"/{DEAD_LETTERS}")
    count = count_of(api, entity, "dead_letter" if is_dead_letter else "active")
    is_part = any(options.get(name) for name in ("session", "before", "older_than"))
    some = "some of the " if is_part else ""
    confirm(options, f"Remove {some}{counted(count, 'message')} from {path}?")
