"""`shardbus sessions`: lists the sessions of an entity."""

import sys
from typing import Final

import click

from shardbus.app.cli.access import access_options
from shardbus.app.cli.api_client import ApiClient, Document
from shardbus.app.cli.console import Console, run_command, table
from shardbus.app.cli.messages.entity_path import (
    documents,
    entity_parameters,
    message_path,
    with_api,
)

PAGE_COUNT: Final = 1_000


@click.command(params=[*entity_parameters(), *access_options()])
def sessions(entity: str, **options: str | int | bool | None) -> None:
    """List the sessions of ENTITY that have messages or a state."""
    console = Console(bool(options.get("is_json")))

    def command() -> int:
        path = message_path(entity, options)
        found = with_api(options, lambda api: _all(api, path))
        rows = [(str(session.get("session_id")),) for session in found]
        console.show(found, table([("SESSION",), *rows]))
        return 0

    sys.exit(run_command(console, command))


def _all(api: ApiClient, path: str) -> list[Document]:
    found: list[Document] = []
    while True:
        page = api.get(f"entities/{path}/sessions", skip=len(found), top=PAGE_COUNT)
        listed = documents(page, "sessions")
        found += listed
        if len(listed) < PAGE_COUNT:
            return found
