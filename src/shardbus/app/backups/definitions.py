"""Definitions of pipelines in a backup: small files, read while the stores are held."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from shardbus.app.backups.manifest import ManifestFile, write_new
from shardbus.app.pipelines.shelf import FILE_BYTES_MAX, Intent
from shardbus.app.pipelines.starting import DIRECTORY as PIPELINES
from shardbus.stores.base.files import sync_directory
from shardbus.stores.base.leased import LeasedRow

FILES_MAX: Final = 1_000


def read_definitions(data_dir: Path) -> dict[str, bytes]:
    """The files by their names in a backup; OSError when one cannot be read."""
    found = sorted((data_dir / PIPELINES).glob("*.json"))[:FILES_MAX]
    whole = ((f"{PIPELINES}/{file.name}", _content(file)) for file in found)
    # A file that is too long is not a definition: the server ignores it, too.
    return {name: content for name, content in whole if len(content) <= FILE_BYTES_MAX}


def shared_definitions(rows: Sequence[LeasedRow]) -> dict[str, bytes]:
    """The pipelines of a cluster, as the files that a server has of its own."""
    return {
        f"{PIPELINES}/{row.name}.json": json.dumps(
            {"definition": json.loads(row.document), "intent": row.intent}, indent=2
        ).encode()
        for row in rows[:FILES_MAX]
    }


def write_definitions(directory: Path, definitions: dict[str, bytes]) -> list[ManifestFile]:
    """Write them into a backup, durably."""
    if not definitions:
        return []
    (directory / PIPELINES).mkdir(mode=0o700)
    for name, content in definitions.items():
        write_new(directory / name, content)
    sync_directory(directory / PIPELINES)
    return [
        ManifestFile(name, len(content), hashlib.sha256(content).hexdigest())
        for name, content in definitions.items()
    ]


def at_rest(content: bytes) -> bytes:
    """The definition of a pipeline in the stopped state.

    The tables that it wrote are not in the backup: they may have changed since, or not exist at
    all.
    """
    document: object = json.loads(content)
    if isinstance(document, dict) and document.get("intent") == Intent.RUN:
        return json.dumps({**document, "intent": Intent.REST}, indent=2).encode()
    return content


def _content(file: Path) -> bytes:
    with file.open("rb") as opened:
        return opened.read(FILE_BYTES_MAX + 1)
