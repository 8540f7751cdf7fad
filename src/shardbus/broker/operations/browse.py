"""Browsing over fragments: the oldest reachable message first, then on to the end (R20, R21)."""

from __future__ import annotations

import asyncio
import heapq
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final, Protocol, final

from shardbus.core.errors import Unavailable
from shardbus.core.limits import PEEK_BYTES_MAX, PEEK_COUNT_MAX
from shardbus.core.message import MAIN_LINE, Entry
from shardbus.core.sequence import fragment_of
from shardbus.stores.base.store import FragmentId, Page

# Sequence numbers begin at 1; clients ask for 0 or 1 when they mean the start.
START_MAX: Final = 1
PLACES_MAX: Final = 32
"""Positions of clients that browse over one management link; the least recently used one is
forgotten.
"""


class Browsable(Protocol):
    """A fragment that can be read without changing its messages, wherever it runs."""

    @property
    def fragment_id(self) -> FragmentId: ...

    def browse(
        self,
        line: int,
        *,
        start: int,
        count_max: int,
        bytes_max: int,
        then: Callable[[Page | Unavailable], None],
        session_id: str | None = None,
    ) -> None: ...

    def list_sessions(
        self,
        *,
        updated_after_ms: int,
        skip: int,
        count_max: int,
        then: Callable[[list[str] | Unavailable], None],
    ) -> None:
        """Session ids as in `MessageStore.list_sessions`."""
        ...


@final
class BrowseCursor:
    """The positions of clients that browse merged fragments.

    Clients only ask for what follows the last message they got, which on a merged page says nothing
    about the other fragments. So the bus remembers the positions, by the number with which a client
    continues. It keeps several: a page may be requested again, and several clients may browse over
    one link.
    """

    def __init__(self) -> None:
        self.positions: list[int] = []
        self._places: OrderedDict[int, list[int]] = OrderedDict()

    def note(self, start: int, positions: list[int]) -> None:
        """A client that continues with `start` is at `positions`."""
        self.positions = self._places[start] = positions
        self._places.move_to_end(start)
        if len(self._places) > PLACES_MAX:
            self._places.popitem(last=False)

    def positions_at(self, start: int) -> list[int] | None:
        """The positions of a client that continues with `start`; None for a client that begins
        there.
        """
        return self._places.get(start)


async def browse(
    runners: Sequence[Browsable], line: int, *, start: int, count_max: int, cursor: BrowseCursor
) -> list[Entry]:
    """The next messages from `start`, in every state; an empty answer means there are no more.

    An unavailable fragment delays nobody and shows nothing; Unavailable when all are. From the
    beginning, fragments are merged by enqueue time, and a request that continues after the last
    message continues the merge. Any other `start` walks the fragments in number order.
    """
    count = min(count_max, PEEK_COUNT_MAX)
    positions = [0] * len(runners) if start <= START_MAX else cursor.positions_at(start)
    if positions is None:
        return await _walk(runners, line, start, count)
    answers = await asyncio.gather(
        *(
            read_page(runner, line, position, count)
            for runner, position in zip(runners, positions, strict=True)
        )
    )
    entries = _merge(_reached(answers), count)
    _advance(cursor, runners, positions, entries)
    return entries


async def browse_session(
    runner: Browsable, session_id: str, *, start: int, count_max: int
) -> list[Entry]:
    """The next messages of one session from `start`, in every state, from its one fragment."""
    count = min(count_max, PEEK_COUNT_MAX)
    [page] = _reached([await read_page(runner, MAIN_LINE, start, count, session_id)])
    return page.entries


def _advance(
    cursor: BrowseCursor, runners: Sequence[Browsable], positions: list[int], entries: list[Entry]
) -> None:
    if not entries:
        return
    index_of = {runner.fragment_id.number: index for index, runner in enumerate(runners)}
    reached = list(positions)
    for entry in entries:
        index = index_of[fragment_of(entry.sequence_number)]
        reached[index] = entry.sequence_number + 1
    cursor.note(entries[-1].sequence_number + 1, reached)


def _merge(pages: list[Page], count: int) -> list[Entry]:
    # A merge and not a sort: if the clock was set back, each fragment still keeps its own order, on
    # which the cursor relies.
    merged = heapq.merge(*(page.entries for page in pages), key=age)
    return _bounded(list(merged), count)


async def _walk(runners: Sequence[Browsable], line: int, start: int, count: int) -> list[Entry]:
    entries: list[Entry] = []
    answers: list[Page | Unavailable] = []
    for runner in sorted(runners, key=_number):
        if runner.fragment_id.number < fragment_of(start):
            continue
        answers.append(await read_page(runner, line, start, count - len(entries)))
        entries = _bounded([entry for page in _pages(answers) for entry in page.entries], count)
        if len(entries) >= count or sum(e.size_bytes for e in entries) >= PEEK_BYTES_MAX:
            break
    _reached(answers)
    return entries


def _pages(answers: Sequence[Page | Unavailable]) -> list[Page]:
    return [answer for answer in answers if isinstance(answer, Page)]


def _reached(answers: Sequence[Page | Unavailable]) -> list[Page]:
    """The pages of fragments that could be read; if none could, Unavailable is raised, because an
    empty answer would be wrong.
    """
    pages = _pages(answers)
    for answer in answers:
        if not pages and isinstance(answer, Unavailable):
            raise answer
    return pages


def _bounded(entries: list[Entry], count: int) -> list[Entry]:
    """As many as fit in a page, but at least one if there are any (R21)."""
    size_bytes = 0
    for position, entry in enumerate(entries[:count]):
        size_bytes += entry.size_bytes
        if size_bytes > PEEK_BYTES_MAX and position > 0:
            return entries[:position]
    return entries[:count]


async def read_page(
    runner: Browsable, line: int, start: int, count: int, session_id: str | None = None
) -> Page | Unavailable:
    """A page of one fragment, with entries unless it is the last."""
    page = await _read_once(runner, line, start, count, session_id)
    while isinstance(page, Page) and page.damaged and not page.entries and not page.is_end:
        # An empty answer would mean that there are no more messages; damaged ones are skipped.
        page = await _read_once(runner, line, page.damaged[-1] + 1, count, session_id)
    return page


async def _read_once(
    runner: Browsable, line: int, start: int, count: int, session_id: str | None
) -> Page | Unavailable:
    future: asyncio.Future[Page | Unavailable] = asyncio.get_running_loop().create_future()

    def then(page: Page | Unavailable) -> None:
        if not future.done():
            future.set_result(page)

    runner.browse(
        line,
        start=start,
        count_max=count,
        bytes_max=PEEK_BYTES_MAX,
        then=then,
        session_id=session_id,
    )
    return await future


def age(entry: Entry) -> tuple[int, int]:
    return entry.enqueued_at_ms, entry.sequence_number


def _number(runner: Browsable) -> int:
    return runner.fragment_id.number
