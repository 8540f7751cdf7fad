"""All jobs of a server: a bounded number of them runs, and ended ones are kept for a while."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Final, final

from shardbus.broker.operations.transactions import Transactor
from shardbus.core.errors import Unavailable
from shardbus.gateway.http.api.places import EntityPlace, EntityPlaces
from shardbus.gateway.http.jobs.beginning import NewJobs
from shardbus.gateway.http.jobs.job import ENDED, RUNNING, STOPPING, Aside, Job, Kept, NewJob, Shelf
from shardbus.gateway.http.jobs.known import KnownJobs, check_ended
from shardbus.gateway.http.jobs.storing import FileStorage
from shardbus.gateway.http.jobs.work import JobRun, continued, outcome
from shardbus.gateway.http.moment import format_moment

log = logging.getLogger(__name__)

_ELSEWHERE: Final = (
    " at this gateway. Only the gateway that started a job knows it, and continues it after a "
    "restart: ask that gateway"
)


@final
class Jobs:
    """Jobs of this process alone, on a shelf. A `known.KeptJobs`."""

    def __init__(
        self,
        places: EntityPlaces,
        shelf: Shelf,
        aside: Aside = asyncio.to_thread,
        *,
        is_complete: bool = True,
    ) -> None:
        """`is_complete`: whether this is the only gateway; others would have their own jobs."""
        self.is_complete = is_complete
        self._places = places
        self._new = NewJobs(places)
        self._shelf = shelf
        self._aside = aside
        self._transactor = Transactor(places.bus.clock)
        self._known = KnownJobs()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._is_serving = False
        self._starting = 0

    async def load(self) -> None:
        for kept in await self._aside(self._shelf.load):
            self._known.by_id[kept.job.id] = kept

    async def run(self) -> None:
        for kept in self._known.by_id.values():
            if kept.job.state not in ENDED:
                continued(kept)
                self._start(kept)
        self._is_serving = True
        try:
            await asyncio.Event().wait()
        finally:
            self._is_serving = False
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def all(self, entity: str = "") -> list[Job]:
        return self._known.listed(entity)

    async def show(self, entity: str, job_id: str) -> Job:
        return self._known.found(entity, job_id, "" if self.is_complete else _ELSEWHERE)

    async def stop(self, entity: str, job_id: str) -> Job:
        job = await self.show(entity, job_id)
        if job.state == RUNNING:
            job.state = STOPPING
        return job

    async def remove(self, entity: str, job_id: str) -> None:
        check_ended(await self.show(entity, job_id))
        del self._known.by_id[job_id]
        await self._aside(partial(self._shelf.remove, job_id))

    async def export(self, entity: str, job_id: str, offset: int, most: int) -> tuple[bytes, int]:
        job = await self.show(entity, job_id)

        def read() -> bytes:
            try:
                with self._shelf.export(job_id).open("rb") as file:
                    file.seek(offset)
                    return file.read(min(most, max(0, job.export_bytes - offset)))
            except FileNotFoundError:
                return b""

        return await self._aside(read), job.export_bytes

    def destination(self, place: EntityPlace, new: NewJob) -> str:
        return self._new.destination(place, new)

    async def begin(self, place: EntityPlace, new: NewJob, destination: str) -> Job:
        self._new.check(place, new, destination)
        if not self._is_serving:
            raise Unavailable("The server does not run jobs yet: try again.")
        if new.is_dry_run:
            return (await self._new.made(place, new, destination)).job
        self._known.check_running(self._starting)
        self._starting += 1
        try:
            kept = await self._new.made(place, new, destination)
            for job_id in self._known.superfluous():
                # Others make room, too, while files are removed.
                self._known.by_id.pop(job_id, None)
                await self._aside(partial(self._shelf.remove, job_id))
            await self._aside(partial(self._shelf.put, kept))
            self._known.by_id[kept.job.id] = kept
        finally:
            self._starting -= 1
        self._start(kept)
        return kept.job

    def _start(self, kept: Kept) -> None:
        task = asyncio.get_running_loop().create_task(self._work(kept))
        self._tasks[kept.job.id] = task
        task.add_done_callback(lambda _: self._tasks.pop(kept.job.id, None))

    async def _work(self, kept: Kept) -> None:
        job, storage = kept.job, FileStorage(self._shelf, self._aside)
        made = partial(JobRun, kept, self._places, self._transactor, storage)
        # Cancelled when the server ends: the next start continues.
        job.state, job.error = await outcome(made, job.id)
        job.ended_at = format_moment(self._places.bus.clock.now_ms())
        try:
            await self._aside(partial(self._shelf.put, kept))
        except OSError as error:
            log.error("the end of job %s cannot be kept: %s", job.id, error)
