"""`shardbus backup` and `shardbus restore`: copy the whole namespace, and restore it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import click

from shardbus.app.cli.access import access_from, access_options
from shardbus.app.cli.api_client import ApiClient, Document
from shardbus.app.cli.console import Console, counted, run_command, size_text
from shardbus.app.cli.failures import CommandError, ServerUnavailable, Usage
from shardbus.app.cli.messages.entity_path import documents, whole
from shardbus.app.cli.operations.store_option import store_option
from shardbus.app.cli.progress import Progress

LOOK_S: Final = 0.2


@click.command(
    params=[
        click.Argument(["name"], required=False),
        click.Option(
            ["--offline", "data_dir"],
            type=click.Path(path_type=Path),
            metavar="DATA_DIR",
            help="Copy the data directory of a stopped server; NAME is the path of the new "
            "directory.",
        ),
        store_option("With --offline: kind of the stores, as the server has it."),
        *access_options(),
    ]
)
def backup(
    name: str | None, data_dir: Path | None, store: str, **options: str | int | bool | None
) -> None:
    """Copy the whole namespace into the directory NAME below the server's --backup-dir.

    The server keeps running; all files show one moment. Without NAME the directory is named by the
    time (UTC).
    """
    console = Console(bool(options.get("is_json")))

    def command() -> int:
        if data_dir is not None:
            if name is None:
                raise Usage("give the new directory: shardbus backup --offline DATA_DIR TARGET")
            # Late, so that a client command does not pay for loading the stores.
            from shardbus.app.backups.offline import run_offline

            return run_offline(console, data_dir, Path(name), store)
        found = backed_up(access_from(options).api(), name, time.sleep)
        console.show(found, _summary(found))
        return 0

    sys.exit(run_command(console, command))


def backed_up(api: ApiClient, name: str | None, wait: Callable[[float], None]) -> Document:
    """The backup when it is done; CommandError when it failed."""
    found = api.post("backups", {} if name is None else {"name": name})
    path = f"backups/{found.get('name')}"
    while found.get("state") == "running" and not whole(found, "size_bytes"):
        wait(LOOK_S)
        found = _looked(api, path)
    progress = Progress("copying bytes", whole(found, "size_bytes"))
    done_bytes = 0
    try:
        while found.get("state") == "running":
            wait(LOOK_S)
            found = _looked(api, path)
            progress.advance(whole(found, "done_bytes") - done_bytes)
            done_bytes = whole(found, "done_bytes")
    finally:
        progress.end()
    if found.get("state") != "done":
        raise CommandError(f"the backup failed: {found.get('error')}")
    return found


def _looked(api: ApiClient, path: str) -> Document:
    try:
        return api.get(path)
    except ServerUnavailable as error:
        raise ServerUnavailable(
            f"{error} (the backup may still be running: it is complete once it has its "
            "manifest.json)"
        ) from error


def _summary(found: Document) -> str:
    lines = [
        f"{found.get('path')}: {len(documents(found, 'files'))} databases, "
        f"{size_text(whole(found, 'size_bytes'))}, {counted(whole(found, 'messages'), 'message')}, "
        "all as of "
        f"{found.get('cut_at')}; writes waited for {found.get('hold_ms')} ms"
    ]
    if found.get("is_gathered") is not True:
        lines.append(
            "these files were written on the machines of their brokers; copy them into the "
            "directory:"
        )
        lines += [f"  {file.get('where')}" for file in documents(found, "files")]
    return "\n".join(lines)


@click.command(
    params=[
        click.Argument(["backup_dir"], metavar="BACKUP", type=click.Path(path_type=Path)),
        click.Argument(["data_dir"], metavar="DATA_DIR", type=click.Path(path_type=Path)),
        store_option("Kind of the new stores: files, or the URL of an empty database."),
        click.Option(["--json", "is_json"], is_flag=True, help="Print one JSON document."),
    ]
)
def restore(backup_dir: Path, data_dir: Path, store: str, is_json: bool) -> None:
    """Make the data directory DATA_DIR, which must be new or empty, from the directory BACKUP.

    Every file is compared with its checksum, and everything is examined as by `check`. Exit code 0:
    restored and sound. 1: the backup is damaged and nothing was restored, or the data was already
    damaged when it was backed up. 2: DATA_DIR cannot be used.
    """
    console = Console(is_json)

    def command() -> int:
        from shardbus.app.backups.restoring import run_restore

        return run_restore(console, backup_dir, data_dir, store)

    sys.exit(run_command(console, command))
