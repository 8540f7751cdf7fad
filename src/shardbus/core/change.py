"""What a fragment decided, in the words a store remembers it by."""

from __future__ import annotations

from typing import final

from shardbus.core.message import Entry


@final
class Append:
    """New messages with consecutive sequence numbers, rising, on the main line and active."""

    def __init__(self, entries: list[Entry]) -> None:
        self.entries = entries


@final
class Update:
    """Messages whose line, state, delivery count, expiry, reason or modifications changed.

    Their payloads did not. An updated message was appended before, perhaps in the same commit.
    """

    def __init__(self, entries: list[Entry]) -> None:
        self.entries = entries


@final
class Remove:
    """Messages that are gone for good; each was appended before, perhaps in the same commit."""

    def __init__(self, sequence_numbers: list[int]) -> None:
        self.sequence_numbers = sequence_numbers


Change = Append | Update | Remove


@final
class LineCounters:
    """How many messages a line holds (locked ones included, set-aside ones not) and their bytes."""

    def __init__(self, count: int = 0, size_bytes: int = 0) -> None:
        self.count = count
        self.size_bytes = size_bytes


@final
class Counters:
    """A fragment's totals, stored with every commit so that start-up need not count.

    `last_counter` is the counter part of the last sequence number given out.
    `lines[line]` exists for MAIN_LINE, DEAD_LETTER_LINE and TRANSFER_DEAD_LETTER_LINE.
    """

    def __init__(self, last_counter: int, lines: list[LineCounters], set_aside: int = 0) -> None:
        self.last_counter = last_counter
        self.lines = lines
        self.set_aside = set_aside

    def copy(self) -> Counters:
        return Counters(
            self.last_counter,
            [LineCounters(line.count, line.size_bytes) for line in self.lines],
            self.set_aside,
        )

    def total_bytes(self) -> int:
        return sum(line.size_bytes for line in self.lines)


def new_counters() -> Counters:
    return Counters(0, [LineCounters(), LineCounters(), LineCounters()])
