"""Removes the oldest messages of a line over several fragments."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Sequence
from itertools import takewhile
from typing import Final, final

from shardbus.broker.operations.asking import ask, failure_of
from shardbus.broker.operations.browse import Browsable, age, read_page
from shardbus.broker.routing.dispatch import FragmentPort
from shardbus.core.errors import Refused, Unavailable
from shardbus.core.limits import PEEK_COUNT_MAX
from shardbus.core.message import ACTIVE, NEVER_MS, Entry
from shardbus.core.messages.command import Purge, Purged
from shardbus.core.sequence import fragment_of

# How often a fragment may find nothing and yet say that there may be more.
EMPTY_ANSWERS_MAX: Final = 100


async def purge_one(port: FragmentPort, command: Purge) -> int:
    """Remove messages from one fragment, in several steps; returns how many."""
    count = 0
    empty_answers = 0
    while count < command.count_max and empty_answers < EMPTY_ANSWERS_MAX:
        try:
            answer = await ask(port, _purge_of(command, command.count_max - count))
        except Unavailable as failure:
            is_unknown = failure.is_unknown or count > 0
            raise Unavailable(failure.message, is_unknown) from failure
        assert isinstance(answer, Purged)
        count += answer.count
        empty_answers = 0 if answer.count else empty_answers + 1
        if not answer.has_more:
            break
    return count


@final
class SpreadPurge:
    """Removes the oldest messages of a line that is spread over fragments.

    A look at the front of every fragment tells how many of the oldest each of them has. Locked
    messages are counted there, and skipped by the removal.
    """

    def __init__(
        self, ports: Sequence[FragmentPort], fragments: Sequence[Browsable], command: Purge
    ) -> None:
        self._ports = ports
        self._fragments = fragments
        self._command = command
        self._index_of = {
            fragment.fragment_id.number: index for index, fragment in enumerate(fragments)
        }
        # Where the next look at each fragment begins; -1: there is nothing more to find.
        self._starts = [0] * len(fragments)
        self._failure: Refused | Unavailable | None = None

    async def run(self) -> int:
        """How many were removed from the reachable fragments.

        Raises the failure of an unreachable one only when nothing was removed.
        """
        removed = 0
        while removed < self._command.count_max and any(start >= 0 for start in self._starts):
            oldest = await self._oldest(self._command.count_max - removed)
            shares = self._counts(oldest).items()
            answers = await asyncio.gather(*(self._purged(*share) for share in shares))
            removed += sum(answers)
        if self._failure is not None and not removed:
            raise self._failure
        return removed

    async def _purged(self, index: int, count: int) -> int:
        try:
            return await purge_one(self._ports[index], _purge_of(self._command, count))
        except (Refused, Unavailable) as failure:
            self._starts[index] = -1
            self._failure = _worse(self._failure, failure)
            return 0

    async def _oldest(self, count: int) -> list[Entry]:
        """The oldest messages that a look at each fragment shows; the next look begins after
        them.
        """
        pages = await asyncio.gather(
            *(self._look(index, start, count) for index, start in enumerate(self._starts))
        )
        oldest = list(heapq.merge(*pages, key=age))[:count]
        for entry in oldest:
            index = self._index_of[fragment_of(entry.sequence_number)]
            self._starts[index] = entry.sequence_number + 1
        return oldest

    async def _look(self, index: int, start: int, count: int) -> list[Entry]:
        if start < 0:
            return []
        count_max = min(count, PEEK_COUNT_MAX)
        page = await read_page(self._fragments[index], self._command.line, start, count_max)
        if isinstance(page, Unavailable):
            self._starts[index] = -1
            self._failure = _worse(self._failure, page)
            return []
        until_ms = self._command.enqueued_until_ms
        active = [entry for entry in page.entries if entry.state == ACTIVE]
        found = list(takewhile(lambda entry: _is_old(entry, until_ms), active))
        if not found:
            is_end = page.is_end or not page.entries or bool(active)
            self._starts[index] = -1 if is_end else page.entries[-1].sequence_number + 1
        return found

    def _counts(self, entries: list[Entry]) -> dict[int, int]:
        counts: dict[int, int] = {}
        for entry in entries:
            index = self._index_of[fragment_of(entry.sequence_number)]
            counts[index] = counts.get(index, 0) + 1
        return counts


def _worse(
    one: Refused | Unavailable | None, other: Refused | Unavailable
) -> Refused | Unavailable:
    """The failure to report: an unknown outcome takes precedence."""
    return other if one is None else failure_of([one, other]) or other


def _purge_of(command: Purge, count: int) -> Purge:
    return Purge(
        command.line,
        count,
        enqueued_until_ms=command.enqueued_until_ms,
        session=command.session,
    )


def _is_old(entry: Entry, until_ms: int) -> bool:
    return until_ms == NEVER_MS or entry.enqueued_at_ms <= until_ms
