"""Large reads of stores by another process than their broker's: what is asked and answered.

The bulk lane knows this and no store; `Record` is what a chunk says of one message.
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
"""The first and the last of successive sequence numbers."""


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
        """Whether the bytes are those that were written for a record."""
        return is_whole(payload, record)

    def is_hole(self, record: Record) -> bool:
        """Whether there never was a message with this number."""
        return record == HOLE


@final
class Slab:
    """Messages of one line of one fragment: whole chunks, and entries with payloads.

    `damaged` could not be read. `next_start` is where the next slab begins, 0 at the end.
    """

    def __init__(self) -> None:
        self.chunks: list[ChunkPart] = []
        self.entries: list[Entry] = []
        self.damaged: list[int] = []
        self.next_start = 0


@final
class BulkAsk:
    """Which messages of a line: those with numbers in rising ranges, in these states."""

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
        """A bit for each of `count` numbers from `first` on that is wanted; -1 for all of them."""
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


class BulkSource(Protocol):
    """One store, opened to be read. Everything raises StoreError when it cannot be."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def local(self, fragment: FragmentId) -> int:
        """What a fragment is called in this store; UnknownFragment when it is not there."""
        ...

    def first_number(self, local: int, number: int, line: int) -> int:
        """The lowest sequence number on a line of a fragment, 0 if it is empty."""
        ...

    def slab(self, local: int, ask: BulkAsk, start: int) -> Slab:
        """What is asked for from a sequence number on, a few megabytes of it."""
        ...

    def is_current(self) -> bool:
        """Whether the store that would be opened now is the same one."""
        ...


OpenSource = Callable[[str], BulkSource]
"""Opens the store of a broker by the broker's name; StoreError when that cannot be."""
