"""The mark of a move in a data directory: a file beside the stores."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from shardbus.stores.base.files import sync_directory
from shardbus.stores.base.move_mark import Mark, mark_from_json
from shardbus.stores.base.store import StoreError

FILE: Final = "moved.json"
_BYTES_MAX: Final = 64 * 1024


def mark_in(directory: Path) -> Mark | None:
    path = directory / FILE
    try:
        with path.open("rb") as file:
            return mark_from_json(file.read(_BYTES_MAX).decode())
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise StoreError(
            f"{path}, the mark of a move, cannot be read ({error}). Nothing was changed. Restore a "
            "copy of it; only if the stores beside it were never moved, remove it"
        ) from error


def refuse_moved(directory: Path) -> None:
    """Raises StoreError when the stores were moved, or are not complete yet."""
    mark = mark_in(directory)
    if mark is not None:
        mark.refuse(f"the stores in {directory}")


def put_mark(directory: Path, mark: Mark | None) -> None:
    """Write or remove the mark, durably."""
    path = directory / FILE
    try:
        if mark is None:
            path.unlink(missing_ok=True)
        else:
            aside = path.with_name(f"{FILE}.new")
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(aside, flags, 0o600), "wb") as file:
                file.write(mark.to_json().encode())
                file.flush()
                os.fsync(file.fileno())
            aside.replace(path)
        sync_directory(directory)
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror}") from error
