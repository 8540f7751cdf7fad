"""Copies the state of a database at one moment into another file while its owner continues."""

from __future__ import annotations

import hashlib
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, final

from shardbus.stores.base.backup import SPARE_BYTES, Copied, Watch
from shardbus.stores.base.store import StoreError
from shardbus.stores.chunked.chunk import unpack_counters
from shardbus.stores.sqlite.database import open_reader, store_error
from shardbus.stores.sqlite.examine.salvage import open_unchanged

# 2 MiB at a time: cancelling the copy waits for no more than that.
COPY_PAGES: Final = 256
HASH_BYTES: Final = 1024 * 1024
LOG_BYTES_MAX: Final = 4 * 1024 * 1024 * 1024
"""During a snapshot the log of the store cannot be truncated; a log of this size ends the copy."""


@final
class SqliteSnapshot:
    """A connection with an open read transaction, which sees one moment until it is closed."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._path = path
        self._log_path = path.with_name(path.name + "-wal")
        self._connection = connection
        pages, page_bytes = (
            int(connection.execute(f"PRAGMA {name}").fetchone()[0])
            for name in ("page_count", "page_size")
        )
        self._page_bytes = page_bytes
        self._size_bytes = pages * page_bytes

    def size_bytes(self) -> int:
        return self._size_bytes

    def copy(self, target: Path, watch: Watch) -> Copied:
        try:
            # Never overwrites a file, and is readable by its owner alone from the first byte on.
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            os.close(os.open(target, flags, 0o600))
        except OSError as error:
            raise StoreError(f"{target}: cannot be created: {error.strerror}") from error
        with whole_or_removed(target):
            self._write(target, watch)
            copied = copied_file(target, watch)
        return copied

    def close(self) -> None:
        self._connection.close()

    def _write(self, target: Path, watch: Watch) -> None:
        connection = sqlite3.connect(target, isolation_level=None)
        try:
            # An incomplete copy is thrown away, and a complete one is synced at the end.
            connection.execute("PRAGMA journal_mode = OFF")
            connection.execute("PRAGMA synchronous = OFF")

            def step(status: int, remaining: int, total: int) -> None:
                self._check_log()
                _check_room(self._path.parent, target.parent)
                watch((total - remaining) * self._page_bytes)

            self._connection.backup(connection, pages=COPY_PAGES, progress=step)
        finally:
            connection.close()

    def _check_log(self) -> None:
        try:
            log_bytes = self._log_path.stat().st_size
        except OSError:
            return
        if log_bytes > LOG_BYTES_MAX:
            raise StoreError(
                f"{self._path}: its log grew to {log_bytes} bytes while the store was being "
                "copied; back up while fewer messages are written, or to a faster disk"
            )


def _check_room(*directories: Path) -> None:
    """The bus needs the space more than the backup, and other processes may be filling the disk,
    too.
    """
    for directory in directories:
        free_bytes = shutil.disk_usage(directory).free
        if free_bytes < SPARE_BYTES:
            raise StoreError(
                f"{directory}: only {free_bytes} bytes are free, and the bus needs them; free "
                "space, or choose another --backup-dir"
            )


def open_snapshot(path: Path) -> SqliteSnapshot:
    """A snapshot of the present moment of a store that this process writes."""
    return _snapshot(path.resolve(), open_reader)


def unserved_snapshot(path: Path) -> SqliteSnapshot:
    """A snapshot of a database that nobody writes; a log left by a crash is read and not
    changed.
    """
    return _snapshot(path.resolve(), open_unchanged)


def _snapshot(path: Path, connect: Callable[[Path], sqlite3.Connection]) -> SqliteSnapshot:
    try:
        connection = connect(path)
        try:
            # The first read, not BEGIN, fixes the moment.
            connection.execute("BEGIN")
            connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
            return SqliteSnapshot(path, connection)
        except BaseException:
            connection.close()
            raise
    except (sqlite3.Error, OSError) as error:
        raise store_error(path, error) from error


def copied_file(path: Path, watch: Watch) -> Copied:
    """The description of a copied file, once it is durable."""
    digest = hashlib.sha256()
    size_bytes = path.stat().st_size
    with path.open("rb") as file:
        os.fsync(file.fileno())
        while block := file.read(HASH_BYTES):
            digest.update(block)
            watch(size_bytes)
    fragments, messages = _counted(path)
    return Copied(size_bytes, digest.hexdigest(), fragments, messages)


@contextmanager
def whole_or_removed(target: Path) -> Iterator[None]:
    """Remove the copy when it cannot be completed; errors of SQLite and of the disk name it."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        _remove(target)
        raise store_error(target, error) from error
    except BaseException:
        _remove(target)
        raise


def _remove(path: Path) -> None:
    """Remove a copy, and the files that SQLite may have left beside it."""
    for suffix in ("", "-journal", "-wal", "-shm"):
        with suppress(OSError):
            path.with_name(path.name + suffix).unlink()


def database_bytes(path: Path) -> int:
    """The size of a database and its log; a copy is not larger."""
    real = path.resolve()
    found = 0
    for suffix in ("", "-wal"):
        with suppress(OSError):
            found += real.with_name(real.name + suffix).stat().st_size
    return found


def _counted(path: Path) -> tuple[int, int]:
    """How many fragments and messages a copy holds; damaged counters count as 0."""
    # No other process knows the file yet, and this mode creates no files beside it.
    uri = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
    connection = sqlite3.connect(uri, uri=True)
    try:
        if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'fragment'").fetchone():
            return 0, 0
        rows = connection.execute("SELECT local, counters FROM fragment WHERE is_deleted = 0")
        found = [unpack_counters(int(local), bytes(counters)) for local, counters in rows]
    finally:
        connection.close()
    messages = sum(
        line.count + line.deferred + line.scheduled
        for counters in found
        if counters is not None
        for line in counters.lines
    )
    return len(found), messages
