"""Where a run of a job stores its state in a cluster: in the row and the lines of the job."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar, final

from shardbus.app.leased.leases import LOOK_S
from shardbus.app.leased.tenancy import Tenancy
from shardbus.broker.fragment.asking import asked
from shardbus.broker.fragment.storage import Worker
from shardbus.core.errors import NOT_ALLOWED, Refused, Unavailable
from shardbus.gateway.http.jobs.job import EXPORT, Job, Kept
from shardbus.gateway.http.jobs.report import report_of
from shardbus.gateway.http.jobs.storing import LeaseLost
from shardbus.stores.base.leased import LeasedLines
from shardbus.stores.base.store import StoreError

T = TypeVar("T")

# What is stored by one statement.
PIECE_BYTES_MAX: Final = 4 * 1024 * 1024
# The lines of one job.
LINES_BYTES_MAX: Final = 1024 * 1024 * 1024


@final
class JobLines:
    """The lines of jobs, by a thread of their own: the beats of jobs do not wait for it."""

    def __init__(self, lines: LeasedLines, worker: Worker) -> None:
        self._lines = lines
        self._worker = worker

    async def ask(self, work: Callable[[LeasedLines], T]) -> T:
        try:
            return await asked(self._worker, partial(work, self._lines))
        except StoreError as error:
            raise Unavailable(
                f"The lines of jobs cannot be read or written in the database: {error}"
            ) from error

    async def read(self, job_id: str, offset: int, most: int) -> bytes:
        return await self.ask(lambda lines: lines.read(job_id, offset, most))

    async def remove(self, job_id: str) -> None:
        """Remove all lines of a job, in bounded steps."""
        while await self.ask(lambda lines: lines.remove_some(job_id)):
            pass


@final
class LeasedStorage:
    """Of a job that this process owns. A `storing.JobStorage`.

    `report` is the last state that was saved: every beat repeats it, so a save that failed is made
    up for.
    """

    def __init__(self, tenancy: Tenancy, lines: JobLines, kept: Kept, epoch: int) -> None:
        self.report = report_of(kept)
        self.epoch = epoch
        self.is_lost = False
        self._tenancy = tenancy
        self._lines = lines
        self._name = kept.job.id
        self._owner = tenancy.leases.owner
        self._has_written = False
        self._is_placed = False
        """Whether nothing is stored after `export_bytes`."""

    async def save(self, kept: Kept) -> None:
        self.report = report_of(kept)
        if not await self.beat():
            raise LeaseLost

    async def beat(self) -> bool:
        """Whether the job is still ours; if the database does not say, it is for now."""
        if self.is_lost:
            return False
        try:
            return await self._tenancy.beat(self._name, self.epoch, self.report)
        except Unavailable:
            return not self.is_lost

    async def finish(self, kept: Kept, intent: str) -> None:
        """Save the last state and give the job up, however often that must be tried; LeaseLost when
        it has another owner.
        """
        self.report = report_of(kept)
        finish = partial(
            self._tenancy.table.finish, self._name, self._owner, self.epoch, intent, self.report
        )
        while not self.is_lost:
            try:
                if not await self._tenancy.ask(finish):
                    break
            except Unavailable:
                await asyncio.sleep(LOOK_S)
            else:
                return
        raise LeaseLost

    async def write(self, job: Job, lines: bytes) -> None:
        if not self._is_placed:
            await self._place(job)
        if job.export_bytes + len(lines) > LINES_BYTES_MAX:
            raise Refused(
                NOT_ALLOWED,
                f"The lines of a job in a cluster have at most {LINES_BYTES_MAX >> 20} MB, which "
                f"job {job.id} has reached; those before are kept: select fewer messages, and "
                "start another job for the rest.",
            )
        # Until all is stored, a part of it may be.
        self._is_placed = False
        for start in range(0, len(lines), PIECE_BYTES_MAX):
            at, piece = job.export_bytes + start, lines[start : start + PIECE_BYTES_MAX]
            await self._change(partial(_append, self._name, self._owner, self.epoch, at, piece))
        self._is_placed = self._has_written = True
        job.export_bytes += len(lines)

    async def sync(self) -> None:
        """What was written is durable."""

    def close(self) -> None:
        """Nothing is open."""

    async def _place(self, job: Job) -> None:
        """Remove what is stored after the lines that count."""
        if job.action != EXPORT and not self._has_written:
            job.export_bytes = await self._whole_bytes()
        await self._cut(job.export_bytes)
        self._is_placed = True

    async def _whole_bytes(self) -> int:
        """The end of the last complete line."""
        while True:
            last = await self._lines.ask(lambda lines: lines.last(self._name))
            if last is None:
                return 0
            at, piece = last
            end = piece.rfind(b"\n") + 1
            if end:
                return at + end
            await self._cut(at)

    async def _cut(self, at: int) -> None:
        await self._change(partial(_cut, self._name, self._owner, self.epoch, at))

    async def _change(self, change: Callable[[LeasedLines], bool]) -> None:
        if self.is_lost or not await self._lines.ask(change):
            raise LeaseLost


def _append(name: str, owner: str, epoch: int, at: int, piece: bytes, lines: LeasedLines) -> bool:
    return lines.append(name, owner, epoch, at, piece)


def _cut(name: str, owner: str, epoch: int, at: int, lines: LeasedLines) -> bool:
    return lines.cut(name, owner, epoch, at)
