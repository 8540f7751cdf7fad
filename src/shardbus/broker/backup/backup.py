"""A backup: one moment of all stores and the catalogue, copied while the bus goes on (ADR 34).

Every protocol of the bus survives that all processes end at one moment, so it is enough that the
copies are of one moment. All stores stand still together for an instant, in which each opens a
snapshot; then they go on, and the snapshots are copied at leisure.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar, final

from shardbus.broker.clock import Clock
from shardbus.core.errors import Unavailable
from shardbus.stores.base.backup import SPARE_BYTES

log = logging.getLogger(__name__)

T = TypeVar("T")

HOLD_MS_MAX: Final = 2_000
"""How long a store stands still at most; each sees to that itself, whoever may have died."""
HOLD_ATTEMPTS: Final = 3
HOLD_AGAIN_MS: Final = 1_000
LOOK_MS: Final = 200
SILENT_MS_MAX: Final = 30_000
"""How long a broker that copies may be out of reach: it may only be busy."""


@final
@dataclass(frozen=True, slots=True)
class BackupOrder:
    """A backup that is asked for. `backup_id` is like no other, `name` is that of a directory."""

    backup_id: str
    name: str


@final
@dataclass(frozen=True, slots=True)
class BackupRoom:
    """What a part will take, and what is free on the disk for it; equal disks are one disk."""

    size_bytes: int
    free_bytes: int
    disk: str


@final
@dataclass(frozen=True, slots=True)
class FileCopy:
    """How far a part has been copied; with a `sha256` it is whole, and on disk, and with an `error`
    it never will be.
    """

    file: str
    where: str
    done_bytes: int
    size_bytes: int
    sha256: str = ""
    fragments: int = 0
    messages: int = 0
    error: str = ""


class BackupPart(Protocol):
    """A store or the catalogue, in this process or another. Every method may raise Unavailable,
    and Refused when there is no such backup, or another one.
    """

    name: str

    async def prepare(self, order: BackupOrder) -> BackupRoom:
        """Begin; there is one backup at a time, and one that is forgotten ends by itself."""
        ...

    async def hold(self, backup_id: str) -> None:
        """Stand still, and keep this moment; for HOLD_MS_MAX, or until told to go on."""
        ...

    async def let_go(self, backup_id: str) -> None:
        """Go on; Unavailable if it had gone on before, so that its moment may not be that of the
        others.
        """
        ...

    async def copy(self, backup_id: str) -> None:
        """Begin to copy the moment that is kept."""
        ...

    async def look(self, backup_id: str) -> FileCopy:
        """How far the copy is."""
        ...

    async def end(self, backup_id: str, *, is_kept: bool) -> None:
        """Forget the backup, and remove what was copied unless it is to be kept."""
        ...


@final
@dataclass(frozen=True, slots=True)
class Cut:
    """The moment of a backup: when it was, and how long stores stood still for it."""

    cut_at_ms: int
    hold_ms: int


@final
class Backup:
    """One backup of these stores and this catalogue: prepare, cut, copy, keep.

    Each may raise Unavailable or Refused; then `drop` it.
    """

    def __init__(
        self,
        order: BackupOrder,
        stores: Sequence[BackupPart],
        catalogue: BackupPart,
        clock: Clock,
    ) -> None:
        self._backup_id = order.backup_id
        self._order = order
        self._stores = list(stores)
        self._catalogue = catalogue
        self._parts = [*stores, catalogue]
        self._clock = clock

    async def prepare(self) -> None:
        """Ask every part, and see that there is room for all of them."""
        rooms = await _all(part.prepare(self._order) for part in self._parts)
        needed: dict[str, int] = {}
        for room in rooms:
            needed[room.disk] = needed.get(room.disk, SPARE_BYTES) + room.size_bytes
        for room in rooms:
            if needed[room.disk] > room.free_bytes:
                raise Unavailable(
                    f"The backup takes up to {needed[room.disk]} bytes, and {room.free_bytes} are "
                    "free where it is to be: free space, or choose another --backup-dir."
                )

    async def cut(self, meanwhile: Callable[[], None]) -> Cut:
        """Keep one moment of all parts; `meanwhile` is called while they stand still."""
        for attempt in range(1, HOLD_ATTEMPTS):
            try:
                return await self._cut(meanwhile)
            except Unavailable as error:
                log.warning("attempt %d to hold the stores: %s", attempt, error.message)
            await asyncio.sleep(HOLD_AGAIN_MS / 1000)
        return await self._cut(meanwhile)

    async def copy(self, watch: Callable[[Sequence[FileCopy]], None]) -> list[FileCopy]:
        """Copy the moment; `watch` hears now and then how far that is."""
        await _all(part.copy(self._backup_id) for part in self._parts)
        while True:
            copies = await _all(self._look(part) for part in self._parts)
            watch(copies)
            if all(copy.sha256 for copy in copies):
                return copies
            await asyncio.sleep(LOOK_MS / 1000)

    async def keep(self) -> None:
        """Let everybody keep what was copied; a copy that nobody asked to keep is removed."""
        await _all(part.end(self._backup_id, is_kept=True) for part in self._parts)

    async def drop(self) -> None:
        """Forget it everywhere; whoever does not hear it forgets it by himself."""
        ended = (part.end(self._backup_id, is_kept=False) for part in self._parts)
        for result in await asyncio.gather(*ended, return_exceptions=True):
            if isinstance(result, Exception):
                log.warning("a part of a backup is not ended: %s", result)

    async def _cut(self, meanwhile: Callable[[], None]) -> Cut:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        try:
            await _all(part.hold(self._backup_id) for part in self._stores)
            # All stores stand still, so whatever moment of this is copied is theirs too.
            await self._catalogue.hold(self._backup_id)
            meanwhile()
            cut_at_ms = self._clock.now_ms()
        finally:
            released = await asyncio.gather(
                *(part.let_go(self._backup_id) for part in self._parts), return_exceptions=True
            )
        # Only who still stood still when all others did has kept the moment of the others.
        _raise_first(released)
        return Cut(cut_at_ms, round((loop.time() - began_s) * 1000))

    async def _look(self, part: BackupPart) -> FileCopy:
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + SILENT_MS_MAX / 1000
        while True:
            try:
                found = await part.look(self._backup_id)
            except Unavailable:
                if loop.time() >= deadline_s:
                    raise
            else:
                if found.error:
                    raise Unavailable(f"{part.name}: {found.error}")
                return found
            await asyncio.sleep(LOOK_MS / 1000)


async def _all(questions: Iterable[Awaitable[T]]) -> list[T]:
    """All answers, or the first failure once all have answered: nobody is left in the middle."""
    results = await asyncio.gather(*questions, return_exceptions=True)
    _raise_first(results)
    return [result for result in results if not isinstance(result, BaseException)]


def _raise_first(results: Sequence[object]) -> None:
    for result in results:
        if isinstance(result, BaseException):
            raise result
