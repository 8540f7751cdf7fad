"""Bulk reads of a SQLite store by another process: many messages at a time, without the broker.

Each slab is one short transaction, because the log cannot be truncated during a read.
"""
# Compiled by mypyc.

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Final, Self, final

from shardbus.stores.base.bulk import BlockSlab, BulkAsk, Slab
from shardbus.stores.base.store import FragmentId, UnknownFragment
from shardbus.stores.chunked.blocks import BlockReader
from shardbus.stores.chunked.bulk import SLAB_BYTES, SLAB_ENTRIES_MAX, SlabReader
from shardbus.stores.chunked.chunk import assembled, parts_of, session_name
from shardbus.stores.chunked.lookup import Bytes
from shardbus.stores.chunked.session import SessionReader
from shardbus.stores.sqlite.database import open_reader
from shardbus.stores.sqlite.lookup import SqliteLookup
from shardbus.stores.sqlite.store import Translated

# The process has nothing else to do with memory, and a mapped page is not copied on its way.
MAPPED_BYTES: Final = 1 << 33
CACHE_KIB: Final = 8_192

_WHOLE: Final = "SELECT id, head, body FROM chunk WHERE id IN (SELECT value FROM json_each(?1))"
_PARTS: Final = "SELECT id, body FROM part WHERE id IN (SELECT value FROM json_each(?1))"


@final
class BulkReader(SqliteLookup):
    """A BulkSource that reads one store file. Not for several threads at once.

    If the file is replaced the reader still sees the old one: open it again to see the new one.
    """

    def __init__(
        self, path: Path, *, slab_bytes: int = SLAB_BYTES, entries_max: int = SLAB_ENTRIES_MAX
    ) -> None:
        """Raises StoreError when the file does not exist or is not a store. All methods raise
        StoreError when it cannot be read.
        """
        self._path = path
        self._slabs = SlabReader(self, slab_bytes=slab_bytes, entries_max=entries_max)
        self._sessions = SessionReader(self)
        self._blocks = BlockReader(self)
        # Looked at first: of one that is replaced in between we must not believe that we have it.
        self._file = _file_of(path)
        with Translated(path):
            super().__init__(open_reader(path))
            self.connection.execute(f"PRAGMA mmap_size = {MAPPED_BYTES}")
            self.connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.connection.close()

    def is_current(self) -> bool:
        """Whether the file is still the one that was opened."""
        return self._file is not None and self._file == _file_of(self._path)

    def local(self, fragment: FragmentId) -> int:
        """The local number of a fragment in this file; UnknownFragment when the file does not have
        it.
        """
        with Translated(self._path):
            found = self.connection.execute(
                "SELECT local FROM fragment WHERE entity_id = ? AND number = ? AND is_deleted = 0",
                fragment,
            ).fetchone()
        if found is None:
            raise UnknownFragment(
                f"there is no fragment {fragment.number} of entity {fragment.entity_id}"
            )
        return int(found[0])

    def first_number(self, local: int, number: int, line: int) -> int:
        """The lowest sequence number on a line of a fragment, 0 if it is empty."""
        with Translated(self._path):
            return self._slabs.first_number(local, number, line)

    def slab(self, local: int, ask: BulkAsk, start: int) -> Slab:
        """What is asked for from a sequence number on, about SLAB_BYTES of it."""
        with Translated(self._path):
            return self._slabs.slab(local, ask, start)

    def state(self, local: int, session_id: str) -> bytes | None:
        """The state of a session; StoreError when it is damaged."""
        with Translated(self._path):
            return self._sessions.state(local, session_name(session_id))

    def blocks(self, local: int, after: int, until: int) -> BlockSlab:
        """Blocks of a fragment's journal; StoreError when their record is damaged."""
        with Translated(self._path):
            return self._blocks.blocks(local, after, until)

    def whole_chunks(self, numbers: list[int]) -> Bytes:
        """Like `chunks`, but row by row: nobody else waits here for the interpreter's lock, and
        joined rows would be copied twice more.
        """
        found: Bytes = {}
        shared: dict[int, bytes] = {}
        for number, head, body in self.connection.execute(_WHOLE, (str(numbers),)):
            if isinstance(body, bytes):
                found[number] = (head, body)
            else:
                shared[number] = head
        if shared:
            parts = sorted({part for head in shared.values() for part in parts_of(head)})
            bodies: dict[int, bytes] = dict(self.connection.execute(_PARTS, (str(parts),)))
            for number, head in shared.items():
                found[number] = (head, assembled(head, bodies))
        return found


def _file_of(path: Path) -> tuple[int, int] | None:
    """The identity of a file, which no other file of its name has; None when there is no file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
