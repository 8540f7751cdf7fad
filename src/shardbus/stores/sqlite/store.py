"""The embedded store: one SQLite file, laid out for group commits of many fragments.

The layout is described in docs/internals/data-layout.md and argued for in ADR 3.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Literal, TypeVar, final

from shardbus.stores.base.store import FragmentCommit, FragmentId, NotStored, StoreError
from shardbus.stores.chunked.directory import RECENT_MAX
from shardbus.stores.chunked.store import ChunkedReads, has_payload
from shardbus.stores.sqlite.database import (
    FileLock,
    Log,
    highest_entity_id,
    namespace_of,
    open_reader,
    open_writer,
    prepare,
    spare_bytes_of,
    store_error,
)
from shardbus.stores.sqlite.log_check import keep_if_damaged, loss_text
from shardbus.stores.sqlite.lookup import SqliteLookup
from shardbus.stores.sqlite.room import DiskRoom, is_no_room, no_room_text
from shardbus.stores.sqlite.writer import StoreWriter

T = TypeVar("T")

# SQLite's errors about values, not about the file: a constraint, a value that is too large.
_UNFIT = (sqlite3.IntegrityError, sqlite3.DataError, OverflowError)


@final
class SqliteStore(ChunkedReads):
    """A MessageStore in the file `path`, which is made (for its owner only) if there is none.

    With durability "full" a commit that returned survives the loss of power. With "relaxed" it
    survives the death of the process, but a loss of power may undo the last commits (of all
    fragments alike, in the order in which they were made) since the log was last copied to the
    file. One process at a time may open a file for writing; others may read it
    (`database.open_reader`). `recent_max` chunks are listed in the order of commits before they are
    sorted by fragment. `reserve_bytes` are reserved on the file system for the time when it is
    full; 0: none. A store that is opened `to_read` needs no disk space, and refuses every write.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        durability: Literal["full", "relaxed"] = "full",
        recent_max: int = RECENT_MAX,
        reserve_bytes: int = 0,
        to_read: bool = False,
    ) -> None:
        # SQLite keeps its log beside the target of a link, not beside the link.
        self.path = Path(path).resolve()
        self.is_read_only = to_read
        # Everything opened so far is closed when the next step fails.
        has_lost = False
        with ExitStack() as opened, Translated(self.path):
            if self.path.exists():
                # Before any file is created beside it.
                prepare(self.path)
            if not to_read:
                lock = FileLock(self.path)
                opened.callback(lock.release)
                has_lost = keep_if_damaged(self.path)
            self.loss = loss_text(self.path)
            self._room = DiskRoom(self.path, 0 if to_read else reserve_bytes)
            if to_read:
                reading = self._open_to_read()
                self._writer = StoreWriter(reading, recent_max)
            else:
                self._writer = StoreWriter(self._with_reserve(durability), recent_max)
                opened.callback(self._writer.connection.close)
                reading = self._retried(lambda: open_reader(self.path))
            opened.callback(reading.close)
            self._log = Log(self.path, self._writer.connection, self._room)
            self._reading = reading
            super().__init__(str(self.path), SqliteLookup(reading), self._writer.fragments())
            if not to_read:
                self._room.begin(spare_bytes_of(self._writer.connection))
                self._log.look()
                if has_lost:
                    # After another crash the rest of the lost commits would be reported again.
                    self._log.begin_anew()
            self._opened = opened.pop_all()

    def namespace_id(self) -> str:
        """The namespace to which the store belongs; empty if it belongs to none."""
        with Translated(self.path):
            return namespace_of(self._writer.connection)

    def join(self, namespace_id: str) -> None:
        """Join this namespace, durably."""
        with Translated(self.path, self._writer):
            self._writer.connection.execute(
                "INSERT OR REPLACE INTO namespace VALUES (1, ?)", (namespace_id,)
            )

    def read(self, work: Callable[[], T]) -> T:
        with Translated(self.path):
            return work()

    @property
    def shortage(self) -> str:
        return self._room.shortage

    def look(self) -> None:
        if not self.is_read_only:
            with Translated(self.path):
                self._log.look()

    def highest_entity_id(self) -> int:
        with Translated(self.path):
            return highest_entity_id(self._writer.connection)

    def create(self, fragments: Sequence[FragmentId]) -> None:
        new = [f for f in dict.fromkeys(fragments) if f not in self._locals]
        if new:
            if self.shortage:
                raise StoreError(self.shortage)
            created = self._written(lambda: self._writer.create(new), is_for_payload=True)
            self._locals = self._locals | created

    def delete(self, fragments: Sequence[FragmentId]) -> None:
        known = {f: self._locals[f] for f in fragments if f in self._locals}
        if known:
            self._written(lambda: self._writer.delete(list(known.values())), is_for_payload=False)
            self._locals = {f: n for f, n in self._locals.items() if f not in known}

    def sweep(self) -> bool:
        return self._written(self._writer.sweep, is_for_payload=False)

    def commit(self, commits: Sequence[FragmentCommit]) -> None:
        located = [(self._local(commit.fragment), commit) for commit in commits]
        with Translated(self.path, self._writer):
            try:
                self._writer.commit(located)
            except sqlite3.Error as error:
                # Rare: whether the commit has payload is only determined when it did not fit.
                self._again(error, lambda: self._writer.commit(located), has_payload(commits))
            self._log.bound()

    def close(self) -> None:
        """Also copies the log into the file and removes it."""
        with self._opened, Translated(self.path):
            self._reading.close()
            if not self.is_read_only:
                self._log.begin_anew()

    def _written(self, work: Callable[[], T], *, is_for_payload: bool) -> T:
        with Translated(self.path, self._writer):
            try:
                done = work()
            except sqlite3.Error as error:
                done = self._again(error, work, is_for_payload)
            self._log.bound()
            return done

    def _again(self, error: sqlite3.Error, work: Callable[[], T], is_for_payload: bool) -> T:
        """Retry what failed on a full disk with the space of the reserve; otherwise raise the
        failure.

        SQLite has rolled the failed attempt back. New payload that does not fit is certainly not
        stored, once the log of the attempt is truncated.
        """
        while is_no_room(self.path, error):
            self._writer.roll_back()
            # The failed attempt has left a long log: truncate it first.
            is_left = self._log.begin_anew()
            if not self._room.give_back(is_for_payload=is_for_payload):
                if is_for_payload and not is_left:
                    raise NotStored(f"{self.path}: {no_room_text(self.path)}") from error
                break
            try:
                return work()
            except sqlite3.Error as another:
                error = another
        raise error

    def _with_reserve(self, durability: str) -> sqlite3.Connection:
        def opened() -> sqlite3.Connection:
            prepare(self.path)
            return open_writer(self.path, durability, self._room.reserve_bytes)

        return self._retried(opened)

    def _open_to_read(self) -> sqlite3.Connection:
        if not self.path.exists():
            raise StoreError(f"{self.path}: the file does not exist")
        prepare(self.path)
        return open_reader(self.path, is_alone=True)

    def _retried(self, work: Callable[[], T]) -> T:
        """Do some work at the start, if necessary with the help of the reserve."""
        while True:
            try:
                return work()
            except (sqlite3.Error, OSError) as error:
                if not is_no_room(self.path, error):
                    raise
                if not self._room.give_back(is_for_payload=False):
                    raise


@final
class Translated:
    """Turns SQLite's exceptions into StoreError, and rolls back what a writer had begun."""

    def __init__(self, path: Path, writer: StoreWriter | None = None) -> None:
        self._path = path
        self._writer = writer

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            return
        if self._writer is not None:
            # A rollback fails only where the transaction is already gone.
            with suppress(sqlite3.Error):
                self._writer.roll_back()
            if isinstance(error, _UNFIT):
                # Only the changes themselves can be at fault, and they were rolled back.
                raise NotStored(f"{self._path}: {error}") from error
        # A ValueError is a row that is damaged: a text where a number was.
        if isinstance(error, sqlite3.Error | ValueError | OSError):
            raise store_error(self._path, error) from error
