"""A backup: one moment of all stores and the catalogue, copied while the bus runs (ADR 34).

Every protocol of the bus survives if all processes end at one moment, so it is enough that the
copies are of one moment. All stores are held together for an instant, in which each opens a
snapshot; then they continue, and the snapshots are copied.
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
"""How long a store is held at most; each store ensures that itself, whoever may have died."""
HOLD_ATTEMPTS: Final = 3
HOLD_AGAIN_MS: Final = 1_000
LOOK_MS: Final = 200
SILENT_MS_MAX: Final = 30_000
"""How long a broker that copies may be unreachable: it may only be busy."""


@final
@dataclass(frozen=True, slots=True)
class BackupOrder:
    """A requested backup. `backup_id` is unique, `name` is that of a directory."""

    backup_id: str
    name: str


@final
@dataclass(frozen=True, slots=True)
class BackupRoom:
    """What a part will need, and what is free on its disk; equal disk ids are one disk."""

    size_bytes: int
    free_bytes: int
    disk: str


@final
@dataclass(frozen=True, slots=True)
class FileCopy:
    """The progress of a part's copy. With a `sha256` it is complete and durable; with an `error` it
    failed.
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
    """A store or the catalogue, in this process or another. Every method may raise Unavailable, and
    Refused when there is no such backup, or another one is running.
    """

    name: str

    async def prepare(self, order: BackupOrder) -> BackupRoom:
        """Begin. There is one backup at a time, and one that nobody asks about ends by itself."""
        ...

    async def hold(self, backup_id: str) -> None:
        """Stop writing and take a snapshot; until `let_go`, for at most HOLD_MS_MAX."""
        ...

    async def let_go(self, backup_id: str) -> None:
        """Continue writing. Unavailable if it had already continued, so that its moment may not be
        that of the others.
        """
        ...

    async def copy(self, backup_id: str) -> None:
        """Begin to copy the snapshot."""
        ...

    async def look(self, backup_id: str) -> FileCopy:
        """The progress of the copy."""
        ...

    async def end(self, backup_id: str, *, is_kept: bool) -> None:
        """Forget the backup, and remove the copy unless it is kept."""
        ...


@final
@dataclass(frozen=True, slots=True)
class Cut:
    """The moment of a backup, and how long the stores were held for it."""

    cut_at_ms: int
    hold_ms: int


@final
class Backup:
    """One backup of these stores and this catalogue: prepare, cut, copy, keep.

    Each step may raise Unavailable or Refused; then call `drop`.
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
        """Prepare every part, and check that there is room for all of them."""
        rooms = await _all(part.prepare(self._order) for part in self._parts)
        needed: dict[str, int] = {}
        for room in rooms:
            needed[room.disk] = needed.get(room.disk, SPARE_BYTES) + room.size_bytes
        for room in rooms:
            if needed[room.disk] > room.free_bytes:
                raise Unavailable(
                    f"The backup needs up to {needed[room.disk]} bytes, but only "
                    f"{room.free_bytes} are free on its disk: free space, or choose another "
                    "--backup-dir."
                )

    async def cut(self, meanwhile: Callable[[], None]) -> Cut:
        """Take a snapshot of all parts at one moment; `meanwhile` is called while they are held."""
        for attempt in range(1, HOLD_ATTEMPTS):
            try:
                return await self._cut(meanwhile)
            except Unavailable as error:
                log.warning("attempt %d to hold the stores: %s", attempt, error.message)
            await asyncio.sleep(HOLD_AGAIN_MS / 1000)
        return await self._cut(meanwhile)

    async def copy(self, watch: Callable[[Sequence[FileCopy]], None]) -> list[FileCopy]:
        """Copy the snapshots; `watch` is called with the progress now and then."""
        await _all(part.copy(self._backup_id) for part in self._parts)
        while True:
            copies = await _all(self._look(part) for part in self._parts)
            watch(copies)
            if all(copy.sha256 for copy in copies):
                return copies
            await asyncio.sleep(LOOK_MS / 1000)

    async def keep(self) -> None:
        """Let all parts keep their copies; a copy that is not kept is removed."""
        await _all(part.end(self._backup_id, is_kept=True) for part in self._parts)

    async def drop(self) -> None:
        """Drop the backup everywhere; a part that cannot be told forgets it by itself."""
        ended = (part.end(self._backup_id, is_kept=False) for part in self._parts)
        for result in await asyncio.gather(*ended, return_exceptions=True):
            if isinstance(result, Exception):
                log.warning("a part of a backup could not be told to end: %s", result)

    async def _cut(self, meanwhile: Callable[[], None]) -> Cut:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        try:
            await _all(part.hold(self._backup_id) for part in self._stores)
            # All stores are held, so whatever moment of the catalogue is copied is theirs too.
            await self._catalogue.hold(self._backup_id)
            meanwhile()
            cut_at_ms = self._clock.now_ms()
        finally:
            released = await asyncio.gather(
                *(part.let_go(self._backup_id) for part in self._parts), return_exceptions=True
            )
        # Only a part that was still held when all others were has the same moment.
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
    """All answers, or the first failure once all have answered, so that no question is left
    open.
    """
    results = await asyncio.gather(*questions, return_exceptions=True)
    _raise_first(results)
    return [result for result in results if not isinstance(result, BaseException)]


def _raise_first(results: Sequence[object]) -> None:
    for result in results:
        if isinstance(result, BaseException):
            raise result
