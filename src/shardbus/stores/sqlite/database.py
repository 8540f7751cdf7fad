"""The file of a SQLite store: how it is created, recognised, opened and locked."""

from __future__ import annotations

import fcntl
import logging
import os
import sqlite3
from collections.abc import Callable
from contextlib import ExitStack
from importlib import resources
from pathlib import Path
from string import Template
from typing import Final, final

from shardbus.stores.base.files import sync_directory
from shardbus.stores.base.store import OtherBuild, StoreError
from shardbus.stores.chunked.rows import KINDS
from shardbus.stores.sqlite.room import DiskRoom, is_no_room, no_room_text

log = logging.getLogger(__name__)

APPLICATION_ID: Final = 0x53424D53
SCHEMA_VERSION: Final = 9
"""The schema of stores and of the catalogue. Files with another one are refused."""
SCHEMA_VERSION_MIN: Final = 8
"""Files of this schema are used too: they are files of the present one that lack what it added."""
SQLITE_VERSION_MIN: Final = (3, 38, 0)

# Against 4096: 5 to 10 % less processor time (half the writes), a little more bytes (ADR 3).
PAGE_BYTES: Final = 8192
WRITER_CACHE_KIB: Final = 4096
READER_CACHE_KIB: Final = 2048
# A commit that leaves more pages than this in the log also copies them to the file.
CHECKPOINT_PAGES: Final = 1000
# Copying must leave pages that a reader still uses; a log of this size makes the writer wait for
# it.
LOG_BYTES_MAX: Final = 32 * 1024 * 1024
LOG_LOOK_COMMITS: Final = 16
LOG_WAIT_MS: Final = 200
BUSY_MS: Final = 5_000
STATEMENTS_MAX: Final = 128

_SYNCHRONOUS: Final = {"full": "FULL", "relaxed": "NORMAL"}
_HEADER_BYTES: Final = 100

_ADVICE: Final = (
    ("SQLITE_READONLY", "the file or its directory cannot be written; check permissions and mount"),
    (
        "SQLITE_CANTOPEN",
        "the file cannot be opened; check that the directory exists and belongs to this user",
    ),
    ("SQLITE_PERM", "the file may not be opened; check permissions"),
    ("SQLITE_BUSY", "another process holds the file; stop it"),
    ("SQLITE_LOCKED", "another process holds the file; stop it"),
    ("SQLITE_CORRUPT", "the file is damaged; stop the server and run `shardbus check --repair`"),
    ("SQLITE_NOTADB", "the file is not a store of Shardbus; use another file"),
    ("SQLITE_NOMEM", "memory is exhausted; give the process more memory"),
    ("SQLITE_IOERR", "the disk failed to read or write; check the disk and the kernel's log"),
)


def store_error(path: Path, error: Exception) -> StoreError:
    """The error for a failure of the file, with advice."""
    name = getattr(error, "sqlite_errorname", "") or ""
    if is_no_room(path, error):
        return StoreError(f"{path}: {no_room_text(path)} ({name}: {error})")
    for prefix, advice in _ADVICE:
        if name.startswith(prefix):
            return StoreError(f"{path}: {advice} ({name}: {error})")
    return StoreError(f"{path}: {error}")


@final
class FileLock:
    """The right to write a store; held by at most one process, until `release` or its death."""

    def __init__(self, path: Path) -> None:
        # A separate file: locks on the database file would interfere with SQLite's own.
        lock_path = path.with_name(path.name + ".lock")
        try:
            self._descriptor = os.open(lock_path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreError(
                f"{path}: cannot create its lock file; check the directory ({error})"
            ) from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._descriptor)
            raise StoreError(
                f"{path}: another process serves this file; stop it, or use another data directory"
            ) from error

    def release(self) -> None:
        os.close(self._descriptor)


@final
class Log:
    """Keeps the write-ahead log of a store short although there is always a reader.

    Measured with one thread that only reads: 92 MB after 1,000 commits without this.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection, room: DiskRoom) -> None:
        self._database = path
        self._path = path.with_name(path.name + "-wal")
        self._connection = connection
        self._room = room
        self._limit_bytes = LOG_BYTES_MAX
        self._commits = 0

    def bound(self) -> None:
        """After a commit: restart the log if it is long, unless a read lasts too long; and check
        the free space.

        A failure here is not a failure of the commit, and is retried after the next one.
        """
        self._commits += 1
        # Not after every commit: the check is 6 % of the cost of a commit of one message.
        if self._commits % LOG_LOOK_COMMITS == 0 or self._room.is_near:
            self.look()

    def look(self) -> None:
        """Check the length of the log and the free space, and act on both."""
        size_bytes = self._size_bytes()
        if size_bytes > self._limit_bytes:
            is_busy = self.begin_anew()
            # Commits continue while another process reads for minutes: the next attempt is far
            # away.
            self._limit_bytes = 2 * size_bytes if is_busy else LOG_BYTES_MAX
            size_bytes = self._size_bytes()
        room = self._room
        if not room.reserve_bytes or (room.is_ample(size_bytes) and not room.shortage):
            return
        spare_bytes = spare_bytes_of(self._connection)
        if size_bytes > room.reserve_bytes // 4 or room.is_low(size_bytes, spare_bytes):
            # There may be room in the file for the contents of the log.
            self.begin_anew()
            size_bytes = self._size_bytes()
        room.note(size_bytes, spare_bytes)

    def begin_anew(self) -> bool:
        """Copy the log into the file and truncate it, if necessary with the help of the reserve;
        returns whether a reader prevents that.
        """
        self._connection.execute(f"PRAGMA busy_timeout = {LOG_WAIT_MS}")
        try:
            while True:
                try:
                    row = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
                    return bool(row[0])
                except sqlite3.Error as error:
                    is_full = is_no_room(self._database, error)
                    if not is_full or not self._room.give_back(is_for_payload=False):
                        log.debug("%s: the log cannot be truncated: %s", self._database, error)
                        return True
        finally:
            self._connection.execute(f"PRAGMA busy_timeout = {BUSY_MS}")

    def _size_bytes(self) -> int:
        try:
            return self._path.stat().st_size
        except OSError:
            return 0


def spare_bytes_of(connection: sqlite3.Connection) -> int:
    """Unused bytes within a database: it can hold this much more without growing."""
    return _pragma(connection, "freelist_count") * _pragma(connection, "page_size")


def prepare(path: Path, page_bytes: int = PAGE_BYTES) -> None:
    """Create the file if there is none; refuse one that is not a store, without changing it."""
    try:
        if not path.exists():
            make(path, APPLICATION_ID, lambda made: made.executescript(_schema()), page_bytes)
        if path.is_dir():
            raise IsADirectoryError(f"{path} is a directory")
    except OSError as error:
        raise StoreError(
            f"{path}: cannot be opened; check path and permissions ({error})"
        ) from error
    recognise(path)


def recognise(path: Path) -> None:
    """Raises StoreError for a file that is not a store of this build; the file is not changed."""
    found = ids_in(path)
    if found is None:
        raise StoreError(
            f"{path}: not a SQLite file, so not a store of Shardbus; nothing was changed"
        )
    application_id, version = found
    if application_id != APPLICATION_ID:
        raise StoreError(f"{path}: a SQLite file of another application; nothing was changed")
    refuse_other(path, version)


def ids_in(path: Path) -> tuple[int, int] | None:
    """The application id and the schema version in a file; None if it is not a SQLite file.

    SQLite itself reads it, without a lock or the log. A process that opens the file directly would,
    when it closes it, drop all locks that SQLite holds on it in this process. Another process that
    closes the database would then think that it is the last one, and remove the log to which this
    process is still writing.
    """
    try:
        if path.stat().st_size < _HEADER_BYTES:
            return None
        # The log is beside the file itself, not beside a link to it.
        own = path.resolve()
        log_path, index = (own.with_name(own.name + suffix) for suffix in ("-wal", "-shm"))
        found = _ids_at_rest(path, has_log=log_path.exists())
        if found is not None:
            return found
        # Earlier builds left the first page of a catalogue in its log, and a process that dies
        # while it copies the log leaves a file that is complete only with its log. To read that,
        # SQLite creates an index, which must be removed again: nothing may be changed.
        has_index = index.exists()
        try:
            return _ids(path, "ro")
        finally:
            if not has_index:
                index.unlink(missing_ok=True)
    except (sqlite3.DatabaseError, OSError) as error:
        if getattr(error, "sqlite_errorname", "") == "SQLITE_NOTADB":
            return None
        raise store_error(path, error) from error


def _ids_at_rest(path: Path, *, has_log: bool) -> tuple[int, int] | None:
    """The ids in the file without its log; None when the log is needed."""
    try:
        found = _ids(path, "ro&immutable=1")
    except sqlite3.DatabaseError as error:
        if has_log and getattr(error, "sqlite_errorname", "").startswith("SQLITE_CORRUPT"):
            return None
        raise
    return None if has_log and found == (0, 0) else found


def _ids(path: Path, mode: str) -> tuple[int, int]:
    connection = _connect(path, mode)
    try:
        return _pragma(connection, "application_id"), _pragma(connection, "user_version")
    finally:
        connection.close()


def refuse_other(path: Path, version: int) -> None:
    """Raises OtherBuild for a file whose schema this build does not support."""
    if SCHEMA_VERSION_MIN <= version <= SCHEMA_VERSION:
        return
    is_earlier = version < SCHEMA_VERSION_MIN
    why = (
        f"made by an earlier build of Shardbus, before the first release (schema {version}; "
        f"this build has {SCHEMA_VERSION}), and files of those builds are not converted"
        if is_earlier
        else f"made by a later build of Shardbus (schema {version}; this build has "
        f"{SCHEMA_VERSION})"
    )
    raise OtherBuild(
        f"{path} was {why}. Nothing was changed. Serve this data directory with the build "
        "that made it: there `shardbus export` writes its entities into a file and `shardbus "
        "receive` its messages. Or start this build with a new --data-dir"
    )


def open_writer(path: Path, durability: str, reserve_bytes: int = 0) -> sqlite3.Connection:
    """A connection for the one writer.

    With a reserve the log is kept so short that the reserve has room for a copy of it.
    """
    synchronous = _SYNCHRONOUS.get(durability)
    if synchronous is None:
        raise StoreError(f"durability must be 'full' or 'relaxed', not {durability!r}")
    connection = _connect(path, "rw")
    # A connection left open would hold its lock, and the next attempt would find the file busy.
    with ExitStack() as opened:
        opened.callback(connection.close)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {synchronous}")
        connection.execute(f"PRAGMA cache_size = -{WRITER_CACHE_KIB}")
        pages = reserve_bytes // (2 * PAGE_BYTES) or CHECKPOINT_PAGES
        connection.execute(f"PRAGMA wal_autocheckpoint = {min(pages, CHECKPOINT_PAGES)}")
        connection.execute(f"PRAGMA journal_size_limit = {LOG_BYTES_MAX}")
        # Debian builds SQLite so that it overwrites deleted data, which doubles the writing.
        connection.execute("PRAGMA secure_delete = OFF")
        _raise_version(connection)
        opened.pop_all()
    return connection


def _raise_version(connection: sqlite3.Connection) -> None:
    """Keep earlier builds away, which cannot read what is going to be written.

    They look for the version in the file without its log.
    """
    if _pragma(connection, "user_version") < SCHEMA_VERSION:
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def open_reader(path: Path, *, is_alone: bool = False) -> sqlite3.Connection:
    """A connection that cannot write; a second process may use one beside the server.

    With `is_alone` it works on a read-only file system, where readers cannot share an index; then
    no process may write the file.
    """
    recognise(path)
    connection = _connect(path, _alone_mode(path) if is_alone else "rw")
    with ExitStack() as opened:
        opened.callback(connection.close)
        connection.execute("PRAGMA query_only = ON")
        connection.execute(f"PRAGMA cache_size = -{READER_CACHE_KIB}")
        opened.pop_all()
    return connection


def _alone_mode(path: Path) -> str:
    """How to open a file that nobody writes, with its log if it has one."""
    wal = path.with_name(path.name + "-wal")
    has_log = wal.exists() and wal.stat().st_size > 0
    return "ro" if has_log else "ro&immutable=1"


def make(
    path: Path, application_id: int, fill: Callable[[sqlite3.Connection], object], page_bytes: int
) -> None:
    """Create a file with the contents that `fill` writes, in place of no file or an empty one."""
    if sqlite3.sqlite_version_info < SQLITE_VERSION_MIN:
        needed = ".".join(str(part) for part in SQLITE_VERSION_MIN)
        raise StoreError(
            f"SQLite {sqlite3.sqlite_version} is too old: Shardbus needs {needed} or newer"
        )
    # Written under another name and renamed, so that a crash leaves either no file or a complete
    # one.
    aside = path.with_name(path.name + ".new")
    for leftover in (aside, aside.with_name(aside.name + "-journal")):
        leftover.unlink(missing_ok=True)
    os.close(os.open(aside, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    connection = _connect(aside, "rw")
    try:
        connection.execute(f"PRAGMA page_size = {page_bytes}")
        connection.execute("PRAGMA auto_vacuum = NONE")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA application_id = {application_id}")
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        fill(connection)
    finally:
        connection.close()
    aside.rename(path)
    sync_directory(path.parent)


def _schema() -> str:
    """The statements that create a store, in one transaction."""
    text = resources.files("shardbus.stores.sqlite").joinpath("schema/store.sql").read_text("utf-8")
    return f"BEGIN IMMEDIATE;\n{Template(text).substitute(KINDS)}\nCOMMIT;"


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}",
        uri=True,
        isolation_level=None,
        check_same_thread=False,
        timeout=BUSY_MS / 1000,
        cached_statements=STATEMENTS_MAX,
    )


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def namespace_of(connection: sqlite3.Connection) -> str:
    """The id of the namespace to which a store belongs; empty if it belongs to none."""
    row = connection.execute("SELECT namespace_id FROM namespace").fetchone()
    return "" if row is None else str(row[0])


def highest_entity_id(connection: sqlite3.Connection) -> int:
    """The highest entity id of all fragments ever created in a store; 0 if there were none."""
    row = connection.execute("SELECT max(highest) FROM entity_ids").fetchone()
    return int(row[0] or 0)
