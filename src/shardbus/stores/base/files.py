"""Files: kept over a loss of power, and watched for changes."""

from __future__ import annotations

import os
from pathlib import Path

Stamp = tuple[tuple[int, int, int], ...]


def sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def stamp_of(*paths: Path) -> Stamp:
    """A value that changes if a file is written or replaced, even if its path is a link."""
    stamps: list[tuple[int, int, int]] = []
    for path in paths:
        try:
            about = path.stat()
        except OSError:
            stamps.append((0, 0, 0))
        else:
            stamps.append((about.st_ino, about.st_mtime_ns, about.st_size))
    return tuple(stamps)
