"""`shardbus repartition`: other fragments while the clients stay connected (P6)."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from textwrap import wrap
from typing import Final

import click

from shardbus.app.cli.access import access_from, access_options
from shardbus.app.cli.api_client import ApiClient, Document
from shardbus.app.cli.completion import complete_entity
from shardbus.app.cli.console import Console, counted, run_command
from shardbus.app.cli.failures import (
    CommandError,
    ConnectionLost,
    Refused,
    ServerUnavailable,
    Usage,
)
from shardbus.app.cli.messages.entity_path import documents
from shardbus.app.cli.operations.fragments import WATCH_S
from shardbus.app.cli.progress import Progress
from shardbus.app.cli.tables import fitted, terminal_width
from shardbus.core.limits import ENTITY_FRAGMENTS_MAX

# How long the answer may take before progress is shown, and for how long a lost connection is tried
# again.
ANSWER_MS: Final = 500
LOST_S: Final = 60.0

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
            help="Undo a repartition that is under way or was interrupted.",
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
            found = repartitioned(api, path, wanted, time.sleep)
        if is_waiting and not is_dry_run:
            found = _wait(api, path, found, time.sleep)
        console.show(found, shown(found))
        return 0

    sys.exit(run_command(console, command))


def repartitioned(
    api: ApiClient, path: str, wanted: Document, wait: Callable[[float], None]
) -> Document:
    """The map when the repartition has ended; CommandError when it failed.

    It goes on while the connection is lost. Asking for the same again joins it.
    """
    if wanted.get("is_dry_run"):
        return api.post(f"{path}/repartition", wanted)
    former = api.get(f"{path}/repartition").get("former")
    try:
        found = api.post(f"{path}/repartition", {**wanted, "wait_ms": ANSWER_MS})
        if not isinstance(found.get("progress"), dict):
            return found
    except ConnectionLost:
        wait(WATCH_S)
    status = _watched(api, path, wait)
    if status.get("failure"):
        raise Refused(str(status["failure"]))
    if status.get("former") == former and status.get("fragments") != wanted["fragments"]:
        raise CommandError(
            "the repartition did not take place, because the server that made it ended, or did not "
            "get the request: ask again"
        )
    return api.get(f"{path}/map")


def _watched(api: ApiClient, path: str, wait: Callable[[float], None]) -> Document:
    """The status when no repartition is under way, after any number of lost connections within
    LOST_S.
    """
    step, bar, done, lost = "", Progress(""), 0, 0
    try:
        while True:
            try:
                status = api.get(f"{path}/repartition")
                lost = 0
            except ServerUnavailable:
                lost += 1
                if lost * WATCH_S > LOST_S:
                    raise
                wait(WATCH_S)
                continue
            progress = status.get("progress")
            if not isinstance(progress, dict):
                if status.get("is_prepared"):
                    # By another gateway, or interrupted: that is undone soon.
                    wait(WATCH_S)
                    continue
                return status
            if progress.get("step") != step:
                bar.end()
                step, done = str(progress.get("step")), 0
                bar = Progress(step, int(_number(progress, "total")))
            bar.advance(int(_number(progress, "done")) - done)
            done = int(_number(progress, "done"))
            wait(WATCH_S)
    finally:
        bar.end()


def _wait(api: ApiClient, path: str, found: Document, wait: Callable[[float], None]) -> Document:
    """Ask until no message waits in a former fragment."""
    while found.get("state") != "settled":
        click.echo(_waits_for(found), err=True)
        wait(WATCH_S)
        found = api.get(f"{path}/map")
    return found


def _waits_for(document: Document) -> str:
    progress = document.get("progress")
    if not isinstance(progress, dict):
        return f"{_left(document)} in former fragments"
    done, total = int(_number(progress, "done")), int(_number(progress, "total"))
    return f"{progress.get('step')}" + (f" {done} of {total}" if total else "")


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
    if isinstance(document.get("progress"), dict):
        lines.append(f"a repartition is under way: {_waits_for(document)}; --cancel undoes it")
    elif document.get("state") == "preparing":
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
