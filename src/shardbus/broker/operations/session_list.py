"""The ids of an entity's sessions, page by page over its fragments."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, Protocol, final

from shardbus.broker.operations.browse import Browsable
from shardbus.core.errors import Unavailable
from shardbus.core.sessions.key import session_key

PAGE_COUNT_MAX: Final = 1_000
# Ends of pages that a client may continue; the oldest is forgotten first.
PLACES_MAX: Final = 64
# Sessions of former fragments that are not listed again for present ones.
KNOWN_MAX: Final = 10_000


class Maps(Protocol):
    """How many of the fragments, the first ones, are of former maps."""

    @property
    def former_count(self) -> int: ...


@final
class SessionList:
    """Lists fragments one after the other, each in the order of its store.

    Clients only say how many ids they have seen, and a fragment cannot tell how many it has without
    counting. So the list remembers where its pages ended; it counts only for a client that
    continues a forgotten page.

    A session may be in fragments of former maps too. Those come first, and their ids are remembered
    with the place, so that it is listed once.
    """

    def __init__(self, fragments: Sequence[Browsable], maps: Maps) -> None:
        self._fragments = fragments
        self._maps = maps
        # (updated after, seen) -> (fragment, seen of that fragment, keys seen in former ones)
        self._places: dict[tuple[int, int], tuple[int, int, set[str]]] = {}

    async def page(self, *, updated_after_ms: int, skip: int, count_max: int) -> list[str]:
        """Ids after the first `skip`; an empty page means that there are no more.

        Unavailable when a fragment cannot be read, because an incomplete list would look complete.
        """
        count = min(count_max, PAGE_COUNT_MAX)
        place = self._places.get((updated_after_ms, skip)) if skip else None
        if place is None:
            index, seen = await self._place(updated_after_ms, skip) if skip else (0, 0)
            place = (index, seen, set())
        index, seen, known = place
        known = set(known)
        found: list[str] = []
        while index < len(self._fragments) and len(found) < count:
            wanted = count - len(found)
            ids = await self._read(index, updated_after_ms, seen, wanted)
            found += [each for each in ids if session_key(each) not in known]
            if index < self._maps.former_count and len(known) < KNOWN_MAX:
                known.update(session_key(each) for each in ids)
            index, seen = (index, seen + wanted) if len(ids) == wanted else (index + 1, 0)
        if len(found) == count:
            # A shorter page is the last one: nobody continues it, and more ids may come after it.
            self._remember((updated_after_ms, skip + len(found)), (index, seen, known))
        return found

    async def _place(self, updated_after_ms: int, skip: int) -> tuple[int, int]:
        """Find the place of the id after the first `skip` by counting."""
        left = skip
        for index in range(len(self._fragments)):
            if left == 0 or await self._read(index, updated_after_ms, left, 1):
                return index, left
            left -= await self._size(index, updated_after_ms, left)
        return len(self._fragments), 0

    def _remember(self, key: tuple[int, int], place: tuple[int, int, set[str]]) -> None:
        self._places.pop(key, None)
        self._places[key] = place
        if len(self._places) > PLACES_MAX:
            del self._places[next(iter(self._places))]

    async def _size(self, index: int, updated_after_ms: int, at_most: int) -> int:
        """How many ids a fragment has, at most `at_most`, found by bisection."""
        low, high = 0, at_most
        while low < high:
            middle = (low + high) // 2
            if await self._read(index, updated_after_ms, middle, 1):
                low = middle + 1
            else:
                high = middle
        return low

    async def _read(self, index: int, updated_after_ms: int, skip: int, count: int) -> list[str]:
        future: asyncio.Future[list[str] | Unavailable] = asyncio.get_running_loop().create_future()

        def then(ids: list[str] | Unavailable) -> None:
            if not future.done():
                future.set_result(ids)

        self._fragments[index].list_sessions(
            updated_after_ms=updated_after_ms, skip=skip, count_max=count, then=then
        )
        ids = await future
        if isinstance(ids, Unavailable):
            raise ids
        return ids
