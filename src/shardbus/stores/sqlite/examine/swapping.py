"""How a repaired file replaces a damaged one, which is kept under another name."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Final

from shardbus.stores.base.files import sync_directory
from shardbus.stores.base.store import StoreError

COPIES_MAX: Final = 1_000


def fold_log(path: Path) -> None:
    """Copy the log into the file, as the next start would: the log would corrupt another file.

    StoreError when that fails; then nothing has changed.
    """
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        is_busy = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
    finally:
        connection.close()
    log = path.with_name(path.name + "-wal")
    if is_busy or (log.exists() and log.stat().st_size > 0):
        raise StoreError(f"{path}: its log cannot be copied into it; nothing was changed")
    _unlink(path, "-wal", "-shm")


def put_in_place(path: Path, new: Path) -> Path:
    """Replace the file with one rename; the old one gets a second name before."""
    _unlink(new, "-wal", "-shm")
    for number in range(1, COPIES_MAX):
        kept = path.with_name(f"{path.name}.damaged-{number}")
        try:
            os.link(path, kept)
        except FileExistsError:
            continue
        new.rename(path)
        sync_directory(path.parent)
        return kept
    raise StoreError(f"{path}: there are {COPIES_MAX} damaged copies of this file; remove some")


def remove_file(new: Path) -> None:
    """Remove the file of an earlier attempt."""
    new.unlink(missing_ok=True)
    _unlink(new, "-wal", "-shm")


def _unlink(path: Path, *suffixes: str) -> None:
    for suffix in suffixes:
        path.with_name(path.name + suffix).unlink(missing_ok=True)
