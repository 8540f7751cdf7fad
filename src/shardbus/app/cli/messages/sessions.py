"""`shardbus sessions`: lists the sessions of an entity, with their messages and holds."""

import sys
from typing import Final

import click

from shardbus.app.cli.access import access_options
from shardbus.app.cli.api_client import ApiClient, Document
from shardbus.app.cli.console import Console, note, run_command, size_text
from shardbus.app.cli.messages.entity_path import (
    documents,
    entity_parameters,
    message_path,
    with_api,
)
from shardbus.app.cli.tables import list_text

PAGE_COUNT: Final = 1_000
HEADING: Final = ("SESSION", "MESSAGES", "SIZE", "OLDEST", "HELD UNTIL")


@click.command(params=[*entity_parameters(), *access_options()])
def sessions(entity: str, **options: str | int | bool | None) -> None:
    """List the sessions of ENTITY that have messages or a state: the number of messages, their
    size, the time of the oldest one, and until when a session is held.
    """
    console = Console(bool(options.get("is_json")))

    def command() -> int:
        path = message_path(entity, options)
        found, is_counted = with_api(options, lambda api: _all(api, path))
        if not found:
            note(f"{path} has no sessions with messages or a state")
            if not options.get("is_json"):
                return 0
        rows = [_row(session, "" if is_counted else "≥ ") for session in found]
        console.show(found, list_text([HEADING, *rows], cut={"SESSION": 12}))
        return 0

    sys.exit(run_command(console, command))


def _all(api: ApiClient, path: str) -> tuple[list[Document], bool]:
    """All sessions, and whether all of their messages were counted."""
    found: list[Document] = []
    is_counted = True
    while True:
        page = api.get(f"entities/{path}/sessions", skip=len(found), top=PAGE_COUNT, counts=1)
        listed = documents(page, "sessions")
        found += listed
        is_counted = is_counted and page.get("is_counted") is True
        if len(listed) < PAGE_COUNT:
            return found, is_counted


def _row(session: Document, least: str) -> tuple[str, ...]:
    size = session.get("size_bytes")
    return (
        str(session.get("session_id")),
        f"{least}{session.get('messages', 0)}",
        f"{least}{size_text(size if isinstance(size, int) else 0)}",
        str(session.get("oldest_at") or "-"),
        str(session.get("locked_until") or "-"),
    )
