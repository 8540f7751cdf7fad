"""Where each slot is served, as a gateway sees it in the databases."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Sequence
from typing import Final, final

from shardbus.broker.fragment.storage import ThreadWorker
from shardbus.broker.wire.frames import PROTOCOL_VERSION
from shardbus.core.cluster.terms import LEASE_MS
from shardbus.stores.base.sight import Lookout, Sight
from shardbus.stores.base.store import StoreError

log = logging.getLogger(__name__)

LOOK_S: Final = 1.0
# While a slot is unreachable, or the owner of one is silent.
LOOK_SOON_S: Final = 0.25
REPORT_S: Final = 5.0
# A node that is silent for longer is not expected to return unchanged.
SILENT_MS_MAX: Final = 60_000

PROTOCOL: Final = "protocol"
"""The member of the document about a node that has its version of the protocol."""


@final
class _Watched:
    """One database. Each has a separate thread, so that one that hangs does not delay others."""

    def __init__(self, index: int, lookout: Lookout, loop: asyncio.AbstractEventLoop) -> None:
        self.lookout = lookout
        self.worker = ThreadWorker(f"lookout-{index}", loop)
        self.sight: Sight | None = None
        self.problem = "it has not been read yet"
        self.is_looking = False
        # For each slot that a member owns: the member's incarnation and address.
        self.owners: dict[int, tuple[int, str]] = {}
        # For each slot, even while no member owns it: the last owner, and whether that had lost its
        # lease when it was last seen.
        self.last: dict[int, tuple[int, bool]] = {}
        self.has_silent = False


@final
class SlotMap:
    """The owners of all slots; `run` keeps it up to date.

    `on_moved` is called with each slot that has a new owner, and whether the former owner was
    silent. A silent owner with open connections does not know that it lost the slot. `is_urgent`
    returns whether a slot is unreachable, so that the databases should be read more often;
    `on_version` is called when the version of the namespace has changed. `given` and `taken` count
    the slots that changed their owner since this object was created: those of owners with a lease,
    and those of silent owners.
    """

    def __init__(self, lookouts: Sequence[Lookout], *, loop: asyncio.AbstractEventLoop) -> None:
        self.is_urgent: Callable[[], bool] = _never
        self.on_version: Callable[[], None] = _nothing
        self.on_moved: Callable[[int, bool], None] = _ignored_slot
        self.version = 0
        self.given = 0
        self.taken = 0
        self._loop = loop
        self._watched = [_Watched(index, each, loop) for index, each in enumerate(lookouts)]
        self._changed = asyncio.Event()

    @property
    def sights(self) -> list[Sight | None]:
        return [watched.sight for watched in self._watched]

    @property
    def problems(self) -> list[str]:
        """For each database, the reason why it cannot be read; empty if it can."""
        return [watched.problem for watched in self._watched]

    def older_nodes(self, since: int = PROTOCOL_VERSION) -> list[str]:
        """The brokers and gateways that do not speak this version of the protocol, sorted.

        One that has been silent for a minute does not count.
        """
        found: dict[str, str] = {}
        for sight in self.sights:
            if sight is not None:
                silences = [(each.name, each.about, each.beat_age_ms) for each in sight.members]
                silences += [(each.name, each.about, each.age_ms) for each in sight.gateways]
                found |= {name: about for name, about, ms in silences if ms < SILENT_MS_MAX}
        return sorted(name for name, about in found.items() if _protocol_in(about) < since)

    def address_of(self, slot: int) -> str:
        """The address of the owner of a slot; empty if no member owns it."""
        return self._watched[slot % len(self._watched)].owners.get(slot, (0, ""))[1]

    async def found(self, slot: int, wait_s: float) -> str:
        """Wait until a member owns the slot, and return its address; OSError after `wait_s`."""
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
        """Read the databases until cancelled, and report that this gateway exists.

        A process without `about` is not a gateway, and reports nothing.
        """
        reported_s = -REPORT_S
        try:
            while True:
                for watched in self._watched:
                    self._look(watched)
                if about and self._loop.time() - reported_s >= REPORT_S:
                    reported_s = self._loop.time()
                    self._report(name, about)
                await asyncio.sleep(LOOK_SOON_S if self._is_moving() else LOOK_S)
        finally:
            for watched in self._watched:
                watched.worker.submit(watched.lookout.close, _ignored)
            await asyncio.to_thread(self._end)

    def _end(self) -> None:
        for watched in self._watched:
            watched.worker.close()

    def _is_moving(self) -> bool:
        """Whether a slot may have another owner soon."""
        return self.is_urgent() or any(watched.has_silent for watched in self._watched)

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
        silent = {each.incarnation for each in sight.members if each.beat_age_ms > LEASE_MS}
        watched.has_silent = bool(silent)
        if found != before:
            self._changed.set()
        for slot, (incarnation, _) in found.items():
            last, was_silent = watched.last.get(slot, (incarnation, False))
            watched.last[slot] = (incarnation, incarnation in silent)
            if incarnation != last:
                self.taken += was_silent
                self.given += not was_silent
                self.on_moved(slot, was_silent)
        if watched is self._watched[0] and sight.version != self.version:
            self.version = sight.version
            self.on_version()

    def _report(self, name: str, about: str) -> None:
        watched = self._watched[0]
        watched.worker.submit(lambda: watched.lookout.report(name, about), _ignored)


def _address_in(about: str) -> str:
    found = _member(about, "address")
    return found if isinstance(found, str) else ""


def _protocol_in(about: str) -> int:
    """0 if the row has no such value, as in a row of an earlier release."""
    found = _member(about, PROTOCOL)
    return found if isinstance(found, int) else 0


def _member(about: str, name: str) -> object:
    try:
        document: object = json.loads(about)
    except ValueError:
        return None
    return document.get(name) if isinstance(document, dict) else None


def _ignored(_: StoreError | None) -> None:
    """A report that failed is repeated with the next one."""


def _nothing() -> None:
    """Ignore the result."""


def _ignored_slot(_: int, was_silent: bool) -> None:
    """Nobody wants to know."""


def _never() -> bool:
    return False
