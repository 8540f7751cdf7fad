"""What a fragment of a subscription may still get of what its topic published before it existed
(docs/adr/0136-backfills-under-the-old-numbers.md).
"""

from __future__ import annotations

from typing import Final, final

from shardbus.core.fragment.change import RecordChange
from shardbus.core.fragment.records import BEGUN
from shardbus.core.message import Entry
from shardbus.core.packing import Unpacker, packed_integer
from shardbus.core.sequence import counter_of

_KEY: Final = b""


@final
class BackfillBoundary:
    """Two counters. The first number that the topic gave the subscription as it was published:
    numbers from there on have reached it, or its rules did not match. And the last number that was
    filled in: earlier messages come in the order of their numbers, so none comes twice.
    """

    def __init__(self, records: dict[tuple[int, bytes], bytes], last_counter: int) -> None:
        self._begun = 0
        self._filled = 0
        data = records.get((BEGUN, _KEY))
        if data is not None:
            unpacker = Unpacker(data)
            self._begun, self._filled = unpacker.integer(), unpacker.integer()
            unpacker.end()
        elif last_counter > 0:
            # It was not noted when it began: nothing can be filled in.
            self._begun = 1

    def begin(self, number: int) -> RecordChange | None:
        """The subscription gets a message as it is published; the change if it is the first."""
        if self._begun:
            return None
        self._begun = counter_of(number)
        return self.change()

    def fill(self, entries: list[Entry]) -> list[Entry]:
        """Those of some earlier messages, with ascending numbers, that the subscription has not
        had.
        """
        taken: list[Entry] = []
        for entry in entries:
            counter = counter_of(entry.sequence_number)
            if counter > self._filled and (self._begun == 0 or counter < self._begun):
                self._filled = counter
                taken.append(entry)
        return taken

    def change(self) -> RecordChange:
        """Stores how far the subscription is filled."""
        data = packed_integer(self._begun) + packed_integer(self._filled)
        return RecordChange(BEGUN, _KEY, data)
