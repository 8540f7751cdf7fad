"""Definitions of pipelines in a backup: small files, read while the stores stand still."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Final

from shardbus.app.backups.manifest import ManifestFile, write_new
from shardbus.app.pipelines.shelf import FILE_BYTES_MAX, Intent
from shardbus.app.pipelines.starting import DIRECTORY as PIPELINES
from shardbus.stores.base.files import sync_directory

FILES_MAX: Final = 1_000


def read_definitions(data_dir: Path) -> dict[str, bytes]:
    """The files by the names that they have in a backup; OSError when one cannot be read."""
    found = sorted((data_dir / PIPELINES).glob("*.json"))[:FILES_MAX]
    whole = ((f"{PIPELINES}/{file.name}", _content(file)) for file in found)
    # One that is too long is none: the server passes it over, too.
    return {name: content for name, content in whole if len(content) <= FILE_BYTES_MAX}


def write_definitions(directory: Path, definitions: dict[str, bytes]) -> list[ManifestFile]:
    """Put them into a backup, on disk."""
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
    """The same definition of a pipeline that is not to run until somebody starts it.

    What it wrote is not in the backup: it may have gone further since, or not be there at all.
    """
    document: object = json.loads(content)
    if isinstance(document, dict) and document.get("intent") == Intent.RUN:
        return json.dumps({**document, "intent": Intent.REST}, indent=2).encode()
    return content


def _content(file: Path) -> bytes:
    with file.open("rb") as opened:
        return opened.read(FILE_BYTES_MAX + 1)
