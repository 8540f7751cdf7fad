"""The jobs of a cluster: any gateway manages them, and one gateway at a time runs each.

They are rows of the first database. The gateway at which a job begins owns it; when that gateway
ends, another one continues the job from the last state that was stored.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, final

import msgspec

from shardbus.app.jobs.leased_storage import JobLines, LeasedStorage
from shardbus.app.leased.leases import LOOK_S, Leases
from shardbus.app.leased.tenancy import Tenancy
from shardbus.broker.fragment.storage import Worker
from shardbus.broker.operations.transactions import Transactor
from shardbus.core.errors import QUOTA_EXCEEDED, Refused, Unavailable
from shardbus.gateway.http.api.places import EntityPlace, EntityPlaces
from shardbus.gateway.http.jobs.beginning import NewJobs
from shardbus.gateway.http.jobs.job import (
    EXPORT,
    RUNNING,
    RUNNING_MAX,
    STOPPING,
    Job,
    Kept,
    NewJob,
)
from shardbus.gateway.http.jobs.known import KnownJobs, check_ended
from shardbus.gateway.http.jobs.report import put_report
from shardbus.gateway.http.jobs.storing import LeaseLost
from shardbus.gateway.http.jobs.work import JobRun, continued, outcome
from shardbus.gateway.http.moment import format_moment
from shardbus.stores.base.leased import LeasedDocuments, LeasedHead, LeasedRow, LeasedTable

log = logging.getLogger(__name__)

# Intents: what is to happen with a job.
RUN: Final = "run"
STOP: Final = "stop"
NOTHING: Final = "nothing"
# No report yet: the job is as it began.
UNREPORTED: Final = "{}"
# A job begins only while the lines of all jobs have less than this.
ALL_LINES_BYTES_MAX: Final = 4 * 1024 * 1024 * 1024
# How long jobs may take to store their last state when the server ends.
END_S: Final = 3.0


@final
@dataclass(frozen=True, slots=True)
class JobShare:
    """Jobs that belong to a cluster. `worker` makes the calls of tables, `lines_worker` those of
    lines; `owner` is a name that no other process has, or had.
    """

    documents: LeasedDocuments
    worker: Worker
    lines_worker: Worker
    owner: str


@final
@dataclass(frozen=True, slots=True)
class _AtWork:
    """A job that runs here."""

    storage: LeasedStorage
    task: asyncio.Task[None]


@final
class SharedJobs:
    """All jobs in the database; `run` follows their changes. A `known.KeptJobs`."""

    is_complete: Final = True

    def __init__(self, places: EntityPlaces, share: JobShare) -> None:
        self._places = places
        self._new = NewJobs(places)
        self._transactor = Transactor(places.bus.clock)
        self._table = share.documents.jobs
        self._lines = JobLines(share.documents.job_lines, share.lines_worker)
        leases = Leases(share.owner, RUNNING_MAX)
        self._tenancy = Tenancy("job", self._table, share.worker, leases, self, (RUN, STOP))
        self._known = KnownJobs()
        self._heads: dict[str, LeasedHead] = {}
        self._at_work: dict[str, _AtWork] = {}
        # Jobs whose state here may be ahead of what is stored: they are read again.
        self._stale: set[str] = set()
        self._changing = asyncio.Lock()
        self._read_at_s = 0.0
        self._is_serving = False
        self._problem = ""

    async def load(self) -> None:
        """Nothing: whoever asks for jobs reads the table."""

    async def run(self) -> None:
        self._is_serving = True
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._tenancy.fence())
                while True:
                    await self._round()
                    await asyncio.sleep(LOOK_S)
        finally:
            self._is_serving = False
            ending = [each.task for each in self._at_work.values()]
            for task in ending:
                task.cancel()
            if ending:
                await asyncio.wait(ending, timeout=END_S)
            self._tenancy.give_all_up()

    async def all(self, entity: str = "") -> list[Job]:
        await self._follow()
        return self._known.listed(entity)

    async def show(self, entity: str, job_id: str) -> Job:
        await self._follow()
        return self._known.found(entity, job_id)

    async def stop(self, entity: str, job_id: str) -> Job:
        job = await self.show(entity, job_id)
        if job.state == RUNNING:
            if not await self._tenancy.ask(partial(self._table.intend, job_id, STOP, RUN)):
                # It has ended meanwhile.
                return await self.show(entity, job_id)
            if job.state == RUNNING:
                job.state = STOPPING
        return job

    async def remove(self, entity: str, job_id: str) -> None:
        check_ended(await self.show(entity, job_id))
        await self._forget(job_id)

    async def export(self, entity: str, job_id: str, offset: int, most: int) -> tuple[bytes, int]:
        job = await self.show(entity, job_id)
        wanted = min(most, job.export_bytes - offset)
        piece = await self._lines.read(job_id, offset, wanted) if wanted > 0 else b""
        return piece, job.export_bytes

    def destination(self, place: EntityPlace, new: NewJob) -> str:
        return self._new.destination(place, new)

    async def begin(self, place: EntityPlace, new: NewJob, destination: str) -> Job:
        self._new.check(place, new, destination)
        if not self._is_serving:
            raise Unavailable("The server does not run jobs yet: try again.")
        kept = await self._new.made(place, new, destination)
        if new.is_dry_run:
            return kept.job
        await self._follow()
        self._check_room(kept.job)
        for job_id in self._known.superfluous():
            await self._forget(job_id)
        async with self._changing:
            self._check_room(kept.job)
            await self._add(kept)
        self._start(kept, 1)
        return kept.job

    def _check_room(self, job: Job) -> None:
        self._known.check_running()
        if job.action != EXPORT and not job.has_backup:
            return
        lines_bytes = sum(kept.job.export_bytes for kept in self._known.by_id.values())
        if lines_bytes >= ALL_LINES_BYTES_MAX:
            raise Refused(
                QUOTA_EXCEEDED,
                f"The lines of all jobs have {lines_bytes >> 20} MB, and the maximum in a cluster "
                f"is {ALL_LINES_BYTES_MAX >> 20} MB: delete jobs whose lines are not needed.",
            )

    async def _add(self, kept: Kept) -> None:
        name, owner = kept.job.id, self._tenancy.leases.owner
        document, sent_s = msgspec.json.encode(kept).decode(), asyncio.get_running_loop().time()
        try:
            is_new = await self._tenancy.ask(partial(self._table.add, name, document, RUN, owner))
        except Unavailable as failure:
            raise Unavailable(
                f"Whether job {name} begins is unknown; the list of jobs shows it if it does. "
                f"{failure.message}",
                is_unknown=True,
            ) from failure
        if not is_new:
            raise Unavailable(f"Another job {name} began in this moment: try again.")
        self._tenancy.leases.taken(name, 1, sent_s)
        self._heads[name] = LeasedHead(name, RUN, owner, 1, 0)
        self._known.by_id[name] = kept

    async def _forget(self, job_id: str) -> None:
        """Remove a job that has ended."""
        await self._lines.remove(job_id)
        async with self._changing:
            if not await self._tenancy.ask(partial(self._table.remove, job_id)):
                raise Unavailable(f"The gateway of job {job_id} is ending it: try again.")
            self._known.by_id.pop(job_id, None)
            self._heads.pop(job_id, None)

    # Running.

    async def carry_on(self, head: LeasedHead, epoch: int) -> None:
        name, job = head.name, self._known.by_id[head.name].job
        if name not in self._at_work:
            kept = self._known.by_id[name]
            continued(kept)
            self._start(kept, epoch)
        if head.intent == STOP and job.state == RUNNING:
            job.state = STOPPING
        if not await self._at_work[name].storage.beat():
            await self._tenancy.drop(name)

    async def drop(self, name: str) -> None:
        found = self._at_work.pop(name, None)
        self._stale.add(name)
        if found is not None:
            found.storage.is_lost = True
            found.task.cancel()

    def _start(self, kept: Kept, epoch: int) -> None:
        storage = LeasedStorage(self._tenancy, self._lines, kept, epoch)
        task = asyncio.get_running_loop().create_task(self._work(kept, storage))
        self._at_work[kept.job.id] = _AtWork(storage, task)

    async def _work(self, kept: Kept, storage: LeasedStorage) -> None:
        job = kept.job
        made = partial(JobRun, kept, self._places, self._transactor, storage)
        try:
            state, error = await outcome(made, job.id)
            job.state, job.error = state, error
            job.ended_at = format_moment(self._places.bus.clock.now_ms())
            await storage.finish(kept, NOTHING)
        except LeaseLost:
            log.warning("job %s does not belong to this gateway any more", job.id)
        found = self._at_work.get(job.id)
        if found is not None and found.storage is storage:
            del self._at_work[job.id]
            self._stale.add(job.id)
            self._tenancy.leases.lost(job.id)

    # Following the table.

    async def _round(self) -> None:
        try:
            await self._follow()
            self._problem = ""
            known = self._known.by_id.keys() - self._stale
            heads = [head for head in self._heads.values() if head.name in known]
            await self._tenancy.care(heads, lambda: True)
        except Unavailable as error:
            self._tenancy.leases.disconnected()
            if not self._problem:
                log.warning("%s", error)
            self._problem = str(error)

    async def _follow(self) -> None:
        """Know the jobs as they are now. Callers that come while the table is read share the next
        reading.
        """
        loop = asyncio.get_running_loop()
        asked_at_s = loop.time()
        async with self._changing:
            if self._read_at_s > asked_at_s:
                return
            read_at_s, running = loop.time(), frozenset(self._at_work)
            known = {name: head for name, head in self._heads.items() if name not in self._stale}
            heads, news = await self._tenancy.ask(partial(_news, self._table, known, running))
            self._read_at_s = read_at_s
            self._heads = {head.name: head for head in heads}
            for name in self._known.by_id.keys() - self._heads.keys() - self._at_work.keys():
                del self._known.by_id[name]
            for head in heads:
                self._learn(head, news.get(head.name))

    def _learn(self, head: LeasedHead, news: LeasedRow | str | None) -> None:
        name = head.name
        if name in self._at_work:
            return
        try:
            if isinstance(news, LeasedRow):
                self._known.by_id[name] = msgspec.json.decode(news.document, type=Kept)
                self._stale.discard(name)
                news = news.report
            if news not in (None, UNREPORTED) and name in self._known.by_id:
                put_report(self._known.by_id[name], str(news))
        except (ValueError, msgspec.MsgspecError) as error:
            # Perhaps of a later build, whose gateways run it.
            log.error("job %s has an unknown form: %s", name, error)
            self._known.by_id.pop(name, None)
        kept = self._known.by_id.get(name)
        if kept is not None and head.intent == STOP and kept.job.state == RUNNING:
            kept.job.state = STOPPING


def _news(
    table: LeasedTable, known: Mapping[str, LeasedHead], running: Collection[str]
) -> tuple[list[LeasedHead], dict[str, LeasedRow | str | None]]:
    """All heads; the rows of unknown jobs, and the reports of those whose heads have changed.

    Documents may be large, and are read once.
    """
    heads = table.heads()
    news: dict[str, LeasedRow | str | None] = {}
    for head in heads:
        if head.name not in known:
            news[head.name] = table.row(head.name)
        elif head != known[head.name] and head.name not in running:
            news[head.name] = table.report(head.name)
    return heads, news
