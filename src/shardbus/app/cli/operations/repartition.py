"""`shardbus repartition`: other fragments while the clients stay connected (P6)."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from textwrap import wrap

import click

from shardbus.app.cli.access import access_from, access_options
from shardbus.app.cli.api_client import ApiClient, Document
from shardbus.app.cli.completion import complete_entity
from shardbus.app.cli.console import Console, counted, run_command
from shardbus.app.cli.failures import Usage
from shardbus.app.cli.messages.entity_path import documents
from shardbus.app.cli.operations.fragments import WATCH_S
from shardbus.app.cli.tables import fitted, terminal_width
from shardbus.core.limits import ENTITY_FRAGMENTS_MAX

_HEADING = ("FRAGMENT", "SHARE", "SENT", "ACTIVE")


@click.command(
    params=[
        click.Argument(["entity"], shell_complete=complete_entity),
        click.Option(
            ["--fragments", "count"],
            type=click.IntRange(1, ENTITY_FRAGMENTS_MAX),
            metavar="N",
            help="New number of fragments; 1 makes the entity conventional.",
        ),
        click.Option(
            ["--balanced", "is_balanced"],
            is_flag=True,
            help="Give each fragment the same share of the load, as measured so far.",
        ),
        click.Option(
            ["--dry-run", "is_dry_run"], is_flag=True, help="Show what would be done; do nothing."
        ),
        click.Option(
            ["--wait", "is_waiting"],
            is_flag=True,
            help="Show the progress until no message waits in a former fragment.",
        ),
        click.Option(
            ["--cancel", "is_cancelling"],
            is_flag=True,
            help="Undo a repartition that was prepared and not completed.",
        ),
        *access_options(),
    ]
)
def repartition(
    entity: str,
    count: int | None,
    is_balanced: bool,
    is_dry_run: bool,
    is_waiting: bool,
    is_cancelling: bool,
    **options: str | int | bool | None,
) -> None:
    """Give ENTITY, a queue or topic, other fragments while its clients stay connected.

    Messages stay where they are and are received before newer ones; new messages go to the new
    fragments. A topic and all its subscriptions get them together. Without --fragments, show the
    map of ENTITY.
    """
    console = Console(bool(options.get("is_json")))

    def command() -> int:
        if is_cancelling and (count is not None or is_dry_run or is_balanced):
            raise Usage("--cancel cannot be combined with --fragments, --balanced or --dry-run")
        if count is None and (is_dry_run or is_balanced):
            raise Usage("--dry-run and --balanced need --fragments, the new number of fragments")
        api = access_from(options).api()
        path = f"entities/{entity}"
        if is_cancelling:
            found = api.post(f"{path}/repartition/cancel", {})
        elif count is None:
            found = api.get(f"{path}/map")
        else:
            wanted: Document = {
                "fragments": count,
                "is_balanced": is_balanced,
                "is_dry_run": is_dry_run,
            }
            found = api.post(f"{path}/repartition", wanted)
        if is_waiting and not is_dry_run:
            found = _wait(api, path, found, time.sleep)
        console.show(found, shown(found))
        return 0

    sys.exit(run_command(console, command))


def _wait(api: ApiClient, path: str, found: Document, wait: Callable[[float], None]) -> Document:
    """Ask until no message waits in a former fragment."""
    while found.get("state") != "settled":
        click.echo(f"{_left(found)} in former fragments", err=True)
        wait(WATCH_S)
        found = api.get(f"{path}/map")
    return found


def shown(document: Document) -> str:
    """The state of a map, a row for each fragment, and what is left in former ones."""
    verb = "would have" if document.get("is_dry_run") else "has"
    ranges = documents(document, "ranges")
    rows = [
        (
            str(each.get("fragment")),
            f"{_number(each, 'share'):.1%}",
            str(each.get("sent_total")),
            str(each.get("active")),
        )
        for each in ranges
    ]
    lines = [f"{document.get('name')} {verb} {counted(len(ranges), 'fragment')}"]
    lines.append(fitted([_HEADING, *rows], cut={}))
    former = document.get("former")
    if isinstance(former, list) and former:
        numbers = ", ".join(map(str, former))
        lines.append(f"former fragments ({numbers}) hold {_left(document)}")
    if document.get("state") == "preparing":
        lines.append("a repartition was prepared and not completed: --cancel undoes it")
    if document.get("advice"):
        advice = f"skew {document.get('skew')}: {document.get('advice')}"
        lines += wrap(advice, terminal_width(), break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines)


def _left(document: Document) -> str:
    active = counted(int(_number(document, "left_active")), "message")
    rest = [
        f"{int(_number(document, f'left_{kind}'))} {said}"
        for kind, said in (
            ("deferred", "deferred"),
            ("scheduled", "scheduled"),
            ("dead_letter", "dead-lettered"),
        )
        if _number(document, f"left_{kind}")
    ]
    return ", ".join([f"{active} to receive", *rest])


def _number(document: Document, name: str) -> float:
    value = document.get(name, 0)
    return value if isinstance(value, int | float) else 0
