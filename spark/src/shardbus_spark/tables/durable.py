"""What must be on the disk before the next step."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from shardbus_spark.errors import Unavailable

TURN_S_MAX: Final = 60.0
_TURN_PAUSE_S: Final = 0.02


def sync(paths: Iterable[Path]) -> None:
    """On return the contents of these files, and the names in these directories, are durable."""
    for path in paths:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def make_directory(directory: Path, root: Path) -> None:
    """Create a directory below `root`, each of its names durable."""
    made = [one for one in (directory, *directory.parents) if root in one.parents]
    for one in reversed(made):
        if not one.is_dir():
            one.mkdir(parents=True, exist_ok=True)
            sync([one.parent])


def replace_file(file: Path, content: bytes) -> None:
    """Replace a file atomically; one caller at a time."""
    # Readers of a directory skip names that begin with an underscore.
    aside = file.with_name(f"_{file.name}.new")
    aside.write_bytes(content)
    sync([aside])
    aside.rename(file)
    sync([file.parent])


@contextmanager
def turn(file: Path, *, is_shared: bool = False) -> Iterator[None]:
    """Hold the turn of this file, alone or shared.

    Unavailable when another process holds it for a minute. It ends with its process.
    """
    how = (fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX) | fcntl.LOCK_NB
    handle = os.open(file, os.O_RDONLY if is_shared else os.O_RDWR | os.O_CREAT, 0o666)
    try:
        deadline_s = time.monotonic() + TURN_S_MAX
        while not _has_locked(handle, how):
            if time.monotonic() > deadline_s:
                raise Unavailable(
                    f"another process holds {file} for more than {TURN_S_MAX:.0f} s: stop it, or "
                    "try again later"
                )
            time.sleep(_TURN_PAUSE_S)
        yield
    finally:
        os.close(handle)


def _has_locked(handle: int, how: int) -> bool:
    try:
        fcntl.flock(handle, how)
    except BlockingIOError:
        return False
    return True
