"""`shardbus orphans`: fragments that no entity of the catalogue owns."""

from __future__ import annotations

import sys
from typing import Final

import click

from shardbus.app.cli.access import Options, access_from, access_options
from shardbus.app.cli.api_client import ApiClient, Document
from shardbus.app.cli.confirm import confirm, yes_option
from shardbus.app.cli.console import Console, counted, run_command, size_text
from shardbus.app.cli.failures import NotFound
from shardbus.app.cli.groups import CommandGroup
from shardbus.app.cli.messages.entity_path import documents
from shardbus.app.cli.tables import fitted

_COLUMNS: Final = (
    ("ENTITY ID", "entity_id"),
    ("BROKER", "broker"),
    ("FRAGMENTS", "fragments"),
    ("MESSAGES", "messages"),
    ("SIZE", "size_bytes"),
    ("PROBLEM", "problem"),
)


@click.group(cls=CommandGroup)
def orphans() -> None:
    """List, recover and remove orphans: fragments that no entity of the catalogue owns.

    They exist after the catalogue was lost, or an old copy of it was restored. The bus keeps them
    until they are recovered or removed.
    """


@orphans.command("list", params=[*access_options()])
def list_command(**options: str | int | bool | None) -> None:
    """List orphans: entity id, broker, fragments, messages, bytes."""
    console = Console(bool(options.get("is_json")))

    def command() -> int:
        found = documents(access_from(options).api().get("orphans"), "orphans")
        rows = [tuple(_cell(each, name) for _, name in _COLUMNS) for each in found]
        heading = tuple(title for title, _ in _COLUMNS)
        shown = fitted([heading, *rows], cut={"PROBLEM": 10, "FRAGMENTS": 9})
        console.show(found, shown if found else "there are no orphans")
        return 0

    sys.exit(run_command(console, command))


@orphans.command(
    "remove",
    params=[click.Argument(["entity_id"], type=int), yes_option(), *access_options()],
)
def remove_command(entity_id: int, **options: str | int | bool | None) -> None:
    """Remove the orphans with ENTITY_ID, and all messages in them, for good."""
    console = Console(bool(options.get("is_json")))

    def command() -> int:
        api = access_from(options).api()
        if not options.get("is_sure"):
            _ask(api, entity_id, options)
        answer = api.post("orphans/remove", {"entity_id": entity_id})
        console.show(answer, f"removed the orphans of entity {entity_id}")
        return 0

    sys.exit(run_command(console, command))


@orphans.command(
    "recover",
    params=[
        click.Argument(["entity_id"], type=int),
        click.Argument(["name"]),
        click.Option(
            ["--requires-session"],
            is_flag=True,
            help="Give NAME sessions, because the messages have sessions.",
        ),
        *access_options(),
    ],
)
def recover_command(
    entity_id: int, name: str, requires_session: bool, **options: str | int | bool | None
) -> None:
    """Make the queue NAME from the orphans with ENTITY_ID, with all their messages."""
    console = Console(bool(options.get("is_json")))
    sys.exit(
        run_command(console, lambda: _recover(console, entity_id, name, requires_session, options))
    )


def _recover(
    console: Console, entity_id: int, name: str, requires_session: bool, options: Options
) -> int:
    body: Document = {"entity_id": entity_id, "name": name, "requires_session": requires_session}
    answer = access_from(options).api().post("orphans/recover", body)
    console.show(answer, f"'{answer.get('name')}' now has the {answer.get('fragments')} fragments")
    return 0


def _ask(api: ApiClient, entity_id: int, options: Options) -> None:
    found = [
        each
        for each in documents(api.get("orphans"), "orphans")
        if each.get("entity_id") == entity_id
    ]
    if not found:
        raise NotFound(f"no store holds orphans with the entity id {entity_id}")
    count = sum(value for each in found if isinstance(value := each.get("messages"), int))
    confirm(options, f"Remove {counted(count, 'message')} of entity {entity_id} for good?")


def _cell(document: Document, name: str) -> str:
    value = document.get(name, "")
    if name == "size_bytes" and isinstance(value, int):
        return size_text(value)
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
