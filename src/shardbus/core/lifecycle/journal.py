"""The journal of a fragment: every event of its messages, bounded in size and age.

The fragment notes rows while it decides. The commit that stores its decisions stores the rows too,
as one block, which is a piece of the stage LIFECYCLE_STAGE. A lock and its release change nothing
that is stored, so their rows wait for the next commit, but not for longer than WAIT_MS. A crash in
between loses the lock together with its row.

Blocks are numbered. Numbers are reserved in advance, so that most commits store nothing but the
block, and a fragment that is loaded starts with a number that was never used. Blocks are dropped by
segments, many at once.

While the disk is full rows are given up, and a row with their number takes their place. The first
commit without its rows stores a record that says so, which is removed with the commit of that row:
a fragment that is loaded in between still tells that rows are missing.
"""

from __future__ import annotations

from itertools import repeat
from typing import Final, final

from shardbus.core.fragment.change import Change, RecordChange, StageDrop, StagePut
from shardbus.core.fragment.records import LIFECYCLE, MISSING
from shardbus.core.integers import pack_integers, unpack_integers
from shardbus.core.lifecycle.rows import (
    DUPLICATE,
    GAP,
    LOAD,
    LOCK,
    RELEASE,
    UNKNOWN,
    Rows,
)
from shardbus.core.limits import (
    LIFECYCLE_BYTES_MAX,
    LIFECYCLE_MS_MAX,
    LIFECYCLE_ROWS_WAITING_MAX,
    LIFECYCLE_SEGMENTS,
)
from shardbus.core.message import AT_ONCE_MS, NEVER_MS, Entry

LIFECYCLE_STAGE: Final = b"\x00lifecycle"
"""No client can name such a stage: the names of stages are text without control characters."""

RECORD_KEY: Final = b""
"""The key of the record with the numbers of blocks, of kind LIFECYCLE, and of that of kind MISSING.
"""

WAIT_MS: Final = 1_000
NUMBERS_RESERVED: Final = 1_024
# The bytes that a block takes in a store beside its own.
_BLOCK_BYTES: Final = 128


@final
class _Hold:
    """Since when, and by whom, the messages of one receive are locked."""

    def __init__(self, at_ms: int, receiver: str) -> None:
        self.at_ms = at_ms
        self.receiver = receiver


_NOT_HELD: Final = _Hold(UNKNOWN, "")


@final
class Journal:
    """Collects rows and decides which blocks are stored and dropped.

    `at_ms` is the moment of the rows that are noted next. Blocks with numbers from `first` up to,
    but not including, `next` are stored, except those that were reserved and never used.
    """

    def __init__(self, data: bytes | None, at_ms: int, *, is_on: bool) -> None:
        """`data` is the stored record of the journal, if there is one."""
        self.is_on = is_on
        self.at_ms = at_ms
        self.deadline_ms = NEVER_MS
        self.first = 1
        self.next = 1
        self._reserved_to = 1
        self._rows = Rows()
        self._locked: dict[int, _Hold] = {}
        self._newest = _NOT_HELD
        # How many rows the row that is a gap stands for, whether a record says that they are
        # missing, and whether there may be more of them.
        self._missing = 0
        self._is_marked = False
        self._is_least = False
        # Of each closed segment its end, the moment of its last row, and its bytes.
        self._segments: list[tuple[int, int, int]] = []
        self._closed_bytes = 0
        self._open_bytes = 0
        self._opened_at_ms = at_ms
        if data is not None:
            self._load(unpack_integers(data))

    def _load(self, values: list[int]) -> None:
        self.first, self.next, self._open_bytes, self._opened_at_ms = values[:4]
        self._reserved_to = self.next
        rest = values[4:]
        self._segments = list(zip(rest[0::3], rest[1::3], rest[2::3], strict=True))
        self._closed_bytes = sum([size_bytes for _, _, size_bytes in self._segments])

    def recover(self, number: int, size_bytes: int, at_ms: int) -> None:
        """Take over a stored block whose journal has lost its record, by ascending numbers."""
        self.at_ms = at_ms
        if self.next == 1:
            self.first = number
            self._opened_at_ms = at_ms
        self.next = max(self.next, number + 1)
        self._open_bytes += size_bytes + _BLOCK_BYTES
        self._close_segment()

    # Noting.

    def loaded(self, steady_ms: int) -> None:
        """The fragment was loaded: the locks that it had are lost."""
        self._note(LOAD, "")
        self._wait(steady_ms)

    def missed(self, data: bytes, steady_ms: int) -> None:
        """Rows were given up before the fragment was loaded; `data` is the record that says so."""
        self._missing = int.from_bytes(data, "big")
        self._is_marked = self._is_least = True
        self._note_gap()
        self._wait(steady_ms)

    def switch(self, steady_ms: int, *, is_on: bool) -> None:
        """Begin or stop collecting rows. Rows collected earlier are stored."""
        if is_on and not self.is_on:
            self.is_on = True
            self._locked.clear()
            self.loaded(steady_ms)
        self.is_on = is_on

    def entered(self, event: int, entries: list[Entry], keys: list[str | None] | None) -> None:
        """New messages, and the keys that placed them."""
        rows, count = self._rows, len(entries)
        if count == 1:
            entry = entries[0]
            self._add_one(event, entry, 0, entry.session_id if keys is None else keys[0])
            rows.deliveries.append(0)
            rows.held_ms.append(UNKNOWN)
            rows.tags.append(0)
            return
        self._add(event, count)
        rows.numbers += [entry.sequence_number for entry in entries]
        rows.ages_ms += [0] * count
        rows.held_ms += [UNKNOWN] * count
        rows.deliveries += [0] * count
        rows.sizes_bytes += [entry.size_bytes for entry in entries]
        if keys is None:
            rows.keys += [rows.text(entry.session_id) for entry in entries]
        else:
            rows.keys += [rows.text(key) for key in keys]
        rows.tags += [0] * count

    def adopted(self, event: int, first: int, count: int) -> None:
        """New messages whose bytes the store already has."""
        self._add(event, count)
        self._numbers(list(range(first, first + count)))

    def dropped(self, keys: list[str | None]) -> None:
        """Duplicates, which have no number."""
        self._add(DUPLICATE, len(keys))
        rows, position = self._rows, len(self._rows.keys)
        self._numbers([0] * len(keys))
        rows.keys[position:] = [rows.text(key) for key in keys]

    def locked(self, entries: list[Entry], receiver: str, steady_ms: int) -> None:
        rows, count, at_ms = self._rows, len(entries), self.at_ms
        if count == 1:
            entry = entries[0]
            self._add_one(LOCK, entry, at_ms - entry.enqueued_at_ms, entry.session_id)
            rows.deliveries.append(entry.delivery_count)
            rows.held_ms.append(UNKNOWN)
            rows.tags.append(rows.text(receiver) << 32)
            self._locked[entry.sequence_number] = self._hold(receiver)
            self._wait(steady_ms)
            return
        numbers = [entry.sequence_number for entry in entries]
        self._add(LOCK, count)
        rows.numbers += numbers
        rows.ages_ms += [at_ms - entry.enqueued_at_ms for entry in entries]
        rows.held_ms += [UNKNOWN] * count
        rows.deliveries += [entry.delivery_count for entry in entries]
        rows.sizes_bytes += [entry.size_bytes for entry in entries]
        rows.keys += [rows.text(entry.session_id) for entry in entries]
        rows.tags += [rows.text(receiver) << 32] * count
        self._locked.update(dict.fromkeys(numbers, self._hold(receiver)))
        self._wait(steady_ms)

    def _hold(self, receiver: str) -> _Hold:
        """Receives of one receiver at one moment share it."""
        hold = self._newest
        if hold.at_ms != self.at_ms or hold.receiver != receiver:
            hold = _Hold(self.at_ms, receiver)
            self._newest = hold
        return hold

    def moved(self, event: int, entries: list[Entry], detail: str | None = None) -> None:
        """Messages that are settled, expire, or change in another way."""
        rows, count, at_ms = self._rows, len(entries), self.at_ms
        if count == 1:
            entry = entries[0]
            self._add_one(event, entry, at_ms - entry.enqueued_at_ms, entry.session_id)
            rows.deliveries.append(entry.delivery_count)
            self._end_holds([entry.sequence_number], rows.text(detail))
            return
        numbers = [entry.sequence_number for entry in entries]
        self._add(event, count)
        rows.numbers += numbers
        rows.ages_ms += [at_ms - entry.enqueued_at_ms for entry in entries]
        rows.deliveries += [entry.delivery_count for entry in entries]
        rows.sizes_bytes += [entry.size_bytes for entry in entries]
        rows.keys += [rows.text(entry.session_id) for entry in entries]
        self._end_holds(numbers, rows.text(detail))

    def _end_holds(self, numbers: list[int], detail: int) -> None:
        """Fill in how long, and by whom, messages were locked: mostly all by one receive."""
        rows, at_ms = self._rows, self.at_ms
        known, held_ms, tag = _NOT_HELD, UNKNOWN, detail
        # One call for all: their numbers stay the objects that they are.
        for hold in map(self._locked.pop, numbers, repeat(_NOT_HELD)):
            if hold is not known:
                known = hold
                held_ms = UNKNOWN if hold is _NOT_HELD else at_ms - hold.at_ms
                tag = rows.text(hold.receiver) << 32 | detail
            rows.held_ms.append(held_ms)
            rows.tags.append(tag)

    def released(self, entries: list[Entry], steady_ms: int) -> None:
        """Messages whose delivery did not fail."""
        self.moved(RELEASE, entries)
        self._wait(steady_ms)

    def gone(self, event: int, numbers: list[int]) -> None:
        """Messages of which only the numbers are known."""
        for number in numbers:
            self._locked.pop(number, None)
        self._add(event, len(numbers))
        self._numbers(numbers)

    def _add_one(self, event: int, entry: Entry, age_ms: int, key: str | None) -> None:
        """Most calls have one message: a list for each column would take longer than the row."""
        rows = self._rows
        rows.events.append(event)
        rows.at_ms.append(self.at_ms)
        rows.numbers.append(entry.sequence_number)
        rows.ages_ms.append(age_ms)
        rows.sizes_bytes.append(entry.size_bytes)
        rows.keys.append(rows.text(key))

    def _add(self, event: int, count: int) -> None:
        rows = self._rows
        rows.events += [event] * count
        rows.at_ms += [self.at_ms] * count

    def _numbers(self, numbers: list[int]) -> None:
        rows, count = self._rows, len(numbers)
        rows.numbers += numbers
        for column in (rows.ages_ms, rows.held_ms, rows.deliveries, rows.sizes_bytes):
            column += [UNKNOWN] * count
        rows.keys += [0] * count
        rows.tags += [0] * count

    def _note(self, event: int, detail: str) -> None:
        """A row about no message."""
        self._add(event, 1)
        self._numbers([0])
        self._rows.tags[-1] = self._rows.text(detail)

    def _note_gap(self) -> None:
        least = "at least " if self._is_least else ""
        self._note(GAP, f"{least}{self._missing} rows")

    def _wait(self, steady_ms: int) -> None:
        if not self._rows.events:
            return  # A receive that found nothing: without a row a commit would be for nothing.
        if len(self._rows) >= LIFECYCLE_ROWS_WAITING_MAX:
            self.deadline_ms = AT_ONCE_MS
        elif self.deadline_ms == NEVER_MS:
            self.deadline_ms = steady_ms + WAIT_MS

    # Storing.

    def is_due(self, steady_ms: int) -> bool:
        """Whether the rows have waited long enough for a commit."""
        return NEVER_MS < self.deadline_ms <= steady_ms

    def give_up(self, steady_ms: int) -> list[Change]:
        """Discard the rows for lack of room; one row with their number replaces them.

        The changes are for the commit that stores what the discarded rows would tell.
        """
        self._discard()
        if not self._missing:
            return []
        self.deadline_ms = steady_ms + WAIT_MS
        if self._is_marked:
            return []
        self._is_marked = True
        return [RecordChange(MISSING, RECORD_KEY, self._missing.to_bytes(8, "big"))]

    def postpone(self, steady_ms: int) -> None:
        """There is no room for a commit of the rows now: keep them, within bounds."""
        if len(self._rows) >= LIFECYCLE_ROWS_WAITING_MAX:
            self._discard()
        self.deadline_ms = steady_ms + WAIT_MS

    def _discard(self) -> None:
        count = len(self._rows) - (self._missing > 0)
        if count > 0:
            self._missing += count
            self._rows = Rows()
            self._note_gap()

    def take(self) -> list[Change]:
        """The changes that store the collected rows and drop the blocks that exceed the limits of
        age and size.
        """
        rows = self._rows
        if not rows.events:
            return []
        self._rows = Rows()
        self.deadline_ms = NEVER_MS
        data = rows.packed()
        changes: list[Change] = [StagePut(LIFECYCLE_STAGE, self.next, data, is_new=True)]
        if self._missing:
            self._end_gap(changes)
        must_record = self.next >= self._reserved_to
        self.next += 1
        self._open_bytes += len(data) + _BLOCK_BYTES
        is_closed = self._close_segment()
        if self._drop_segments(changes) or is_closed or must_record:
            changes.append(RecordChange(LIFECYCLE, RECORD_KEY, self.record()))
        return changes

    def _end_gap(self, changes: list[Change]) -> None:
        if self._is_marked:
            changes.append(RecordChange(MISSING, RECORD_KEY, None))
        self._missing = 0
        self._is_marked = self._is_least = False

    def _close_segment(self) -> bool:
        is_large = self._open_bytes >= LIFECYCLE_BYTES_MAX // LIFECYCLE_SEGMENTS
        is_long = self.at_ms - self._opened_at_ms >= LIFECYCLE_MS_MAX // LIFECYCLE_SEGMENTS
        if not is_large and not is_long:
            return False
        self._segments.append((self.next, self.at_ms, self._open_bytes))
        self._closed_bytes += self._open_bytes
        self._open_bytes = 0
        self._opened_at_ms = self.at_ms
        return True

    def _drop_segments(self, changes: list[Change]) -> bool:
        """Drop the oldest segment if it is too old, or if the segments are too large."""
        if not self._segments:
            return False
        end, at_ms, size_bytes = self._segments[0]
        is_large = self._closed_bytes + self._open_bytes > LIFECYCLE_BYTES_MAX
        if not is_large and self.at_ms - at_ms < LIFECYCLE_MS_MAX:
            return False
        changes.append(StageDrop(LIFECYCLE_STAGE, end - 1))
        self.first = end
        self._closed_bytes -= size_bytes
        del self._segments[0]
        return True

    def record(self) -> bytes:
        """The record to be stored, which reserves the next numbers."""
        self._reserved_to = self.next + NUMBERS_RESERVED
        values = [self.first, self._reserved_to, self._open_bytes, self._opened_at_ms]
        for segment in self._segments:
            values += segment
        return pack_integers(values)


def first_kept(data: bytes) -> int:
    """The number of the oldest block that a journal kept when its record was stored."""
    return unpack_integers(data)[0]


def opened(
    records: dict[tuple[int, bytes], bytes], at_ms: int, steady_ms: int, *, is_on: bool
) -> Journal:
    """The journal of a fragment that is being loaded, from the records that it keeps."""
    journal = Journal(records.get((LIFECYCLE, RECORD_KEY)), at_ms, is_on=is_on)
    missing = records.get((MISSING, RECORD_KEY))
    if missing is not None:
        journal.missed(missing, steady_ms)
    if is_on:
        journal.loaded(steady_ms)
    return journal
