"""What the reads of a store with chunks, and the plan of a commit, ask of its database."""
# Compiled by mypyc.

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Final, NamedTuple, final

from shardbus.core.message import NEVER_MS
from shardbus.stores.base.record import Record, is_whole
from shardbus.stores.chunked.chunk import assembled, is_shared, parts_of, unpack_head
from shardbus.stores.chunked.directory import Chunk
from shardbus.stores.chunked.page import ChunkRow, EntryRow

# The most bytes of payloads that one query returns, unless a single message is larger.
READ_BYTES_MAX: Final = 1024 * 1024
NOTHING: Final = (b"", b"")

Bytes = dict[int, tuple[bytes, bytes]]
"""Head and body by chunk number."""


class DueRow(NamedTuple):
    """A message that left its chunk, and when it is due; line and state as its row says."""

    due_ms: int
    line: int
    state: int
    row: EntryRow


class SpelledRow(NamedTuple):
    """A session, and what tells how its name is spelled: both ends of the record of a message,
    and the start of that of the state. Empty where there is none.
    """

    name: bytes
    start: bytes
    end: bytes
    state: bytes


class Lookup:
    """One connection to a database with chunks. Rows come in ascending order of their keys.

    Bytes that are not what a column is to hold come as none, so that they are found to be damaged.
    """

    def begin(self) -> None:
        """From now on, until `end`, all statements see the same state of the database."""
        raise NotImplementedError

    def end(self) -> None:
        raise NotImplementedError

    def chunks_from(
        self, low_key: int, start_key: int, high_key: int, limit: int
    ) -> list[ChunkRow]:
        """Chunks of a fragment with messages from a key on."""
        raise NotImplementedError

    def chunks_of(self, keys: list[int]) -> list[ChunkRow]:
        """All chunks that hold one of these ascending keys, and perhaps others."""
        raise NotImplementedError

    def places(self, keys: list[int]) -> list[Chunk]:
        """The same for the writer, without the chunks that it has in memory."""
        raise NotImplementedError

    def raw_chunks(self, numbers: list[int]) -> Bytes:
        """Heads and bodies; the body of a chunk with parts has no meaning."""
        raise NotImplementedError

    def raw_own(self, numbers: list[int]) -> Bytes:
        """The same for the chunks of single messages, by `EntryRow.chunk`."""
        raise NotImplementedError

    def heads_of(self, numbers: list[int]) -> dict[int, bytes]:
        raise NotImplementedError

    def part_bodies(self, numbers: list[int]) -> dict[int, bytes]:
        raise NotImplementedError

    def entries_from(
        self, line: int, state: int, start_key: int, high_key: int, limit: int
    ) -> list[EntryRow]:
        raise NotImplementedError

    def entries_in_session(
        self, local: int, name: bytes, state: int, start_key: int, high_key: int, limit: int
    ) -> list[EntryRow]:
        raise NotImplementedError

    def entries_of(self, keys: list[int]) -> list[EntryRow]:
        raise NotImplementedError

    def due_chunks(self, local: int, now_ms: int, limit: int, passed: int) -> list[ChunkRow]:
        """Chunks with messages that are due, the earliest first."""
        raise NotImplementedError

    def due_entries(self, local: int, now_ms: int, limit: int, passed: int) -> list[DueRow]:
        """The same for messages that left their chunks."""
        raise NotImplementedError

    def next_due_ms(self, local: int, after_ms: int) -> int:
        """When something is due after a moment, NEVER_MS if nothing is; messages of one chunk may
        be due a little later.
        """
        raise NotImplementedError

    def timed(self, locals_: list[int]) -> set[int]:
        """The fragments among these with a message that is or will be due."""
        return {local for local in locals_ if self.next_due_ms(local, 0) != NEVER_MS}

    def waiting(self, start_key: int, high_key: int, limit: int) -> list[tuple[int, bytes]]:
        """Rank and name of sessions with a rank between two keys."""
        raise NotImplementedError

    def spelled(self, local: int, limit: int, skip: int, updated_after_ms: int) -> list[SpelledRow]:
        """Sessions by name; if the moment is not negative, those with a state set after it."""
        raise NotImplementedError

    def session_state(self, local: int, name: bytes) -> bytes | None:
        """The record of a state; None if there is none."""
        raise NotImplementedError

    def counters(self, local: int) -> bytes:
        raise NotImplementedError

    def all_counters(self) -> list[tuple[int, bytes]]:
        """The counters of all fragments, including deleted ones."""
        raise NotImplementedError

    def records(self, local: int) -> list[tuple[int, bytes, bytes]]:
        """Kind, key and bytes of the records that a fragment keeps."""
        raise NotImplementedError

    def record(self, local: int, kind: int, key: bytes) -> bytes:
        """The bytes of one of them, empty if there is none."""
        raise NotImplementedError

    def recorded(self, kinds: list[int]) -> set[int]:
        """The fragments that keep records of one of these kinds."""
        raise NotImplementedError

    def remembered(self, after: int, high: int) -> tuple[int, list[bytes]]:
        """Records of message ids behind a key, so many as one query brings, and the key of the
        last; the highest key when there are none.
        """
        raise NotImplementedError

    def pieces(
        self, local: int, stage: bytes, after: int, until: int
    ) -> Iterator[tuple[int, bytes]]:
        """The pieces of a stage with their records."""
        raise NotImplementedError

    def open_piece(self, local: int) -> bytes:
        """The record of the open piece of a fragment's journal, empty if there is none."""
        raise NotImplementedError

    def kept_pieces(self, local: int, stage: bytes, after: int, until: int) -> list[int]:
        """The pieces of a stage that have payloads beside them."""
        raise NotImplementedError

    def piece(self, local: int, stage: bytes, number: int) -> bytes:
        """The record of a piece, empty if there is none."""
        raise NotImplementedError

    def chunks(self, numbers: list[int]) -> Bytes:
        """Chunks by their numbers; the body of a chunk with parts is assembled from them."""
        return self._assembled(self.raw_chunks(numbers))

    def whole_chunks(self, numbers: list[int]) -> Bytes:
        """The same, for readers of many megabytes."""
        return self.chunks(numbers)

    def records_of(self, chunks: dict[int, int]) -> dict[int, list[Record] | None]:
        """The heads of chunks (number to first key), None for a damaged one."""
        if not chunks:
            return {}
        found = self.heads_of(list(chunks))
        return {
            number: unpack_head(first, found.get(number, b"")) for number, first in chunks.items()
        }

    def own_payloads(self, rows: list[EntryRow]) -> Iterator[tuple[EntryRow, bytes | None]]:
        """Messages with chunks of their own, and their payloads where they are whole."""
        for start, end in groups([row.size_bytes for row in rows]):
            group = rows[start:end]
            found = self._assembled(self.raw_own([row.chunk for row in group]))
            for row in group:
                yield row, _whole(row.key, found.get(row.chunk, NOTHING))

    def _assembled(self, found: Bytes) -> Bytes:
        shared = [number for number, (head, _) in found.items() if is_shared(head)]
        if shared:
            parts = {part for number in shared for part in parts_of(found[number][0])}
            bodies = self.part_bodies(sorted(parts))
            for number in shared:
                head = found[number][0]
                found[number] = (head, assembled(head, bodies))
        return found


@final
class ReadSnapshot:
    """Statements that see one state of the database, whatever is committed meanwhile."""

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup

    def __enter__(self) -> None:
        self._lookup.begin()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._lookup.end()


def groups(sizes: list[int]) -> list[tuple[int, int]]:
    """Ranges of at most READ_BYTES_MAX together, or of one."""
    found: list[tuple[int, int]] = []
    start = 0
    total = 0
    for at, size in enumerate(sizes):
        if at > start and total + size > READ_BYTES_MAX:
            found.append((start, at))
            start = at
            total = 0
        total += size
    if sizes:
        found.append((start, len(sizes)))
    return found


def _whole(key: int, record: tuple[bytes, bytes]) -> bytes | None:
    """The payload of a chunk of one message, None if it is damaged or missing."""
    head, body = record
    records = unpack_head(key, head)
    if records is None or len(records) != 1 or not is_whole(body, records[0]):
        return None
    return body
