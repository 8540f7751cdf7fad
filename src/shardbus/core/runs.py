"""Sets of mostly consecutive sequence numbers, kept as runs."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import final


@final
class Runs:
    """Positive numbers as sorted runs with a gap between any two; `count` is the size of the
    set.
    """

    def __init__(self) -> None:
        self.count = 0
        self._firsts: list[int] = []
        self._lasts: list[int] = []

    def __len__(self) -> int:
        """How many runs there are."""
        return len(self._firsts)

    def first(self) -> int:
        """The lowest number; 0 when there is none."""
        return self._firsts[0] if self._firsts else 0

    def last(self) -> int:
        """The highest number; 0 when there is none."""
        return self._lasts[-1] if self._lasts else 0

    def pairs(self) -> list[tuple[int, int]]:
        """The first and the last number of each run, ascending."""
        return list(zip(self._firsts, self._lasts, strict=True))

    def add(self, first: int, last: int) -> None:
        """Add a run of numbers that are greater than all numbers of the set."""
        assert self.last() < first <= last
        if self._lasts and self._lasts[-1] == first - 1:
            self._lasts[-1] = last
        else:
            self._firsts.append(first)
            self._lasts.append(last)
        self.count += last - first + 1

    def copy(self) -> Runs:
        copied = Runs()
        copied.include(self)
        return copied

    def contains(self, number: int) -> bool:
        at = bisect_right(self._firsts, number) - 1
        return at >= 0 and number <= self._lasts[at]

    def covers(self, first: int, last: int) -> bool:
        """Whether the set has all numbers from `first` to `last`."""
        at = bisect_right(self._firsts, first) - 1
        return at >= 0 and last <= self._lasts[at]

    def end_of(self, number: int) -> int:
        """The last number of the run that contains this number; 0 if no run does."""
        at = bisect_right(self._firsts, number) - 1
        return self._lasts[at] if at >= 0 and number <= self._lasts[at] else 0

    def after(self, number: int, count_max: int) -> list[int]:
        """The lowest numbers greater than this one, ascending, at most `count_max`."""
        found: list[int] = []
        at = bisect_right(self._lasts, number)
        while at < len(self._firsts) and len(found) < count_max:
            start = max(self._firsts[at], number + 1)
            stop = min(self._lasts[at] + 1, start + count_max - len(found))
            found += range(start, stop)
            at += 1
        return found

    def numbers(self) -> list[int]:
        """All numbers, ascending."""
        return self.after(0, self.count)

    def include(self, others: Runs) -> None:
        """Add numbers, none of which is in the set."""
        if others.first() > self.last():
            for first, last in others.pairs():
                self.add(first, last)
            return
        merged = Runs()
        for first, last in sorted(self.pairs() + others.pairs()):
            merged.add(first, last)
        self._become(merged)

    def exclude(self, others: Runs) -> None:
        """Remove the numbers that are in the set; others are ignored."""
        if not others.count or not self.count:
            return
        # Only the runs between the first and the last of the others can change.
        start = bisect_left(self._lasts, others.first())
        stop = bisect_right(self._firsts, others.last())
        near = list(zip(self._firsts[start:stop], self._lasts[start:stop], strict=True))
        rest = _difference(near, others.pairs())
        self._firsts[start:stop] = [first for first, _ in rest]
        self._lasts[start:stop] = [last for _, last in rest]
        self.count -= _count(near) - _count(rest)

    def _become(self, other: Runs) -> None:
        self.count = other.count
        self._firsts = other._firsts
        self._lasts = other._lasts

    def pack(self) -> bytes:
        """The number of runs, then for each run its distance from the one before and its length, as
        varints.

        A varint has seven bits in each byte, the lowest first; every byte but the last has its top
        bit set.
        """
        packed = bytearray()
        _put(packed, len(self._firsts))
        end = 0
        for first, last in self.pairs():
            _put(packed, first - end)
            _put(packed, last - first)
            end = last
        return bytes(packed)


def unpack_runs(data: bytes) -> Runs:
    """Read what `Runs.pack` wrote; ValueError for damaged bytes."""
    values = _varints(data)
    if not values or len(values) != 1 + 2 * values[0]:
        raise ValueError("the runs of numbers are truncated or have extra bytes at their end")
    runs = Runs()
    for at in range(1, len(values), 2):
        if values[at] < (2 if len(runs) else 1):
            raise ValueError("two runs of numbers overlap")
        first = runs.last() + values[at]
        runs.add(first, first + values[at + 1])
    return runs


def runs_of(numbers: list[int]) -> Runs:
    """Ascending numbers as runs."""
    runs = Runs()
    for number in numbers:
        runs.add(number, number)
    return runs


def _difference(
    pairs: list[tuple[int, int]], others: list[tuple[int, int]]
) -> list[tuple[int, int]]:
    rest: list[tuple[int, int]] = []
    at = 0
    for first, last in pairs:
        start = first
        while at < len(others) and others[at][1] < start:
            at += 1
        within = at
        while within < len(others) and others[within][0] <= last:
            if start < others[within][0]:
                rest.append((start, others[within][0] - 1))
            start = others[within][1] + 1
            within += 1
        if start <= last:
            rest.append((start, last))
    return rest


def _count(pairs: list[tuple[int, int]]) -> int:
    count = 0
    for first, last in pairs:
        count += last - first + 1
    return count


def _put(packed: bytearray, value: int) -> None:
    rest = value
    while rest > 127:
        packed.append(rest & 127 | 128)
        rest >>= 7
    packed.append(rest)


def _varints(data: bytes) -> list[int]:
    values: list[int] = []
    value = 0
    shift = 0
    for byte in data:
        value |= (byte & 127) << shift
        if byte > 127:
            shift += 7
            if shift > 63:
                raise ValueError("a number of a run has too many bytes")
        else:
            values.append(value)
            value = 0
            shift = 0
    if shift:
        raise ValueError("a number of a run is truncated")
    return values
