"""The embedded store: one SQLite file, laid out for group commits of many fragments.

The layout is described in docs/internals/data-layout.md and argued for in ADR 3.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Literal, final

from shardbus.core.message import MAIN_LINE, NEVER_MS, Entry
from shardbus.core.runs import Runs
from shardbus.stores.base import (
    Due,
    FragmentCommit,
    FragmentId,
    FragmentImage,
    Page,
    SessionPage,
    StoreError,
    UnknownFragment,
)
from shardbus.stores.chunk import encoded, unpack_counters
from shardbus.stores.database import (
    FileLock,
    Log,
    highest_entity_id,
    namespace_of,
    open_reader,
    open_writer,
    prepare,
    store_error,
)
from shardbus.stores.directory import RECENT_MAX
from shardbus.stores.due import DueReader
from shardbus.stores.reader import BROWSABLE, READABLE, Ask, Reader
from shardbus.stores.session import ImageReader, SessionReader
from shardbus.stores.writer import Writer

log = logging.getLogger(__name__)


@final
class SqliteStore:
    """A MessageStore in the file `path`, which is made (for its owner only) if there is none.

    With durability "full" a commit that returned survives the loss of power. With "relaxed" it
    survives the death of the process, but the loss of power may undo the last commits (of all
    fragments alike, in the order they were made) since the log was last copied to the file.
    One process at a time may open a file; others may read it (`database.open_reader`).
    `recent_max` chunks are listed in the order of commits before they are sorted by fragment.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        durability: Literal["full", "relaxed"] = "full",
        recent_max: int = RECENT_MAX,
    ) -> None:
        # SQLite keeps its log beside the file that a link names, not beside the link.
        self.path = Path(path).resolve()
        # Everything opened so far is given back when the next step fails.
        with ExitStack() as opened, Translated(self.path):
            lock = FileLock(self.path)
            opened.callback(lock.release)
            prepare(self.path)
            self._writer = Writer(open_writer(self.path, durability), recent_max)
            opened.callback(self._writer.connection.close)
            self._log = Log(self.path, self._writer.connection)
            reading = open_reader(self.path)
            opened.callback(reading.close)
            self._reader = Reader(reading)
            self._due = DueReader(reading)
            self._sessions = SessionReader(reading)
            self._images = ImageReader(reading)
            # Replaced, never changed: the reader may look while the writer creates.
            self._locals = self._writer.fragments()
            self._opened = opened.pop_all()

    def namespace_id(self) -> str:
        """The namespace to which the store belongs; empty if it belongs to none."""
        with Translated(self.path):
            return namespace_of(self._writer.connection)

    def join(self, namespace_id: str) -> None:
        """Belong to this namespace, durably."""
        with Translated(self.path, self._writer):
            self._writer.connection.execute(
                "INSERT OR REPLACE INTO namespace VALUES (1, ?)", (namespace_id,)
            )

    def fragments(self) -> list[FragmentId]:
        return list(self._locals)

    def highest_entity_id(self) -> int:
        with Translated(self.path):
            return highest_entity_id(self._writer.connection)

    def recorded(self, kinds: Sequence[int]) -> list[FragmentId]:
        with Translated(self.path):
            found = self._images.recorded(kinds)
        return [fragment for fragment, local in self._locals.items() if local in found]

    def timed(self) -> list[FragmentId]:
        with Translated(self.path):
            return [
                fragment
                for fragment, local in self._locals.items()
                if self._due.next_due_ms(local, after_ms=0) != NEVER_MS
            ]

    def create(self, fragments: Sequence[FragmentId]) -> None:
        new = [f for f in dict.fromkeys(fragments) if f not in self._locals]
        if new:
            with Translated(self.path, self._writer):
                created = self._writer.create(new)
            self._locals = self._locals | created

    def delete(self, fragments: Sequence[FragmentId]) -> None:
        known = {f: self._locals[f] for f in fragments if f in self._locals}
        if known:
            with Translated(self.path, self._writer):
                self._writer.delete(list(known.values()))
            self._locals = {f: n for f, n in self._locals.items() if f not in known}

    def sweep(self) -> bool:
        with Translated(self.path, self._writer):
            return self._writer.sweep()

    def commit(self, commits: Sequence[FragmentCommit]) -> None:
        located = [(self._local(commit.fragment), commit) for commit in commits]
        with Translated(self.path, self._writer):
            self._writer.commit(located)
            self._log.bound()

    def load(self, fragment: FragmentId) -> FragmentImage:
        local = self._local(fragment)
        with Translated(self.path):
            image = self._images.image(local)
        counters = unpack_counters(local, image.counters)
        if counters is None:
            raise StoreError(
                f"{self.path}: the counters of fragment {fragment.number} of entity "
                f"{fragment.entity_id} are damaged; restore a copy of the file"
            )
        if image.damaged_kinds:
            kinds = ", ".join(str(kind) for kind in sorted(set(image.damaged_kinds)))
            raise StoreError(
                f"{self.path}: records (of kind {kinds}) of fragment {fragment.number} of entity "
                f"{fragment.entity_id} are damaged, and what it promised is not known without "
                "them; restore a copy of the file, or give the promises up with "
                "`shardbus check --repair`"
            )
        if image.damaged:
            log.error(
                "%s: %d records of message ids of fragment %s are damaged: duplicates of those "
                "messages will not be recognised",
                self.path,
                image.damaged,
                fragment,
            )
        return FragmentImage(counters, image.next_due_ms, image.remembered, image.records)

    def read_line(
        self, fragment: FragmentId, line: int, *, after: int, count_max: int, bytes_max: int
    ) -> Page:
        ask = self._ask(fragment, line, after, count_max, bytes_max)
        with Translated(self.path):
            return self._reader.page(ask, READABLE)

    def read_heads(
        self, fragment: FragmentId, line: int, *, after: int, count_max: int, bytes_max: int
    ) -> Page:
        ask = self._ask(fragment, line, after, count_max, bytes_max)
        with Translated(self.path):
            return self._reader.heads(ask)

    def browse(
        self,
        fragment: FragmentId,
        line: int,
        *,
        start: int,
        count_max: int,
        bytes_max: int,
        session_id: str | None = None,
    ) -> Page:
        assert session_id is None or line == MAIN_LINE, "only the main line has sessions"
        ask = Ask(
            self._local(fragment),
            fragment.number,
            line,
            start=start,
            count_max=count_max,
            bytes_max=bytes_max,
            session=None if session_id is None else encoded(session_id),
        )
        with Translated(self.path):
            return self._reader.page(ask, BROWSABLE)

    def read_entries(
        self, fragment: FragmentId, sequence_numbers: Sequence[int], *, bytes_max: int
    ) -> list[Entry | None]:
        local = self._local(fragment)
        with Translated(self.path):
            return self._reader.entries(local, fragment.number, sequence_numbers, bytes_max)

    def read_session(
        self, fragment: FragmentId, session_id: str, *, after: int, count_max: int, bytes_max: int
    ) -> Page:
        ask = Ask(
            self._local(fragment),
            fragment.number,
            MAIN_LINE,
            start=after + 1,
            count_max=count_max,
            bytes_max=bytes_max,
            session=encoded(session_id),
        )
        with Translated(self.path):
            return self._reader.page(ask, READABLE)

    def read_sessions(self, fragment: FragmentId, *, after: int, count_max: int) -> SessionPage:
        ask = Ask(
            self._local(fragment),
            fragment.number,
            MAIN_LINE,
            start=after + 1,
            count_max=count_max,
            bytes_max=0,
        )
        with Translated(self.path):
            return self._sessions.waiting(ask)

    def list_sessions(
        self, fragment: FragmentId, *, updated_after_ms: int, skip: int, count_max: int
    ) -> list[str]:
        local = self._local(fragment)
        with Translated(self.path):
            return self._sessions.names(
                local, updated_after_ms=updated_after_ms, skip=skip, count_max=count_max
            )

    def read_state(self, fragment: FragmentId, session_id: str) -> bytes | None:
        local = self._local(fragment)
        with Translated(self.path):
            return self._sessions.state(local, encoded(session_id))

    def read_payloads(
        self, fragment: FragmentId, sequence_numbers: Sequence[int]
    ) -> list[bytes | None]:
        local = self._local(fragment)
        with Translated(self.path):
            return self._reader.payloads(local, fragment.number, sequence_numbers)

    def read_stage(self, fragment: FragmentId, stage: bytes) -> dict[int, bytes | None]:
        local = self._local(fragment)
        with Translated(self.path):
            return self._images.stage(local, stage)

    def check_stage(self, fragment: FragmentId, stage: bytes) -> list[int]:
        local = self._local(fragment)
        with Translated(self.path):
            return self._images.damaged_pieces(local, stage)

    def read_due(
        self,
        fragment: FragmentId,
        *,
        now_ms: int,
        count_max: int,
        bytes_max: int,
        claimed: Runs | None = None,
    ) -> Due:
        local = self._local(fragment)
        with Translated(self.path):
            return self._due.due(
                local,
                fragment.number,
                now_ms=now_ms,
                count_max=count_max,
                bytes_max=bytes_max,
                claimed=claimed,
            )

    def close(self) -> None:
        """Also copies the log into the file and removes it."""
        with self._opened, Translated(self.path):
            self._reader.connection.close()
            self._writer.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def _ask(
        self, fragment: FragmentId, line: int, after: int, count_max: int, bytes_max: int
    ) -> Ask:
        return Ask(
            self._local(fragment),
            fragment.number,
            line,
            start=after + 1,
            count_max=count_max,
            bytes_max=bytes_max,
        )

    def _local(self, fragment: FragmentId) -> int:
        local = self._locals.get(fragment)
        if local is None:
            raise UnknownFragment(
                f"{self.path}: holds no fragment {fragment.number} of entity {fragment.entity_id}"
            )
        return local


@final
class Translated:
    """What SQLite raises inside becomes a StoreError; what a writer had begun is rolled back."""

    def __init__(self, path: Path, writer: Writer | None = None) -> None:
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
        # A ValueError is a row that is no longer what was written: a text where a number was.
        if isinstance(error, sqlite3.Error | ValueError | OSError):
            raise store_error(self._path, error) from error
