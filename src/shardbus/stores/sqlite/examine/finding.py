"""What a walk over a store file finds, and how it is reported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol, final

from shardbus.core.fragment.change import Counters, LineCounters, new_counters
from shardbus.core.message import ACTIVE, DEFERRED, SET_ASIDE, Entry
from shardbus.stores.base.check import Damage, StoreReport
from shardbus.stores.base.record import SIZE_BYTES, Record
from shardbus.stores.chunked.chunk import (
    COUNTER_MAX,
    holes_of,
    sequence_base,
    sequence_of,
    session_of,
    unpack_counters,
    unpack_head,
    unpack_state,
)
from shardbus.stores.chunked.journal import open_in
from shardbus.stores.chunked.staged import StagedPiece
from shardbus.stores.sqlite.examine.salvage import Row, blob, integer


class FoundPlace(NamedTuple):
    """A row of `place` or `recent`."""

    first: int
    number: int
    span: int
    size_bytes: int
    due_at_ms: int


@final
class Stored:
    """The bytes of a chunk. A chunk with parts has the body that it would have without sharing.

    `parts` are those that its head names and that could be read.
    """

    def __init__(self, head: bytes, body: bytes, parts: dict[int, bytes] | None = None) -> None:
        self.head = head
        self.body = body
        self.parts: dict[int, bytes] = {} if parts is None else parts


@final
class FoundPiece:
    """A chunk of the main line as it was read. The positions in `lost` cannot be served.

    `records` is None when the chunk cannot be used at all; then `lost` has what was left in it.
    """

    def __init__(self, place: FoundPlace, stored: Stored) -> None:
        self.place = place
        self.stored = stored
        self.head = stored.head
        self.body = stored.body
        self.records: list[Record] | None = unpack_head(place.first, stored.head)
        self.gone = 0
        self.lost: list[int] = []

    def holes(self) -> int:
        """The numbers of its span that no message has."""
        return 0 if self.records is None else holes_of(self.records)

    def payload(self, position: int) -> bytes:
        assert self.records is not None
        offset = sum(record[SIZE_BYTES] for record in self.records[:position])
        return self.body[offset : offset + self.records[position][SIZE_BYTES]]


@final
class Aside:
    """A row of `entry` with the bytes of its chunk. `is_lost` when it cannot be served.

    `session` is the number of a session, -1 for none.
    """

    def __init__(self, row: Row, stored: Stored) -> None:
        self.key, self.line, self.state, self.size_bytes, self.due_at_ms, self.number = map(
            integer, row[:6]
        )
        self.data = blob(row[6])
        self.session = integer(row[7])
        self.stored = stored
        self.head = stored.head
        self.body = stored.body
        self.is_lost = False

    def entry(self, base: int) -> Entry | None:
        """The contents of its record, None if it is damaged."""
        return unpack_state(self.key, base, self.data)

    def session_name(self, base: int) -> bytes | None:
        """The session under which it should be found; None: under no session."""
        entry = self.entry(base)
        return None if entry is None else session_of(entry)


def count_in(line: LineCounters, state: int, size_bytes: int) -> None:
    """Count a message that is not set aside."""
    if state == ACTIVE:
        line.count += 1
    elif state == DEFERRED:
        line.deferred += 1
    else:
        line.scheduled += 1
    line.size_bytes += size_bytes


@final
class Owner:
    """A fragment of the file, with its stored counters and the counters computed here."""

    def __init__(self, row: Row) -> None:
        self.local, self.entity_id, self.number = map(integer, row[:3])
        self.is_deleted = integer(row[4]) == 1
        # Whether the file says that the fragment ever had a chunk with parts.
        self.has_parts = integer(row[5]) == 1
        self.base = sequence_base(self.number)
        counters = blob(row[3])
        self.stored: Counters | None = unpack_counters(self.local, counters)
        self.open_piece = open_in(counters)
        self.counted = new_counters()
        # False when some sizes could not be read, so that the bytes cannot be compared.
        self.is_size_known = True
        # Whether a record was lost that may have said which numbers the fragment used.
        self.has_lost_records = False

    def saw(self, key: int, line: int, size_bytes: int, state: int) -> None:
        self.counted.last_counter = max(self.counted.last_counter, key & COUNTER_MAX)
        if state == SET_ASIDE:
            self.counted.set_aside += 1
        else:
            count_in(self.counted.lines[line], state, size_bytes)


class Sink(Protocol):
    """Receives what a survey finds: fragments, messages in the order of keys, then the rest."""

    def fragment(self, owner: Owner) -> None: ...

    def piece(self, owner: Owner, piece: FoundPiece) -> None: ...

    def aside(self, owner: Owner, aside: Aside) -> None: ...

    def stray(self, owner: Owner | None, piece: FoundPiece) -> None:
        """A chunk that no row refers to, or whose fragment does not exist (then `owner` is
        None).
        """
        ...

    def state(self, owner: Owner, name: bytes, set_at_ms: int, data: bytes) -> None:
        """The sound state of a session, under the name by which it should be listed."""
        ...

    def remembered(self, owner: Owner, key: int, at_ms: int, data: bytes) -> None:
        """A sound record of message ids."""
        ...

    def record(self, owner: Owner, kind: int, key: bytes, data: bytes) -> None:
        """A sound record of the fragment, packed."""
        ...

    def staged(self, owner: Owner, piece: StagedPiece, bodies: Mapping[int, bytes]) -> None:
        """A sound piece of a stage, and its parts."""
        ...


@final
class Nowhere:
    """A sink for surveys that only report."""

    def fragment(self, owner: Owner) -> None:
        """Ignored: the report has it."""

    def piece(self, owner: Owner, piece: FoundPiece) -> None:
        """Ignored: the report has it."""

    def aside(self, owner: Owner, aside: Aside) -> None:
        """Ignored: the report has it."""

    def stray(self, owner: Owner | None, piece: FoundPiece) -> None:
        """Ignored: the report has it."""

    def state(self, owner: Owner, name: bytes, set_at_ms: int, data: bytes) -> None:
        """Ignored: the report has it."""

    def remembered(self, owner: Owner, key: int, at_ms: int, data: bytes) -> None:
        """Ignored: the report has it."""

    def record(self, owner: Owner, kind: int, key: bytes, data: bytes) -> None:
        """Ignored: the report has it."""

    def staged(self, owner: Owner, piece: StagedPiece, bodies: Mapping[int, bytes]) -> None:
        """Ignored: the report has it."""


@final
class Findings:
    """Adds findings to a report."""

    def __init__(self, report: StoreReport) -> None:
        self.report = report

    def lose(self, owner: Owner, what: str, keys: list[int]) -> None:
        """Report messages that cannot be served; without any, report damage without loss."""
        if keys:
            numbers = [sequence_of(owner.base, key) for key in keys]
            meaning = f"{len(keys)} messages cannot" if len(keys) > 1 else "1 message cannot"
            self.add(what, f"{meaning} be served", owner, numbers)
        else:
            self.mend(owner, what)

    def mend(
        self, owner: Owner | None, what: str, meaning: str = "no message is lost because of this"
    ) -> None:
        self.add(what, meaning, owner)
        self.report.damages[-1].is_loss = False

    def add(
        self,
        what: str,
        meaning: str,
        owner: Owner | None = None,
        numbers: list[int] | None = None,
    ) -> None:
        damage = Damage(self.report.file, what, meaning=meaning, sequence_numbers=numbers)
        if owner is not None:
            damage.entity_id, damage.fragment = owner.entity_id, owner.number
        self.report.damages.append(damage)
