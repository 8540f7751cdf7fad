"""Exchanges two directories in one step, so that readers never see both or neither."""

from __future__ import annotations

import ctypes
import errno
import os
import uuid
from pathlib import Path
from typing import Final

_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2
_NOT_THERE: Final = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EPERM, errno.EXDEV)


class CannotExchange(OSError):
    """This system, or this file system, cannot exchange directories."""


def exchange(one: Path, other: Path) -> None:
    """Exchange the names of two directories of one file system, atomically."""
    # Python has no function for it; Linux has had this call since 3.15, glibc since 2.28.
    library = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, "renameat2"):
        raise CannotExchange(errno.ENOSYS, "this system cannot exchange directories")
    names = (os.fsencode(one), os.fsencode(other))
    failed = library.renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE)
    if failed:
        code = ctypes.get_errno()
        kind = CannotExchange if code in _NOT_THERE else OSError
        raise kind(code, os.strerror(code), str(one))


def can_exchange(directory: Path) -> bool:
    """Tried with two directories that are created in this one and removed again."""
    pair = [directory / f"try-{uuid.uuid4().hex}" for _ in range(2)]
    for one in pair:
        one.mkdir()
    try:
        exchange(pair[0], pair[1])
    except CannotExchange:
        return False
    finally:
        for one in pair:
            one.rmdir()
    return True
