"""Bulk reads of stores by a process other than their broker's: questions and answers.

The bulk lane knows this interface and no store; a `Record` describes one message of a chunk.
"""
# Compiled by mypyc.

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Protocol, Self, final

from shardbus.core.message import ACTIVE, Entry
from shardbus.stores.base.record import HOLE, Record, is_whole
from shardbus.stores.base.store import FragmentId

Range = tuple[int, int]
"""The first and the last of consecutive sequence numbers."""


@final
class ChunkPart:
    """A chunk of which some or all messages are wanted; `kept` has a bit for each, -1 means all."""

    def __init__(self, first_number: int, records: list[Record], kept: int, body: bytes) -> None:
        self.first_number = first_number
        self.records = records
        self.kept = kept
        self.body = body

    def keeps(self, number: int) -> bool:
        return self.kept < 0 or bool(self.kept >> (number - self.first_number) & 1)

    def is_whole(self, record: Record, payload: bytes) -> bool:
        """Whether the payload matches the checksum of its record."""
        return is_whole(payload, record)

    def is_hole(self, record: Record) -> bool:
        """Whether there never was a message with this number."""
        return record == HOLE


@final
class Slab:
    """Messages of one line of one fragment: whole chunks, and entries with payloads.

    The messages in `damaged` could not be read. `next_start` is where the next slab begins, 0 at
    the end.
    """

    def __init__(self) -> None:
        self.chunks: list[ChunkPart] = []
        self.entries: list[Entry] = []
        self.damaged: list[int] = []
        self.next_start = 0


@final
class BulkAsk:
    """Which messages of a line to read: those with numbers in ascending ranges, in these states."""

    def __init__(
        self, number: int, line: int, ranges: Sequence[Range], states: tuple[int, ...] = (ACTIVE,)
    ) -> None:
        """`number` is that of the fragment; ranges must not be empty."""
        self.number = number
        self.line = line
        self.ranges = list(ranges)
        self.states = states
        self._firsts = [first for first, _ in self.ranges]

    def wants(self, number: int) -> bool:
        position = bisect_right(self._firsts, number) - 1
        return position >= 0 and number <= self.ranges[position][1]

    def bits(self, first: int, count: int) -> int:
        """A bit for each wanted number of the `count` numbers from `first`; -1 if all are
        wanted.
        """
        last = first + count - 1
        position = max(bisect_right(self._firsts, first) - 1, 0)
        bits = 0
        for low, high in self.ranges[position:]:
            if low > last:
                break
            low, high = max(low, first), min(high, last)
            if low == first and high == last:
                return -1
            if low <= high:
                bits |= ((1 << (high - low + 1)) - 1) << (low - first)
        return bits


@final
class BlockSlab:
    """Blocks of the journal of one fragment, by their ascending numbers.

    `first` is the oldest block that the fragment kept at that moment: blocks before it were
    dropped, and blocks from it on that are not listed never existed. A block that is None is
    damaged. `until` is where to continue: all blocks up to it were looked at.
    """

    def __init__(self, first: int, until: int) -> None:
        self.first = first
        self.until = until
        self.numbers: list[int] = []
        self.blocks: list[bytes | None] = []


class BulkSource(Protocol):
    """One store, opened for reading. Every method raises StoreError when the store cannot be
    read.
    """

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def local(self, fragment: FragmentId) -> int:
        """The local number of a fragment in this store; UnknownFragment when the store does not
        have it.
        """
        ...

    def first_number(self, local: int, number: int, line: int) -> int:
        """The lowest sequence number on a line of a fragment, 0 if it is empty."""
        ...

    def slab(self, local: int, ask: BulkAsk, start: int) -> Slab:
        """The requested messages from a sequence number on, up to a few megabytes."""
        ...

    def state(self, local: int, session_id: str) -> bytes | None:
        """The state of a session of a fragment; None if it has none."""
        ...

    def blocks(self, local: int, after: int, until: int) -> BlockSlab:
        """Blocks of a fragment's journal with numbers above `after` and not above `until`, about a
        megabyte of them.
        """
        ...

    def is_current(self) -> bool:
        """Whether this is still the store that a new open would find."""
        ...


OpenSource = Callable[[str], BulkSource]
"""Opens the store of a broker by the broker's name; StoreError when that fails."""
