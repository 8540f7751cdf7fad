"""`shardbus cluster status`: the nodes, databases and slots of a cluster."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Final

import click

from shardbus.app.cli.access import Options, access_from, access_options
from shardbus.app.cli.api_client import Document
from shardbus.app.cli.console import Console, run_command, table
from shardbus.app.cli.failures import Usage
from shardbus.app.cli.operations.fragments import watch
from shardbus.app.server.store_kinds import SHARED_EXAMPLE

_NODES: Final = (
    ("NODE", "name"),
    ("STATE", "state"),
    ("ROLES", "roles"),
    ("SLOTS", "slots"),
    ("BEAT", "beat_age_ms"),
    ("ADDRESS", "address"),
    ("VERSION", "version"),
    ("PROTOCOL", "protocol"),
)
_STORES: Final = (
    ("STORE", "index"),
    ("DATABASE", "address"),
    ("TIMELINE", "timeline"),
    ("SLOTS", "slots"),
    ("FREE", "free_slots"),
    ("SIZE", "size_bytes"),
    ("OLDEST SNAPSHOT", "oldest_snapshot_ms"),
    ("STANDBYS", "standbys"),
    ("LAG", "lag_bytes"),
    ("PROBLEM", "problem"),
)
_SLOTS: Final = (
    ("SLOT", "slot"),
    ("STORE", "store"),
    ("STATE", "state"),
    ("OWNER", "owner"),
    ("EPOCH", "epoch"),
    ("COMMITS", "commits"),
    ("TAKEN AT", "taken_at"),
    ("FROM", "taken_from"),
)
_MILLISECONDS: Final = frozenset({"beat_age_ms", "oldest_snapshot_ms"})


@click.command(
    params=[
        click.Option(
            ["--store"],
            multiple=True,
            metavar="URL",
            help=f"Ask this database instead of a gateway, as in {SHARED_EXAMPLE}; repeat it for "
            "each database.",
        ),
        click.Option(["--watch", "is_watching"], is_flag=True, help="Update every second."),
        *access_options(),
    ]
)
def status(store: tuple[str, ...], is_watching: bool, **options: str | int | bool | None) -> None:
    """Show the nodes, stores and slots of a cluster."""
    console = Console(bool(options.get("is_json")))
    sys.exit(run_command(console, lambda: _run(console, store, is_watching, options)))


def _run(console: Console, urls: tuple[str, ...], is_watching: bool, options: Options) -> int:
    if is_watching and options.get("is_json"):
        raise Usage("--watch is for people and --json for programs: give one of them")
    if not urls:
        api = access_from(options).api()
        return _show(console, is_watching, lambda: api.get("cluster"))
    # Imported here, so that asking a gateway does not load the stores.
    from shardbus.app.cli.cluster.look import ClusterLook

    look = ClusterLook(urls)
    try:
        return _show(console, is_watching, look.document)
    finally:
        look.close()


def _show(console: Console, is_watching: bool, read: Callable[[], Document]) -> int:
    if is_watching:
        watch(lambda: shown(read()), time.sleep)
    else:
        found = read()
        console.show(found, shown(found))
    return 0


def shown(document: Document) -> str:
    """The cluster as text."""
    if not document.get("is_clustered"):
        return "This is a single server, not a node of a cluster."
    parts = [
        f"Cluster {document.get('cluster_id')}{_moves(document)}",
        _table(document, "nodes", _NODES),
        _table(document, "stores", _STORES),
        _table(document, "slots", _SLOTS),
    ]
    return "\n\n".join(parts)


def _moves(document: Document) -> str:
    """How many slots changed their owner; empty if no gateway was asked."""
    given, taken = document.get("given_total"), document.get("taken_total")
    if not given and not taken:
        return ""
    return f"; slots that moved while this gateway ran: {given} given, {taken} taken from silent"


def _table(document: Document, name: str, columns: tuple[tuple[str, str], ...]) -> str:
    rows = document.get(name)
    heading = tuple(title for title, _ in columns)
    found = rows if isinstance(rows, list) else []
    lines = [
        tuple(_cell(row.get(key), key) for _, key in columns)
        for row in found
        if isinstance(row, dict)
    ]
    return table([heading, *lines])


def _cell(value: object, key: str) -> str:
    if value is None or value == "":
        return "-"
    if key in _MILLISECONDS and isinstance(value, int):
        return f"{value / 1000:.1f} s"
    if isinstance(value, list):
        return ",".join(str(each) for each in value)
    return str(value)
