"""The part of a store or the catalogue in a backup, in the process that writes it."""

from __future__ import annotations

import asyncio
import logging
import re
import shutil
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol, TypeVar, final

from shardbus.broker.backup.backup import HOLD_MS_MAX, BackupOrder, BackupRoom, FileCopy
from shardbus.broker.fragment.asking import asked
from shardbus.broker.fragment.storage import Worker
from shardbus.core.errors import ALREADY_EXISTS, INVALID_ARGUMENT, NOT_FOUND, Refused, Unavailable
from shardbus.stores.base.backup import Copied, Snapshot, copy_name
from shardbus.stores.base.store import StoreError

log = logging.getLogger(__name__)

T = TypeVar("T")

FORSAKEN_MS: Final = 60_000
"""A backup that nobody asks about for this long is dropped: the process that wanted it has died."""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)

Kept = Callable[[Snapshot | StoreError], None]


def checked_name(name: str) -> str:
    """The name of a backup, which is that of a directory; Refused for a name that leads
    elsewhere.
    """
    if not _NAME.fullmatch(name):
        raise Refused(
            INVALID_ARGUMENT,
            "The name of a backup must have up to 100 letters, digits, dots, hyphens and "
            "underscores, and must begin with a letter or a digit.",
        )
    return name


class Still(Protocol):
    """What can be held, and its snapshot."""

    def size_bytes(self) -> int:
        """Approximately how much there is to copy; blocking."""
        ...

    def hold(self, then: Kept) -> None:
        """Stop writing, and call `then` with the snapshot."""
        ...

    def let_go(self) -> None:
        """Continue, if it is held."""
        ...


@final
class _Run:
    """One backup and the progress of this part."""

    def __init__(self, order: BackupOrder, target: Path, worker: Worker) -> None:
        self.order = order
        self.target = target
        self.worker = worker
        self.is_held = False
        self.is_over = False
        self.deadline: asyncio.TimerHandle | None = None
        self.waiting: asyncio.Future[Snapshot | StoreError] | None = None
        self.snapshot: Snapshot | None = None
        self.copying: asyncio.Future[None] | None = None
        self.done_bytes = 0
        self.size_bytes = 0
        self.result: Copied | None = None
        self.error = ""

    def watch(self, done_bytes: int) -> None:
        """Called by the thread that copies."""
        if self.is_over:
            raise StoreError("the backup was given up")
        self.done_bytes = done_bytes

    def drop_snapshot(self) -> None:
        if self.snapshot is not None:
            self.snapshot.close()
            self.snapshot = None


@final
class LocalPart:
    """A `backup.BackupPart` that writes `file` below `directory`/NAME.

    `new_worker` makes the worker that copies, one for each backup.
    """

    def __init__(
        self,
        name: str,
        still: Still,
        directory: Path,
        *,
        loop: asyncio.AbstractEventLoop,
        new_worker: Callable[[], Worker],
    ) -> None:
        self.name = name
        self._file = copy_name(name)
        self._still = still
        self._directory = directory
        self._loop = loop
        self._new_worker = new_worker
        self._run: _Run | None = None
        self._forsaken: asyncio.TimerHandle | None = None
        self._ending: asyncio.Task[None] | None = None

    async def prepare(self, order: BackupOrder) -> BackupRoom:
        checked_name(order.name)
        if self._run is not None:
            raise Refused(
                ALREADY_EXISTS,
                f"The backup {self._run.order.name} is running: wait until it is done.",
            )
        target = self._directory / order.name / self._file
        run = _Run(order, target, self._new_worker())
        self._run = run
        self._touch(run)
        try:
            return await self._call(run, lambda: self._room(target))
        except BaseException:
            await self._end(run, is_kept=False)
            raise

    async def hold(self, backup_id: str) -> None:
        run = self._running(backup_id)
        if run.is_held or run.copying is not None:
            raise Unavailable(f"{self.name} is already held or being copied.")
        run.drop_snapshot()
        waiting: asyncio.Future[Snapshot | StoreError] = self._loop.create_future()
        run.waiting, run.is_held = waiting, True
        run.deadline = self._loop.call_later(HOLD_MS_MAX / 1000, self._expire, run)

        def then(result: Snapshot | StoreError) -> None:
            if not waiting.done():
                waiting.set_result(result)
            elif not isinstance(result, StoreError):
                # Too late: this snapshot is no longer of the same moment as the others.
                result.close()

        self._still.hold(then)
        result = await waiting
        if isinstance(result, StoreError):
            raise Unavailable(f"{self.name}: {result}")
        if not run.is_held:
            result.close()
            raise self._too_long()
        run.snapshot = result

    async def let_go(self, backup_id: str) -> None:
        run = self._running(backup_id)
        if not run.is_held:
            raise self._too_long()
        self._go_on(run)

    async def copy(self, backup_id: str) -> None:
        run = self._running(backup_id)
        snapshot = run.snapshot
        if snapshot is None or run.copying is not None:
            raise Unavailable(f"{self.name} has no snapshot to copy.")
        copying: asyncio.Future[None] = self._loop.create_future()
        run.copying = copying
        run.size_bytes = snapshot.size_bytes()

        def done(result: Copied | StoreError) -> None:
            run.drop_snapshot()
            if isinstance(result, StoreError):
                run.error = str(result)
            else:
                run.result = result
            copying.set_result(None)

        run.worker.submit(lambda: snapshot.copy(run.target, run.watch), done)

    async def look(self, backup_id: str) -> FileCopy:
        run = self._running(backup_id)
        where = f"{socket.gethostname()}:{run.target.absolute()}"
        copied = run.result
        if copied is None:
            return FileCopy(self._file, where, run.done_bytes, run.size_bytes, error=run.error)
        return FileCopy(
            self._file,
            where,
            copied.size_bytes,
            copied.size_bytes,
            copied.sha256,
            copied.fragments,
            copied.messages,
        )

    async def end(self, backup_id: str, *, is_kept: bool) -> None:
        run = self._run
        if run is not None and run.order.backup_id == backup_id:
            await self._end(run, is_kept=is_kept)

    async def close(self) -> None:
        """End the running backup, because the process ends."""
        if self._run is not None:
            await self._end(self._run, is_kept=False)

    def _room(self, target: Path) -> BackupRoom:
        try:
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if target.exists():
                raise StoreError(f"{target} already exists; give the backup another name")
            free_bytes = shutil.disk_usage(target.parent).free
            disk = f"{socket.gethostname()}:{target.parent.stat().st_dev}"
            return BackupRoom(self._still.size_bytes(), free_bytes, disk)
        except OSError as error:
            raise StoreError(f"{target.parent} cannot be used: {error.strerror}") from error

    def _running(self, backup_id: str) -> _Run:
        run = self._run
        if run is None or run.order.backup_id != backup_id:
            raise Refused(NOT_FOUND, f"{self.name} does not know this backup (any more).")
        self._touch(run)
        return run

    def _touch(self, run: _Run) -> None:
        if self._forsaken is not None:
            self._forsaken.cancel()
        self._forsaken = self._loop.call_later(FORSAKEN_MS / 1000, self._forsake, run)

    def _forsake(self, run: _Run) -> None:
        log.warning(
            "%s: the backup %s is dropped, because nobody asks for it any more",
            self.name,
            run.order.name,
        )
        # Kept here, because the loop has only a weak reference.
        self._ending = self._loop.create_task(self._end(run, is_kept=False))

    def _expire(self, run: _Run) -> None:
        """The other parts were not held in time."""
        log.warning("%s was held for %d ms and continues", self.name, HOLD_MS_MAX)
        waiting = run.waiting
        self._go_on(run)
        run.drop_snapshot()
        if waiting is not None and not waiting.done():
            waiting.set_result(StoreError(f"it could not be held within {HOLD_MS_MAX} ms"))

    def _go_on(self, run: _Run) -> None:
        if run.deadline is not None:
            run.deadline.cancel()
            run.deadline = None
        run.is_held = False
        self._still.let_go()

    async def _end(self, run: _Run, *, is_kept: bool) -> None:
        if run.is_over:
            return
        run.is_over = True
        if self._forsaken is not None:
            self._forsaken.cancel()
        if run.is_held:
            self._go_on(run)
        if run.copying is not None:
            await run.copying
        run.drop_snapshot()
        if not is_kept:
            is_ours = run.result is not None
            with suppress(Unavailable):
                await self._call(run, lambda: _remove(run.target, is_ours=is_ours))
        run.worker.close()
        if self._run is run:
            self._run = None

    async def _call(self, run: _Run, job: Callable[[], T]) -> T:
        try:
            return await asked(run.worker, job)
        except StoreError as error:
            raise Unavailable(f"{self.name}: {error}") from error

    def _too_long(self) -> Unavailable:
        return Unavailable(
            f"{self.name} had to continue after {HOLD_MS_MAX} ms, before all others were held."
        )


def _remove(target: Path, *, is_ours: bool) -> None:
    with suppress(OSError):
        if is_ours:
            target.unlink(missing_ok=True)
    # Where every broker has its own machine, no other process would.
    with suppress(OSError):
        target.parent.rmdir()
