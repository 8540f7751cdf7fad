"""The data directory: made if it is missing, and used by one process at a time."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from shardbus.app.failures import CommandError, Usage

SERVER_LOCK: Final = "lock"

_POLL_S: Final = 0.05


@contextmanager
def data_directory(
    path: Path, lock_name: str = SERVER_LOCK, *, wait_s: float = 0
) -> Iterator[None]:
    """Hold a lock in the directory; a holder that is just ending is given `wait_s` to end."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path / lock_name, os.O_CREAT | os.O_RDWR, 0o600)
    except OSError as error:
        raise Usage(
            f"the data directory {path} cannot be used: {error.strerror}; "
            "choose another with --data-dir or mend its permissions"
        ) from error
    try:
        _lock(descriptor, path, time.monotonic() + wait_s)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, path: Path, deadline_s: float) -> None:
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError as error:
            if time.monotonic() >= deadline_s:
                raise CommandError(
                    f"the data directory {path} is served by another process; "
                    "stop that one first, or choose another directory with --data-dir"
                ) from error
        time.sleep(_POLL_S)
