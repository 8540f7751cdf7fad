"""Where each slot is served, as a gateway sees it in the databases."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Sequence
from typing import Final, final

from shardbus.broker.fragment.storage import ThreadWorker
from shardbus.stores.base.sight import Lookout, Sight
from shardbus.stores.base.store import StoreError

log = logging.getLogger(__name__)

LOOK_S: Final = 1.0
# While a slot is out of reach.
LOOK_SOON_S: Final = 0.25
REPORT_S: Final = 5.0


@final
class _Watched:
    """One database, looked at by a thread of its own: one that hangs delays no other."""

    def __init__(self, index: int, lookout: Lookout, loop: asyncio.AbstractEventLoop) -> None:
        self.lookout = lookout
        self.worker = ThreadWorker(f"lookout-{index}", loop)
        self.sight: Sight | None = None
        self.problem = "it has not been looked at yet"
        self.is_looking = False
        # By slot, of those that a member has: its incarnation, and where it listens.
        self.owners: dict[int, tuple[int, str]] = {}


@final
class SlotMap:
    """Follows members and slots; `run` keeps it up to date.

    `on_moved` is called with a slot that another process owns than before; `is_urgent` says whether
    something is out of reach, so that it is worth looking often; `on_version` is called when the
    namespace has another version.
    """

    def __init__(self, lookouts: Sequence[Lookout], *, loop: asyncio.AbstractEventLoop) -> None:
        self.is_urgent: Callable[[], bool] = _never
        self.on_version: Callable[[], None] = _nothing
        self.on_moved: Callable[[int], None] = _ignored_slot
        self.version = 0
        self._loop = loop
        self._watched = [_Watched(index, each, loop) for index, each in enumerate(lookouts)]
        self._changed = asyncio.Event()

    @property
    def sights(self) -> list[Sight | None]:
        return [watched.sight for watched in self._watched]

    @property
    def problems(self) -> list[str]:
        """Why each database cannot be seen; empty for one that can."""
        return [watched.problem for watched in self._watched]

    def address_of(self, slot: int) -> str:
        """Where the owner of a slot listens; empty if it has none that lives."""
        return self._watched[slot % len(self._watched)].owners.get(slot, (0, ""))[1]

    async def found(self, slot: int, wait_s: float) -> str:
        """As `address_of`, when somebody has it; OSError if nobody has it in that time."""
        until_s = self._loop.time() + wait_s
        while not (address := self.address_of(slot)):
            left_s = until_s - self._loop.time()
            if left_s <= 0:
                raise OSError(f"no broker serves slot {slot}")
            self._changed.clear()
            try:
                async with asyncio.timeout(min(left_s, LOOK_S)):
                    await self._changed.wait()
            except TimeoutError:
                continue
        return address

    async def run(self, name: str, about: str) -> None:
        """Look, and report that this gateway is there, until cancelled; without `about` it is no
        gateway.
        """
        reported_s = -REPORT_S
        try:
            while True:
                for watched in self._watched:
                    self._look(watched)
                if about and self._loop.time() - reported_s >= REPORT_S:
                    reported_s = self._loop.time()
                    self._report(name, about)
                await asyncio.sleep(LOOK_SOON_S if self.is_urgent() else LOOK_S)
        finally:
            for watched in self._watched:
                watched.worker.submit(watched.lookout.close, _ignored)
            await asyncio.to_thread(self._end)

    def _end(self) -> None:
        for watched in self._watched:
            watched.worker.close()

    def _look(self, watched: _Watched) -> None:
        if watched.is_looking:
            return
        watched.is_looking = True

        def looked(sight: Sight | StoreError) -> None:
            watched.is_looking = False
            if isinstance(sight, StoreError):
                if not watched.problem:
                    log.warning("%s", sight)
                watched.problem = str(sight)
                return
            watched.problem = ""
            watched.sight = sight
            self._note(watched, sight)

        watched.worker.submit(watched.lookout.look, looked)

    def _note(self, watched: _Watched, sight: Sight) -> None:
        where = {each.incarnation: _address_in(each.about) for each in sight.members}
        found = {
            each.slot: (each.incarnation, where[each.incarnation])
            for each in sight.slots
            if each.incarnation in where
        }
        before, watched.owners = watched.owners, found
        if found != before:
            self._changed.set()
            for slot, owner in before.items():
                if slot in found and found[slot][0] != owner[0]:
                    self.on_moved(slot)
        if watched is self._watched[0] and sight.version != self.version:
            self.version = sight.version
            self.on_version()

    def _report(self, name: str, about: str) -> None:
        watched = self._watched[0]
        watched.worker.submit(lambda: watched.lookout.report(name, about), _ignored)


def _address_in(about: str) -> str:
    try:
        document: object = json.loads(about)
    except ValueError:
        return ""
    found = document.get("address") if isinstance(document, dict) else None
    return found if isinstance(found, str) else ""


def _ignored(_: StoreError | None) -> None:
    """What could not be said now is said the next time."""


def _nothing() -> None:
    """Nobody wants to know."""


def _ignored_slot(_: int) -> None:
    """Nobody wants to know."""


def _never() -> bool:
    return False
