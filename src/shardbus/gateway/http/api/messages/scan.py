"""Walks over the messages of a line, oldest or newest first, page by page and without state."""

from __future__ import annotations

import asyncio
import heapq
import re
from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import Final, final

from shardbus.broker.bus import EntityHandle, OpenFragment
from shardbus.broker.operations.browse import age, read_page
from shardbus.core.errors import MESSAGE_NOT_FOUND, Refused, Unavailable
from shardbus.core.limits import PEEK_COUNT_MAX
from shardbus.core.message import MAIN_LINE, Entry
from shardbus.core.sequence import fragment_of, sequence_number
from shardbus.core.sessions.key import session_key
from shardbus.gateway.http.api.places import EntityPlace, EntityPlaces
from shardbus.gateway.http.document import INTEGER_MAX
from shardbus.gateway.http.server.refusal import invalid, shown

CURSOR_CHARACTERS_MAX: Final = 32 * 1024
_CURSOR: Final = re.compile(r"([fb])([0-9a-f]{1,12})((?:-(?:x|[0-9a-f]{1,16}))+)", re.ASCII)
_OVER: Final = -1
"""As a position: nothing is left in the fragment."""
# Backwards: how many numbers a read covers at first, and how many messages it may return.
_WIDTH: Final = 128
_WIDTH_MAX: Final = 1 << 40
_FOUND_MAX: Final = 1_000


@final
class Scan:
    """One walk over some fragments of a line, which may end at any message and continues at
    `cursor`.

    Fragments are merged by enqueue time. An unavailable one is skipped and listed.
    """

    def __init__(
        self,
        handle: EntityHandle,
        line: int,
        *,
        indexes: Sequence[int],
        is_backward: bool = False,
        session_id: str | None = None,
        lasts: Sequence[int] = (),
    ) -> None:
        """`indexes` are the positions of the fragments, `lasts` the last number of each, which
        walking backwards needs.
        """
        self._runners = [handle.runners[index] for index in indexes]
        self._line = line
        self._is_backward = is_backward
        self._session_id = session_id
        self.searched = 0
        self.unavailable: list[int] = []
        self._positions = [last + 1 for last in lasts] if is_backward else [0] * len(indexes)
        self._pages: list[tuple[list[Entry], bool]] = []
        # Messages that were read but not passed yet: a fragment may be ahead of the others.
        self._held: list[tuple[list[Entry], bool] | None] = [None] * len(indexes)
        self._index_of = {
            runner.fragment_id.number: index for index, runner in enumerate(self._runners)
        }

    def resume(self, cursor: str) -> None:
        """Continue at a cursor; Refused if it does not belong to such a walk."""
        found = _CURSOR.fullmatch(cursor) if len(cursor) <= CURSOR_CHARACTERS_MAX else None
        parts = [] if found is None else found[3].split("-")[1:]
        positions = [_OVER if part == "x" else int(part, 16) for part in parts]
        is_same = found is not None and (found[1] == "b") == self._is_backward
        if found is None or not is_same or len(positions) != len(self._positions):
            raise invalid(f"cursor is {shown(cursor)}; use `next` of the previous page.")
        if max(positions) > INTEGER_MAX:
            raise invalid(f"cursor is {shown(cursor)}; use `next` of the previous page.")
        self._positions = positions
        self.searched = int(found[2], 16)

    @property
    def cursor(self) -> str | None:
        """Where to continue; None at the end."""
        self._settle()
        return self.place

    @property
    def place(self) -> str | None:
        """Where to continue after the last passed message, even in the middle of a batch."""
        if all(position == _OVER for position in self._positions):
            return None
        word = "b" if self._is_backward else "f"
        return f"{word}{self.searched:x}" + "".join(
            "-x" if position == _OVER else f"-{position:x}" for position in self._positions
        )

    async def batch(self) -> list[Entry]:
        """The next messages in order, in every state; none at the end. Call `passed` for each
        examined message before the next batch.
        """
        while True:
            self._settle()
            if all(position == _OVER for position in self._positions):
                return []
            indexes = range(len(self._runners))
            self._pages = await asyncio.gather(*(self._page(index) for index in indexes))
            found = self._in_order(self._pages)
            if found:
                return found

    def passed(self, entry: Entry) -> None:
        index = self._index_of[fragment_of(entry.sequence_number)]
        number = entry.sequence_number
        self._positions[index] = number if self._is_backward else number + 1
        self.searched += 1

    def _settle(self) -> None:
        """Keep the messages that were read but not passed, and note the fragments that have no
        more.
        """
        for index, (entries, is_end) in enumerate(self._pages):
            rest = [entry for entry in entries if self._is_ahead(index, entry)]
            self._held[index] = (rest, is_end) if rest else None
            if is_end and not rest:
                self._positions[index] = _OVER
        self._pages = []

    def _is_ahead(self, index: int, entry: Entry) -> bool:
        number, position = entry.sequence_number, self._positions[index]
        return number < position if self._is_backward else number >= position

    def _in_order(self, pages: Sequence[tuple[list[Entry], bool]]) -> list[Entry]:
        """The messages that certainly come before all that were not read yet."""
        if not self._is_backward:
            ends = [max(map(age, found)) for found, is_end in pages if found and not is_end]
            end = min(ends, default=None)
            sure = [_while(found, lambda one: end is None or age(one) <= end) for found, _ in pages]
            return list(heapq.merge(*sure, key=age))
        ends = [min(map(age, found)) for found, is_end in pages if found and not is_end]
        start = max(ends, default=None)
        sure = [_while(found, lambda one: start is None or age(one) >= start) for found, _ in pages]
        return list(heapq.merge(*sure, key=age, reverse=True))

    async def _page(self, index: int) -> tuple[list[Entry], bool]:
        """The next messages of one fragment, and whether no more follow."""
        position, held = self._positions[index], self._held[index]
        if position == _OVER:
            return [], True
        if held is not None:
            return held
        runner = self._runners[index]
        if self._is_backward:
            return await self._page_before(runner, position)
        page = await read_page(runner, self._line, position, PEEK_COUNT_MAX, self._session_id)
        if isinstance(page, Unavailable):
            return self._without(runner)
        return page.entries, page.is_end or not page.entries

    async def _page_before(self, runner: OpenFragment, end: int) -> tuple[list[Entry], bool]:
        """The messages before a number, newest first; the range that is read grows as needed."""
        first = sequence_number(runner.fragment_id.number, 1)
        width = _WIDTH
        while True:
            start = max(first, end - width)
            found = await self._between(runner, start, end)
            if found is None:
                return self._without(runner)
            if len(found) > _FOUND_MAX and width > 1:
                width = max(1, width // 8)
                continue
            if found or start <= first:
                return found[::-1], start <= first
            width = min(width * 16, _WIDTH_MAX)

    async def _between(self, runner: OpenFragment, start: int, end: int) -> list[Entry] | None:
        """The messages from `start` up to `end`, perhaps not all if they are too many."""
        found: list[Entry] = []
        while start < end and len(found) <= _FOUND_MAX:
            page = await read_page(runner, self._line, start, PEEK_COUNT_MAX, self._session_id)
            if isinstance(page, Unavailable):
                return None
            found += [entry for entry in page.entries if entry.sequence_number < end]
            if page.is_end or not page.entries:
                break
            start = page.entries[-1].sequence_number + 1
        return found

    def _without(self, runner: OpenFragment) -> tuple[list[Entry], bool]:
        number = runner.fragment_id.number
        if number not in self.unavailable:
            self.unavailable.append(number)
        return [], True


async def scan_of(
    places: EntityPlaces,
    place: EntityPlace,
    *,
    fragments: set[int] | None = None,
    is_backward: bool = False,
    session_id: str | None = None,
) -> tuple[Scan, int]:
    """A walk over a line, and the number of messages as far as it is known."""
    entity, router = place.handle.entity, place.handle.router
    statistics = await places.bus.namespace.statistics(entity)
    by_number = {part.number: part for part in statistics.fragments}
    indexes = [
        index
        for index, number in enumerate(router.numbers)
        if fragments is None or number in fragments
    ]
    is_of_session = session_id is not None and place.has_sessions
    if session_id is not None and is_of_session:
        path = router.path_of_key(session_key(session_id))
        indexes = [index for index in indexes if index in path]
    parts = [by_number[router.numbers[index]] for index in indexes]
    total = sum(part.counts[place.line] for part in parts)
    if place.line == MAIN_LINE:
        total += sum(part.deferred_count + part.scheduled_count for part in parts)
    scan = Scan(
        place.handle,
        place.line,
        indexes=indexes,
        is_backward=is_backward,
        session_id=session_id if is_of_session else None,
        lasts=[sequence_number(part.number, part.sent_total) for part in parts],
    )
    return scan, total


async def entry_of(place: EntityPlace, number: int) -> Entry:
    """One message of a line; Refused when there is none of this number."""
    index = place.handle.router.index_of_number(number)
    if index >= 0:
        page = await read_page(place.handle.runners[index], place.line, number, 1)
        if isinstance(page, Unavailable):
            raise page
        if page.entries and page.entries[0].sequence_number == number:
            return page.entries[0]
    raise Refused(MESSAGE_NOT_FOUND, f"Message {number} does not exist here, or was removed.")


def _while(entries: Sequence[Entry], is_sure: Callable[[Entry], bool]) -> list[Entry]:
    return list(takewhile(is_sure, entries))
