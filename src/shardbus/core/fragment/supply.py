"""What was read from the store for a command, and what must still be read for it."""

from __future__ import annotations

from typing import final

from shardbus.core.fragment.ledger import Ledger
from shardbus.core.fragment.line import Line
from shardbus.core.fragment.need import NeedEntries, NeedPage, NeedStages
from shardbus.core.message import Entry
from shardbus.core.stages.record import ReadStage


@final
class Supply:
    """Messages and stages that were read for the next command of a fragment.

    Only that command can use them: if any other command is applied first they are stale, and are
    read again.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._wanted_line = -1
        self.fed: dict[int, Entry | None] = {}
        self._fed_stages: dict[bytes, ReadStage] = {}
        # What was read for the command that is being applied.
        self.entries: dict[int, Entry | None] = {}
        self.stages: dict[bytes, ReadStage] = {}
        # Blocks by their numbers, as they are stored; and whether some were read for the next
        # command.
        self.blocks: dict[int, bytes | None] = {}
        self.has_blocks = False

    def begin(self) -> None:
        """A command is being applied: what was read for it can be used by it alone."""
        if self.fed or self.entries:
            self.entries = self.fed
            self.fed = {}
        if self.has_blocks:
            self.has_blocks = False
        elif self.blocks:
            self.blocks = {}
        if self._fed_stages or self.stages:
            self.stages = self._fed_stages
            self._fed_stages = {}

    def stages_in(self, stages: dict[bytes, ReadStage]) -> None:
        self._fed_stages = stages

    def blocks_in(self, blocks: dict[int, bytes | None]) -> None:
        self.blocks = blocks
        self.has_blocks = True

    # What is missing.

    def need_entries(
        self, numbers: list[int], count_max: int, *, bytes_max: int
    ) -> NeedEntries | None:
        if len(numbers) > count_max or all(number in self.fed for number in numbers):
            return None
        return NeedEntries(numbers, bytes_max=bytes_max)

    def need_stages(self, need: NeedStages | None) -> NeedStages | None:
        if need is None or all(name in self._fed_stages for name in need.stages):
            return None
        return need

    def need_page(self, number: int) -> NeedPage | None:
        line = self._ledger.lines[number]
        return None if len(line) > 0 or not line.has_tail else self.page(number)

    def page(self, line_number: int) -> NeedPage:
        """The next page of a line."""
        bounds = self._ledger.bounds
        line = self._ledger.lines[line_number]
        self._ledger.pass_over_claimed(line)
        return NeedPage(
            line_number,
            line.end,
            count_max=bounds.page_count_max,
            bytes_max=bounds.page_bytes_max,
        )

    def unread(self, line: Line, count_max: int) -> list[int]:
        """Messages to read from the store before they can be received and deleted.

        None unless the very next message lacks its payload, which cannot be read after the removal.
        """
        numbers: list[int] = []
        size_bytes = 0
        for entry in line.front(count_max):
            if entry.payload is not None and not numbers:
                break
            size_bytes += entry.size_bytes
            if numbers and size_bytes > self._ledger.bounds.page_bytes_max:
                break
            if entry.payload is None:
                numbers.append(entry.sequence_number)
        return numbers

    # Reading ahead.

    def want(self, line_number: int) -> None:
        """Messages were taken from a line: it may need its next page."""
        if self._ledger.lines[line_number].is_low():
            self._wanted_line = line_number

    def wanted(self) -> NeedPage | None:
        """The page to read ahead, before a receiver has to wait for it."""
        number, self._wanted_line = self._wanted_line, -1
        if number < 0 or not self._ledger.lines[number].is_low():
            return None
        return self.page(number)
