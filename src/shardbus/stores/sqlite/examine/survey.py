"""Walks everything in a store file, sound or not, in the order of its messages.

`check` walks in order to report, `repair` in order to write the sound part into another file; so
both find the same.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from heapq import merge
from typing import Final, final

from shardbus.core.fragment.change import LineCounters
from shardbus.core.message import MAIN_LINE, NEVER_MS, SET_ASIDE, TRANSFER_DEAD_LETTER_LINE
from shardbus.stores.base.check import Progress, StoreReport
from shardbus.stores.base.record import SIZE_BYTES, is_whole
from shardbus.stores.chunked.chunk import (
    CHUNK_SPAN_MAX,
    due_of,
    head_key,
    local_of,
    sequence_of,
    unpack_gap,
    unpack_head,
)
from shardbus.stores.sqlite.examine.finding import (
    Aside,
    Findings,
    FoundPiece,
    FoundPlace,
    Owner,
    Sink,
    Stored,
)
from shardbus.stores.sqlite.examine.part_survey import PartSurvey
from shardbus.stores.sqlite.examine.salvage import Salvage, Unreadable, blob, integer
from shardbus.stores.sqlite.examine.session_survey import SessionSurvey
from shardbus.stores.sqlite.examine.stage_survey import StageSurvey

_PLACE_COLUMNS: Final = "chunk, count, size, due_at"
_SERVED_NOT: Final = "the chunk is not served"
_RESTORED: Final = (
    "the chunk is not served; a repair lets it be served from the main line, because a page "
    "that referred to it may be lost"
)


@final
class Survey:
    """One walk over a store. `owners` is complete afterwards."""

    def __init__(
        self, connection: sqlite3.Connection, report: StoreReport, sink: Sink, progress: Progress
    ) -> None:
        self.owners: dict[int, Owner] = {}
        self._connection = connection
        self._salvage = Salvage(connection)
        self._report = report
        self._findings = Findings(report)
        self._sessions = SessionSurvey(connection, self._salvage, self._findings, self.owners)
        self._parts = PartSurvey(connection, self._salvage, self._findings)
        self._stages = StageSurvey(self._salvage, self._findings, self._parts, self.owners)
        self._sink = sink
        self._progress = progress

    def run(self) -> None:
        self._connection.execute("CREATE TEMP TABLE named (id INTEGER PRIMARY KEY)")
        columns = "entity_id, number, counters, is_deleted, has_parts"
        for row in self._salvage.rows("fragment", "local", columns):
            owner = Owner(row)
            self.owners[owner.local] = owner
            if not owner.is_deleted:
                self._sink.fragment(owner)
        self._walk()
        self._sessions.finish(self._sink)
        self._sessions.records(self._sink)
        self._stages.run(self._sink)
        self._strays()
        self._parts.finish(self.owners)
        for unreadable in self._salvage.unreadable:
            self._findings.add("a page cannot be read: " + unreadable, "what was on it is lost")
        for owner in self.owners.values():
            if not owner.is_deleted:
                self._compare(owner)

    # Messages in the order of their keys.

    def _walk(self) -> None:
        entries = _Peekable(self._entries())
        end = 0
        for place in self._places():
            for aside in entries.below(place.first):
                self._aside(aside)
            if place.first < end:
                self._overlap(place)
                continue
            inside = list(entries.below(place.first + min(place.span, CHUNK_SPAN_MAX)))
            self._piece(place, {aside.key for aside in inside})
            for aside in inside:
                self._aside(aside)
            end = place.first + place.span
        for aside in entries.below(1 << 63):
            self._aside(aside)

    def _places(self) -> Iterator[FoundPlace]:
        recent = sorted(
            FoundPlace(integer(row[1]), *map(integer, (row[0], row[2], row[3], row[4])))
            for row in self._salvage.rows("recent", "chunk", "first, count, size, due_at")
        )
        older = (
            FoundPlace(integer(row[0]), *map(integer, row[1:]))
            for row in self._salvage.rows("place", "first", _PLACE_COLUMNS)
        )
        return merge(older, recent)

    def _entries(self) -> Iterator[Aside]:
        columns = "line, state, size, due_at, chunk, data, session"
        for row in self._salvage.rows("entry", "key", columns):
            number = integer(row[5])
            yield Aside(row, self._chunk(number) if number > 0 else Stored(b"", b""))

    def _chunk(self, number: int) -> Stored:
        self._connection.execute("INSERT OR IGNORE INTO temp.named VALUES (?)", (number,))
        try:
            row = self._salvage.row("chunk", "id", "head, body", number)
        except Unreadable:
            row = None
        stored = Stored(b"", b"") if row is None else self._parts.stored(number, row)
        self._progress(len(stored.head) + len(stored.body))
        return stored

    def _piece(self, place: FoundPlace, changed: set[int]) -> None:
        piece = FoundPiece(place, self._chunk(place.number))
        owner = self.owners.get(local_of(place.first))
        if owner is None:
            self._sink.stray(None, piece)
            self._findings.add(
                f"chunk {place.number} belongs to fragment {local_of(place.first)} of the file, "
                "which is not listed",
                f"{place.span} messages cannot be assigned to a fragment and are not served",
            )
            return
        if owner.is_deleted:
            return
        piece.gone = self._gone(place)
        fault = _fault(piece)
        if fault:
            self._lose_chunk(owner, piece, changed, fault)
        else:
            self._examine(owner, piece, changed)
        self._sink.piece(owner, piece)

    def _gone(self, place: FoundPlace) -> int:
        """The messages that left a chunk, -1 when that is unknown."""
        try:
            gap = self._salvage.row("gap", "chunk", "bitmap", place.number)
        except Unreadable:
            return -1
        return 0 if gap is None else unpack_gap(place.first, blob(gap[0]))

    def _lose_chunk(self, owner: Owner, piece: FoundPiece, changed: set[int], fault: str) -> None:
        gone = max(piece.gone, 0) | piece.holes()
        first = piece.place.first
        span = min(max(piece.place.span, 0), CHUNK_SPAN_MAX)
        piece.records = None
        piece.lost = [at for at in range(span) if not gone >> at & 1 and first + at not in changed]
        owner.is_size_known = False
        for at in piece.lost:
            self._saw(owner, first + at, MAIN_LINE, 0, 0)
        self._findings.lose(
            owner, f"chunk {piece.place.number}: {fault}", [first + at for at in piece.lost]
        )

    def _examine(self, owner: Owner, piece: FoundPiece, changed: set[int]) -> None:
        assert piece.records is not None
        if piece.holes() & ~piece.gone:
            piece.gone |= piece.holes()
            self._findings.mend(
                owner, f"chunk {piece.place.number} does not say which numbers it lacks"
            )
        place, first, offset = piece.place, piece.place.first, 0
        for position, record in enumerate(piece.records):
            end = offset + record[SIZE_BYTES]
            is_gone = bool(piece.gone >> position & 1)
            if first + position in changed and not is_gone:
                # The entry is newer: it was written when the message left its chunk.
                piece.gone |= 1 << position
                is_gone = True
                self._findings.mend(
                    owner,
                    f"message {first + position} is both in a chunk and among the changed messages",
                )
            if not is_gone:
                self._saw(owner, first + position, MAIN_LINE, record[SIZE_BYTES], 0)
                if not is_whole(piece.body[offset:end], record):
                    piece.lost.append(position)
            offset = end
        if piece.lost:
            keys = [first + position for position in piece.lost]
            self._findings.lose(owner, f"chunk {place.number}: payloads fail their checksums", keys)
        due_at_ms, _ = due_of(piece.records, piece.gone)
        if (place.span, place.size_bytes) != (len(piece.records), offset):
            self._findings.mend(owner, f"chunk {place.number} differs from its row")
        elif due_at_ms != NEVER_MS and not NEVER_MS < place.due_at_ms <= due_at_ms:
            self._findings.mend(owner, f"messages of chunk {place.number} would expire too late")

    def _aside(self, aside: Aside) -> None:
        owner = self.owners.get(local_of(aside.key))
        if owner is None:
            place = FoundPlace(aside.key, aside.number, 1, aside.size_bytes, aside.due_at_ms)
            self._sink.stray(None, FoundPiece(place, aside.stored))
            self._findings.add(
                f"message {aside.key} belongs to a fragment that is not listed", _SERVED_NOT
            )
            return
        if owner.is_deleted:
            return
        fault = _entry_fault(aside, owner.base)
        line = aside.line if MAIN_LINE <= aside.line <= TRANSFER_DEAD_LETTER_LINE else MAIN_LINE
        self._saw(owner, aside.key, line, aside.size_bytes, aside.state)
        if fault and aside.state != SET_ASIDE:
            aside.is_lost = True
            self._findings.lose(owner, fault, [aside.key])
        self._sessions.saw(owner, aside)
        entry = aside.entry(owner.base)
        if entry is not None and not aside.is_lost and entry.due_ms() != aside.due_at_ms:
            self._findings.mend(
                owner, f"message {entry.sequence_number} would be due at a wrong moment"
            )
        self._sink.aside(owner, aside)

    def _overlap(self, place: FoundPlace) -> None:
        owner = self.owners.get(local_of(place.first))
        self._sink.stray(None, FoundPiece(place, self._chunk(place.number)))
        self._findings.add(
            f"chunk {place.number} is also listed for messages of the chunk before it",
            "these messages are served only from that chunk",
            owner,
        )

    def _strays(self) -> None:
        """Chunks that no row refers to: their row is lost, or they should have been removed."""
        self._report.is_torn |= self._salvage.is_torn
        meaning = _RESTORED if self._report.is_torn else _SERVED_NOT
        sql = "SELECT 1 FROM temp.named WHERE id = ?"
        for row in self._salvage.rows("chunk", "id", "length(body)"):
            number = integer(row[0])
            if self._connection.execute(sql, (number,)).fetchone() is not None:
                continue
            stored = self._chunk(number)
            key = head_key(stored.head)
            piece = FoundPiece(FoundPlace(key, number, 0, len(stored.body), NEVER_MS), stored)
            piece.gone = self._gone(piece.place)
            if piece.gone >= 0:
                piece.gone |= piece.holes()
            owner = None if piece.records is None else self.owners.get(local_of(key))
            self._sink.stray(owner, piece)
            numbers = [] if owner is None else _left(owner, piece)
            self._findings.add(f"no row refers to chunk {number}", meaning, owner, numbers)

    # Findings.

    def _compare(self, owner: Owner) -> None:
        stored, counted = owner.stored, owner.counted
        self._report.fragments.append((owner.entity_id, owner.number))
        if stored is None:
            self._findings.mend(
                owner, "the counters fail their checksum, so the fragment cannot be loaded"
            )
            return
        wrong: list[str] = []
        for line, (has, should) in enumerate(zip(stored.lines, counted.lines, strict=True)):
            if _by_state(has) != _by_state(should):
                wrong.append(f"line {line} says {_by_state(has)} messages, not {_by_state(should)}")
            elif owner.is_size_known and not _is_size_right(
                has.size_bytes, should.size_bytes, stored.set_aside
            ):
                wrong.append(f"line {line} says {has.size_bytes} bytes, not {should.size_bytes}")
        if stored.set_aside != counted.set_aside:
            wrong.append(f"{stored.set_aside} set aside, not {counted.set_aside}")
        if (stored.states, stored.state_bytes) != (counted.states, counted.state_bytes):
            wrong.append(
                f"{stored.states} states of {stored.state_bytes} bytes, not "
                f"{counted.states} of {counted.state_bytes}"
            )
        if stored.last_counter < counted.last_counter:
            wrong.append(f"last message {stored.last_counter}, not {counted.last_counter}")
        if wrong:
            self._findings.mend(owner, "the counters are wrong: " + "; ".join(wrong))

    def _saw(self, owner: Owner, key: int, line: int, size_bytes: int, state: int) -> None:
        owner.saw(key, line, size_bytes, state)
        if state == SET_ASIDE:
            self._report.set_aside += 1
        else:
            self._report.messages += 1


@final
class _Peekable:
    def __init__(self, entries: Iterator[Aside]) -> None:
        self._entries = entries
        self._next = next(entries, None)

    def below(self, key: int) -> Iterator[Aside]:
        """The entries before a key that were not returned yet."""
        while self._next is not None and self._next.key < key:
            taken, self._next = self._next, next(self._entries, None)
            yield taken


def _left(owner: Owner, piece: FoundPiece) -> list[int]:
    """The sequence numbers of what is left in a chunk; all of its numbers when that is unknown."""
    gone = max(piece.gone, 0) | piece.holes()
    return [
        sequence_of(owner.base, piece.place.first + at)
        for at in range(len(piece.records or []))
        if not gone >> at & 1
    ]


def _fault(piece: FoundPiece) -> str:
    if not piece.head:
        return "it is missing or cannot be read"
    if piece.records is None:
        return "its head fails its checksum"
    if piece.gone < 0:
        return "it is unknown which messages were removed from it"
    return ""


def _entry_fault(aside: Aside, base: int) -> str:
    entry = aside.entry(base)
    if entry is None:
        return f"the entry of message {sequence_of(base, aside.key)} fails its checksum"
    if (entry.line, entry.state) != (aside.line, aside.state):
        return f"the entry of message {entry.sequence_number} contradicts itself"
    records = unpack_head(aside.key, aside.head)
    if records is None or len(records) != 1 or not is_whole(aside.body, records[0]):
        return f"the payload of message {entry.sequence_number} is damaged or missing"
    return ""


def _by_state(line: LineCounters) -> str:
    return f"{line.count} active, {line.deferred} deferred, {line.scheduled} scheduled"


def _is_size_right(stored: int, counted: int, set_aside: int) -> bool:
    # A message whose record could not be read keeps its size in the count when it is set aside.
    return stored >= counted if set_aside else stored == counted
