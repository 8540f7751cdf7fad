"""The rows of a commit for the view `work`: their kinds and columns.

The view has no rows; its triggers (`schema/store.sql`) execute what is inserted. Only this module
and the schema know the numbers of the kinds and the order of the columns.
"""
# Compiled by mypyc.

from __future__ import annotations

from typing import Final, final

from shardbus.core.message import Entry
from shardbus.stores.chunked.chunk import pack_gap, pack_state, session_of
from shardbus.stores.chunked.directory import Chunk

# Each of the first ten has a trigger of its own.
APPEND: Final = 1
COUNTERS: Final = 2
GAP: Final = 3
DROP: Final = 4
DUE: Final = 5
MOVE: Final = 6
CHANGE: Final = 7
FORGET: Final = 8
BRING: Final = 9
REMEMBER: Final = 10
STATE: Final = 11
NO_STATE: Final = 12
FORGET_IDS: Final = 13
EVIDENCE: Final = 14
LOSE: Final = 15
RECORD: Final = 16
PART: Final = 17
HAS_PARTS: Final = 18
RELEASE: Final = 19
MOVE_PART: Final = 20

KINDS: Final = {
    "APPEND": APPEND,
    "COUNTERS": COUNTERS,
    "GAP": GAP,
    "DROP": DROP,
    "DUE": DUE,
    "MOVE": MOVE,
    "CHANGE": CHANGE,
    "FORGET": FORGET,
    "BRING": BRING,
    "REMEMBER": REMEMBER,
    "STATE": STATE,
    "NO_STATE": NO_STATE,
    "FORGET_IDS": FORGET_IDS,
    "EVIDENCE": EVIDENCE,
    "LOSE": LOSE,
    "RECORD": RECORD,
    "PART": PART,
    "HAS_PARTS": HAS_PARTS,
    "RELEASE": RELEASE,
    "MOVE_PART": MOVE_PART,
}
"""The kinds by the names that the schema uses."""

Cell = int | str | bytes | None
COLUMNS: Final = 15
# Rows of remembered ids that one commit removes; the rest are removed by later commits.
FORGET_ROWS_MAX: Final = 256


@final
class Rows:
    """Rows one after the other in `cells`, each of `COLUMNS`.

    `local` is the number of a fragment in the file. `lowest` is the lowest key of a fragment, which
    no message has.
    """

    def __init__(self) -> None:
        self.cells: list[Cell] = []

    def count(self) -> int:
        return len(self.cells) // COLUMNS

    def append(self, chunk: Chunk, head: bytes, body: bytes | str) -> None:
        """A new chunk, with a body or the list of its parts, and where its messages are."""
        self._add(
            APPEND,
            key=chunk.first,
            number=chunk.number,
            count=chunk.span,
            size=chunk.size_bytes,
            due_at=chunk.due_at_ms,
            flag=1 if chunk.is_mixed else 0,
            head=head,
            body=body,
        )

    def counters(self, local: int, packed: bytes) -> None:
        self._add(COUNTERS, key=local, data=packed)

    def gap(self, chunk: Chunk) -> None:
        """Which messages have left a chunk that still has some."""
        bitmap = pack_gap(chunk.first, chunk.gone, chunk.span)
        self._add(GAP, number=chunk.number, data=bitmap)

    def drop(self, chunk: Chunk) -> None:
        """Remove a chunk with all its rows."""
        self._add(
            DROP,
            key=chunk.first,
            number=chunk.number,
            count=1 if chunk.has_gap else 0,
            flag=1 if chunk.is_recent else 0,
        )

    def due(self, chunk: Chunk) -> None:
        """The first message of a chunk is due at another moment."""
        flag = 1 if chunk.is_mixed else 0
        self._add(DUE, key=chunk.first, number=chunk.number, due_at=chunk.due_at_ms, flag=flag)

    def move(  # noqa: PLR0913 - a row: all but the first two go by keyword
        self,
        key: int,
        entry: Entry,
        *,
        number: int,
        size_bytes: int,
        head: bytes,
        chunk: int,
        part: int,
        start: int,
    ) -> None:
        """A message leaves its chunk for one of its own (`number`).

        The payload is copied from a part (or from its chunk if `part` is 0), and begins at `start`.
        """
        self._add(
            MOVE if part == 0 else MOVE_PART,
            key=key,
            number=number,
            source=part or chunk,
            start=start,
            size=size_bytes,
            due_at=entry.due_ms(),
            line=entry.line,
            state=entry.state,
            head=head,
            data=pack_state(key, entry),
        )

    def change(self, key: int, entry: Entry) -> None:
        """A message with a chunk of its own has changed."""
        self._add(
            CHANGE,
            key=key,
            due_at=entry.due_ms(),
            line=entry.line,
            state=entry.state,
            data=pack_state(key, entry),
            name=session_of(entry),
        )

    def forget(self, key: int) -> None:
        """Remove a message with its own chunk."""
        self._add(FORGET, key=key)

    def bring(
        self,
        key: int,
        entry: Entry,
        *,
        number: int,
        size_bytes: int,
        head: bytes,
        body: bytes | str,
    ) -> None:
        """A new message with a chunk of its own."""
        self._add(
            BRING,
            key=key,
            number=number,
            size=size_bytes,
            due_at=entry.due_ms(),
            line=entry.line,
            state=entry.state,
            head=head,
            body=body,
            data=pack_state(key, entry),
            name=session_of(entry),
        )

    def lose(self, key: int, entry: Entry) -> None:
        """A message whose bytes are lost becomes an entry without a chunk."""
        self._add(
            LOSE,
            key=key,
            size=entry.size_bytes,
            due_at=entry.due_ms(),
            line=entry.line,
            state=entry.state,
            data=pack_state(key, entry),
        )

    def evidence(self, chunk: Chunk) -> None:
        """Keep a chunk with a damaged head, with the bytes of its parts."""
        self._add(EVIDENCE, key=chunk.first, number=chunk.number)

    def remember(self, lowest: int, at_ms: int, packed: bytes) -> None:
        """Remember ids of accepted messages; removes some of those that may be forgotten."""
        self._add(REMEMBER, key=lowest, due_at=at_ms, data=packed)

    def forget_ids(self, lowest: int, until_ms: int) -> None:
        """Ids up to a moment may be forgotten; removes some of them at once."""
        self._add(FORGET_IDS, key=lowest, count=FORGET_ROWS_MAX, due_at=until_ms)

    def state(self, local: int, name: bytes, set_at_ms: int, packed: bytes) -> None:
        """The state of a session."""
        self._add(STATE, key=local, due_at=set_at_ms, data=packed, name=name)

    def no_state(self, local: int, name: bytes) -> None:
        self._add(NO_STATE, key=local, name=name)

    def record(self, local: int, kind: int, key: bytes, packed: bytes | None) -> None:
        """A record of a fragment under a kind (`number`) and a key; None removes it."""
        self._add(RECORD, key=local, number=kind, data=packed, name=key)

    def part(self, number: int, users: int, body: bytes) -> None:
        """Payloads that this many chunks share."""
        self._add(PART, number=number, count=users, body=body)

    def has_parts(self, local: int) -> None:
        """From now on the fragment has chunks with parts."""
        self._add(HAS_PARTS, key=local)

    def release_chunk(self, number: int) -> None:
        """A chunk is about to be removed: its parts lose a user."""
        self._add(RELEASE, number=number)

    def release_entry(self, key: int) -> None:
        """The same for the chunk of a message that has one of its own."""
        self._add(RELEASE, key=key)

    def _add(  # noqa: PLR0913 - the columns of the view, by their names
        self,
        kind: int,
        *,
        key: int | None = None,
        number: int | None = None,
        source: int | None = None,
        start: int | None = None,
        count: int | None = None,
        size: int | None = None,
        due_at: int | None = None,
        line: int | None = None,
        state: int | None = None,
        flag: int | None = None,
        head: bytes | None = None,
        body: bytes | str | None = None,
        data: bytes | None = None,
        name: bytes | None = None,
    ) -> None:
        self.cells += (
            kind, key, number, source, start, count, size, due_at, line, state, flag,
            head, body, data, name,
        )  # fmt: skip
