"""Answers questions about the lifecycle records of a fragment."""

from __future__ import annotations

from typing import Final, final

from shardbus.core.errors import INVALID_ARGUMENT, Refused
from shardbus.core.fragment.command import Command
from shardbus.core.fragment.family import Handler
from shardbus.core.fragment.need import Need, NeedBlocks
from shardbus.core.fragment.supply import Supply
from shardbus.core.lifecycle.command import LifecycleRead, ReadLifecycle
from shardbus.core.lifecycle.journal import LIFECYCLE_STAGE, Journal
from shardbus.core.limits import BATCH_MAX

SPAN_MAX: Final = 256
# Upper bound of the bytes of an answer, unless its first block alone is larger.
ANSWER_BYTES_MAX: Final = 1024 * 1024


@final
class Telling(Handler):
    """Decides the commands about lifecycle records; they change nothing."""

    def __init__(self, journal: Journal, supply: Supply) -> None:
        self._journal = journal
        self._supply = supply

    def need(self, command: Command, now_ms: int) -> Need | None:
        assert isinstance(command, ReadLifecycle)
        after, until = self._range(command)
        if until <= after or self._supply.has_blocks:
            return None
        return NeedBlocks(LIFECYCLE_STAGE, after, until)

    def _range(self, command: ReadLifecycle) -> tuple[int, int]:
        after = max(command.after, self._journal.first - 1)
        return after, min(after + min(command.span, SPAN_MAX), self._journal.next - 1)

    def decide(self, command: Command, now_ms: int) -> LifecycleRead:
        assert isinstance(command, ReadLifecycle)
        if not 0 <= command.after < BATCH_MAX:
            raise Refused(INVALID_ARGUMENT, f"There is no block {command.after} of records.")
        after, until = self._range(command)
        numbers: list[int] = []
        blocks: list[bytes] = []
        damaged: list[int] = []
        size_bytes = 0
        for number, data in sorted(self._supply.blocks.items()):
            size_bytes += 0 if data is None else len(data)
            if size_bytes > ANSWER_BYTES_MAX and numbers:
                until = number - 1
                break
            if data is None:
                damaged.append(number)
            else:
                numbers.append(number)
                blocks.append(data)
        journal = self._journal
        reached = max(after, until)
        return LifecycleRead(journal.first, journal.next, reached, numbers, blocks, damaged)
