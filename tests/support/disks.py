"""Disks that are full or fail when a test says so, for one store of a running server."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

TMPFS_MB: Final = 8
# Every file of a store is longer than this, so none of them can be written at its end.
LIMIT_BYTES: Final = 4096


class SmallDisk:
    """A disk of a few megabytes that somebody else fills to the last byte."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._ballast = path / "ballast"

    def fail(self) -> None:
        descriptor = os.open(self._ballast, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            for size in (65_536, 1):
                _write_until_full(descriptor, bytes(size))
        finally:
            os.close(descriptor)

    def heal(self) -> None:
        self._ballast.unlink()


class FailingDisk:
    """A disk that fails the writes of one process: the kernel limits how long files may be."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._before = resource.prlimit(pid, resource.RLIMIT_FSIZE)

    def fail(self) -> None:
        limits = (LIMIT_BYTES, self._before[1])
        resource.prlimit(self._pid, resource.RLIMIT_FSIZE, limits)

    def heal(self) -> None:
        resource.prlimit(self._pid, resource.RLIMIT_FSIZE, self._before)


def can_mount() -> bool:
    """Whether this user may mount file systems here (root outside of a strict container)."""
    if os.geteuid() != 0:
        return False
    done = subprocess.run(["unshare", "--mount", "true"], stderr=subprocess.DEVNULL, check=False)
    return done.returncode == 0


@contextmanager
def small_disk(path: Path) -> Iterator[SmallDisk]:
    """A tmpfs at `path`, gone at the end."""
    path.mkdir()
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={TMPFS_MB}m", "tmpfs", str(path)], check=True
    )
    try:
        yield SmallDisk(path)
    finally:
        # Lazily: whatever still has a file open must not keep the mount.
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def _write_until_full(descriptor: int, block: bytes) -> None:
    for _ in range(2 * TMPFS_MB * 1024 * 1024 // len(block)):
        try:
            os.write(descriptor, block)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            return
    raise AssertionError("the disk does not fill up")
