"""The free space on a database's file system, and the reserve for a full one
(docs/adr/0040-full-disk.md).

Completing, expiring and deleting need space before they free any: for pages of the log, and for
rows that record removals. The reserve is a file of real blocks beside the database. It is released
piece by piece when the file system is full, and created again when there is space again.
"""

from __future__ import annotations

import errno
import logging
import os
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import Final, final

log = logging.getLogger(__name__)

MEGABYTE: Final = 1024 * 1024
# The largest share of a small file system that the reserve takes.
RESERVE_SHARE: Final = 16
# The reserve is released in this many pieces, so that another process cannot take all of it.
PIECES: Final = 4
# With less free space than this many times the reserve, the space is checked more often.
NEAR: Final = 8
# An I/O error while less than this is free counts as a full disk: SQLite does not distinguish them.
NOTHING_BYTES: Final = 64 * 1024

_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)


@final
class DiskRoom:
    """The free space for one database. Called by its writer; `shortage` may be read by any thread.

    While `shortage` gives a reason, the database accepts no additions; existing messages may be
    settled, moved and removed. Without a reserve (0 bytes) there is no shortage: a full disk fails
    commits.
    """

    def __init__(self, path: Path, reserve_bytes: int, part: int = 1) -> None:
        """The reserve has `reserve_bytes`, or what a small file system allows, divided by
        `part`.
        """
        self.shortage = ""
        # Whether so little is free that the space is checked after every commit.
        self.is_near = False
        self._path = path
        self._file = path.with_name(path.name + ".reserve")
        self.reserve_bytes = 0
        if reserve_bytes > 0:
            found = os.statvfs(path.parent)
            share_bytes = found.f_blocks * found.f_frsize // RESERVE_SHARE
            self.reserve_bytes = min(reserve_bytes, share_bytes) // part
        self._held_bytes = self._found_bytes()

    def begin(self, spare_bytes: int) -> None:
        """Create the reserve; without space for it the database starts with a shortage."""
        if not self.reserve_bytes:
            # The operator has switched the reserve off.
            with suppress(OSError):
                self._file.unlink(missing_ok=True)
        elif not self._is_enough(spare_bytes, 1) or not self._make():
            self._fall_short()

    def is_ample(self, log_bytes: int) -> bool:
        """Whether the log can be copied into the database with as much as the reserve still
        left.
        """
        free_bytes = self.free_bytes() - log_bytes
        self.is_near = free_bytes < NEAR * self.reserve_bytes
        return free_bytes >= self.reserve_bytes

    def is_low(self, log_bytes: int, spare_bytes: int) -> bool:
        """Whether the database must accept no additions; `spare_bytes` is unused within the
        database.
        """
        free_bytes = self.free_bytes() - log_bytes
        return (
            free_bytes < self.reserve_bytes // PIECES
            or free_bytes + spare_bytes < self.reserve_bytes
        )

    def note(self, log_bytes: int, spare_bytes: int) -> None:
        """Begin or end a shortage. It ends at twice the space at which it begins."""
        if not self.shortage:
            if self.is_low(log_bytes, spare_bytes):
                self._fall_short()
        elif self._is_enough(spare_bytes, 2) and self._make():
            self.shortage = ""
            log.warning(
                "%s: there is free space again (%s): new messages are accepted",
                self._path,
                shown_bytes(self.free_bytes()),
            )

    def give_back(self, *, is_for_payload: bool) -> bool:
        """Release a piece of the reserve and begin a shortage; False when there is none to release.

        Work that adds payload may use half of the reserve: the rest is for removing payload.
        """
        if not self.reserve_bytes:
            return False
        self._fall_short()
        least_bytes = self.reserve_bytes // 2 if is_for_payload else 0
        if self._held_bytes <= least_bytes:
            return False
        left_bytes = max(least_bytes, self._held_bytes - self.reserve_bytes // PIECES - 1)
        try:
            os.truncate(self._file, left_bytes)
        except OSError as error:
            log.error("%s: the reserve cannot be released: %s", self._file, error)
            return False
        self._held_bytes = left_bytes
        log.warning("%s: %s of its reserve are left", self._path, shown_bytes(max(left_bytes, 0)))
        return True

    def free_bytes(self) -> int:
        """The free space of the file system, without the reserve."""
        found = os.statvfs(self._path.parent)
        return found.f_bavail * found.f_frsize

    def _is_enough(self, spare_bytes: int, times: int) -> bool:
        free_bytes = self.free_bytes() - (self.reserve_bytes - self._held_bytes)
        return (
            free_bytes >= times * (self.reserve_bytes // PIECES)
            and free_bytes + spare_bytes >= times * self.reserve_bytes
        )

    def _fall_short(self) -> None:
        if self.shortage:
            return
        self.shortage = (
            f"The file system {mount_point(self._path)} of {self._path.name} is full: "
            f"{shown_bytes(self.free_bytes())} are free beside the reserve of "
            f"{shown_bytes(self._held_bytes)}. No new messages are accepted. Receive or purge "
            "messages, delete entities, or free space there; the bus then continues by "
            "itself."
        )
        log.error("%s", self.shortage)

    def _found_bytes(self) -> int:
        try:
            return self._file.stat().st_size if self.reserve_bytes else 0
        except OSError:
            return 0

    def _make(self) -> bool:
        """Create the reserve or restore its size; False when that is not possible."""
        if self._held_bytes == self.reserve_bytes:
            return True
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            descriptor = os.open(self._file, flags, 0o600)
        except OSError as error:
            log.warning("%s: the reserve cannot be created: %s", self._file, error)
            return False
        try:
            os.ftruncate(descriptor, min(self._held_bytes, self.reserve_bytes))
            os.posix_fallocate(descriptor, 0, self.reserve_bytes)
        except OSError as error:
            log.warning("%s: the reserve cannot be created: %s", self._file, error)
            os.ftruncate(descriptor, min(self._held_bytes, self.reserve_bytes))
            return False
        finally:
            os.close(descriptor)
        self._held_bytes = self.reserve_bytes
        return True


def is_no_room(path: Path, error: BaseException) -> bool:
    """Whether an operation failed because the file system of a database is full."""
    if isinstance(error, OSError):
        return error.errno in _NO_ROOM
    name = getattr(error, "sqlite_errorname", "") or ""
    if not isinstance(error, sqlite3.Error) or not name:
        return False
    if name == "SQLITE_FULL":
        return True
    # SQLite reports an I/O error where a file other than the database cannot grow.
    return name.startswith(("SQLITE_IOERR", "SQLITE_CANTOPEN")) and _is_nothing_free(path)


def no_room_text(path: Path) -> str:
    """Which file system is full, and what to do."""
    return (
        f"the disk is full: the file system {mount_point(path)} has "
        f"{shown_bytes(_free_bytes(path))} left; free space there, and the bus continues by "
        "itself"
    )


def mount_point(path: Path) -> Path:
    """The mount point of a path."""
    place = path.resolve().parent
    while not place.is_mount() and place != place.parent:
        place = place.parent
    return place


def shown_bytes(count: int) -> str:
    """A size for texts."""
    if count >= MEGABYTE:
        return f"{count / MEGABYTE:.1f} MB"
    return f"{count // 1024} KB"


def _is_nothing_free(path: Path) -> bool:
    try:
        return _free_bytes(path) < NOTHING_BYTES
    except OSError:
        return False


def _free_bytes(path: Path) -> int:
    found = os.statvfs(path.resolve().parent)
    return found.f_bavail * found.f_frsize
