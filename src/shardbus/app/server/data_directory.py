"""The data directory: created if it is missing, and used by one process at a time."""

from __future__ import annotations

import fcntl
import logging
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from shardbus.app.cli.failures import CommandError, Usage

log = logging.getLogger(__name__)

SERVER_LOCK: Final = "lock"

_POLL_S: Final = 0.05
_SECRET_FILES: Final = ("*.db", "*.db-wal", "*.db-shm", "*.db-journal", "tls/*-key.pem")


@contextmanager
def data_directory(
    path: Path, lock_name: str = SERVER_LOCK, *, wait_s: float = 0
) -> Iterator[None]:
    """Hold a lock in the directory; a holder that is just ending gets `wait_s` to end."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path / lock_name, os.O_CREAT | os.O_RDWR, 0o600)
    except OSError as error:
        raise Usage(
            f"the data directory {path} cannot be used: {error.strerror}; choose another with "
            "--data-dir or correct its permissions"
        ) from error
    try:
        _lock(descriptor, path, time.monotonic() + wait_s)
        keep_to_owner(path)
        yield
    finally:
        os.close(descriptor)


def keep_to_owner(path: Path) -> None:
    """Close files with messages and keys to other users, and warn when the directory is open.

    Files that are created beside a database get its mode. The mode of the directory itself is not
    changed: its owner may have a reason for it.
    """
    mode = path.stat().st_mode
    if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
        log.warning("other users can replace files in the data directory %s: chmod 700 it", path)
    elif mode & (stat.S_IRWXG | stat.S_IRWXO):
        log.warning("other users can read the data directory %s: chmod 700 it", path)
    for pattern in _SECRET_FILES:
        for file in sorted(path.glob(pattern)):
            _close_to_others(file)


def _close_to_others(file: Path) -> None:
    try:
        mode = file.lstat().st_mode
        if stat.S_ISREG(mode) and mode & (stat.S_IRWXG | stat.S_IRWXO):
            file.chmod(0o600)
            log.warning(
                "%s was readable by others; its mode was changed, so that only its owner can "
                "read it",
                file,
            )
    except OSError as error:
        log.warning("the mode of %s cannot be restricted to its owner: %s", file, error)


def _lock(descriptor: int, path: Path, deadline_s: float) -> None:
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError as error:
            if time.monotonic() >= deadline_s:
                raise CommandError(
                    f"the data directory {path} is served by another process; stop it first, "
                    "or choose another directory with --data-dir"
                ) from error
        time.sleep(_POLL_S)
