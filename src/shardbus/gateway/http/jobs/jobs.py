"""All jobs of a server: a bounded number of them runs, and ended ones are kept for a while."""

from __future__ import annotations

import asyncio
import logging
import secrets
from functools import partial
from typing import Final, final

from msgspec import UNSET

from shardbus.broker.bus import EntityHandle
from shardbus.broker.operations.transactions import Transactor
from shardbus.core.errors import NOT_ALLOWED, NOT_FOUND, QUOTA_EXCEEDED, Refused, Unavailable
from shardbus.core.message import MAIN_LINE
from shardbus.core.namespace.address import line_path
from shardbus.core.sequence import sequence_number
from shardbus.gateway.http.api.messages.scan import scan_of
from shardbus.gateway.http.api.messages.values import read_numbers
from shardbus.gateway.http.api.places import EntityPlace, EntityPlaces
from shardbus.gateway.http.api.search.selection import Condition
from shardbus.gateway.http.jobs.job import (
    DELETE,
    DONE,
    ENDED,
    EXPORT,
    FAILED,
    KEPT_MAX,
    MOVE,
    RESUBMIT,
    RUNNING,
    RUNNING_MAX,
    STOPPED,
    STOPPING,
    UNDO,
    Aside,
    Job,
    Kept,
    NewJob,
    Shelf,
    only_numbers,
)
from shardbus.gateway.http.jobs.repairing import check_repair
from shardbus.gateway.http.jobs.resending import check_edit
from shardbus.gateway.http.jobs.work import JobRun, Stopped
from shardbus.gateway.http.moment import format_moment
from shardbus.gateway.http.server.refusal import invalid, shown

log = logging.getLogger(__name__)

_SISTERS_MAX: Final = 5
_INEXACT: Final = (
    "The server ended meanwhile: messages of the second before may be done, but not counted."
)

_ELSEWHERE: Final = (
    " at this gateway. Only the gateway that started a job knows it, and continues it after a "
    "restart: ask that gateway"
)


@final
class Jobs:
    """Starts, continues, stops and lists jobs. Rights have been checked by the caller."""

    def __init__(
        self,
        places: EntityPlaces,
        shelf: Shelf,
        aside: Aside = asyncio.to_thread,
        *,
        is_alone: bool = True,
    ) -> None:
        """`is_alone`: whether this is the only gateway; others would have their own jobs."""
        self.is_alone = is_alone
        self._places = places
        self._shelf = shelf
        self._aside = aside
        self._transactor = Transactor(places.bus.clock)
        self._jobs: dict[str, Kept] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._is_serving = False
        self._starting = 0

    async def load(self) -> None:
        """Load the existing jobs before clients can request them."""
        for kept in await self._aside(self._shelf.load):
            self._jobs[kept.job.id] = kept

    async def run(self) -> None:
        """Continue the jobs that were running, and let jobs run until cancelled."""
        for kept in self._jobs.values():
            if kept.job.state not in ENDED:
                kept.job.restarts += 1
                if not kept.is_exact and _INEXACT not in kept.job.warnings:
                    kept.job.warnings.append(_INEXACT)
                self._start(kept)
        self._is_serving = True
        try:
            await asyncio.Event().wait()
        finally:
            self._is_serving = False
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def all(self, entity: str = "") -> list[Job]:
        """Jobs of all entities, or of one with all its lines, newest first."""
        key = entity.lower()
        found = [
            kept.job
            for kept in self._jobs.values()
            if not key or _owner(kept.job.entity) == _owner(key)
        ]
        return sorted(found, key=lambda job: job.id, reverse=True)

    def show(self, entity: str, job_id: str) -> Job:
        kept = self._jobs.get(job_id)
        if kept is None or _owner(kept.job.entity) != _owner(entity.lower()):
            elsewhere = "" if self.is_alone else _ELSEWHERE
            raise Refused(NOT_FOUND, f"There is no job {shown(job_id)}{elsewhere}.")
        return kept.job

    def stop(self, entity: str, job_id: str) -> Job:
        """Stop a job after its present chunk; a job that has ended stays as it is."""
        job = self.show(entity, job_id)
        if job.state == RUNNING:
            job.state = STOPPING
        return job

    async def remove(self, entity: str, job_id: str) -> None:
        job = self.show(entity, job_id)
        if job.state not in ENDED:
            raise Refused(NOT_ALLOWED, f"The job {job_id} is {job.state}: stop it first.")
        del self._jobs[job_id]
        await self._aside(partial(self._shelf.remove, job_id))

    async def export(self, entity: str, job_id: str, offset: int, most: int) -> tuple[bytes, int]:
        """A part of the JSON lines of a job, and their total size."""
        job = self.show(entity, job_id)

        def read() -> bytes:
            try:
                with self._shelf.export(job_id).open("rb") as file:
                    file.seek(offset)
                    return file.read(min(most, max(0, job.export_bytes - offset)))
            except FileNotFoundError:
                return b""

        return await self._aside(read), job.export_bytes

    def destination(self, place: EntityPlace, new: NewJob) -> str:
        """The destination of the messages; empty if there is none. Refused for an invalid
        destination.
        """
        if new.action == RESUBMIT:
            if place.line == MAIN_LINE:
                raise Refused(NOT_ALLOWED, "Only dead letters can be resubmitted; use move.")
            entity = place.handle.entity
            if new.destination is UNSET:
                return entity.topic_name()
            if new.destination.strip("/").lower() != entity.name.lower():
                raise invalid(
                    "The destination of resubmit is the entity of the dead letters, "
                    f"'{entity.name}': use move for another one."
                )
            return entity.name
        if new.action == MOVE:
            if new.destination is UNSET or not new.destination:
                raise invalid("A move needs a destination.")
            return new.destination
        return ""

    async def begin(self, place: EntityPlace, new: NewJob, destination: str) -> Job:
        """Check a job, and start it unless it is a dry run."""
        self._check(place, new, destination)
        if not self._is_serving:
            raise Unavailable("The server does not run jobs yet: try again.")
        if new.is_dry_run:
            return (await self._new(place, new, destination)).job
        running = sum(kept.job.state not in ENDED for kept in self._jobs.values())
        if running + self._starting >= RUNNING_MAX:
            raise Refused(
                QUOTA_EXCEEDED, f"{RUNNING_MAX} jobs are running, the maximum: wait, or stop one."
            )
        self._starting += 1
        try:
            kept = await self._new(place, new, destination)
            await self._make_room()
            await self._aside(partial(self._shelf.put, kept))
            self._jobs[kept.job.id] = kept
        finally:
            self._starting -= 1
        self._start(kept)
        return kept.job

    def _check(self, place: EntityPlace, new: NewJob, destination: str) -> None:
        Condition(new.selection)
        if new.selection.numbers is not UNSET:
            read_numbers(new.selection.numbers)
        if new.edit is not UNSET:
            if new.action in (DELETE, EXPORT, UNDO):
                raise invalid(f"The action {new.action} sends nothing: leave out edit.")
            check_edit(new.edit)
            check_repair(new.edit)
        if new.action not in (MOVE, RESUBMIT) and new.destination is not UNSET:
            raise invalid(f"The action {new.action} has no destination.")
        if new.action in (DELETE, EXPORT) and new.mark is not UNSET:
            raise invalid(f"The action {new.action} has no mark.")
        if new.action == UNDO and (new.mark is UNSET or place.line != MAIN_LINE):
            raise invalid(
                "An undo needs the mark of the resubmitted messages, and the entity where they are "
                "now."
            )
        if place.has_sessions and new.action != EXPORT:
            raise Refused(
                NOT_ALLOWED,
                f"'{place.handle.entity.name}' requires sessions, whose messages only their "
                "holder can remove: use purge, or a job on its dead letters.",
            )
        if destination:
            target = self._places.target(destination)
            is_itself = target.name == place.handle.entity.name
            if is_itself and new.action == MOVE and place.line == MAIN_LINE:
                raise invalid("The destination is the entity itself.")

    async def _new(self, place: EntityPlace, new: NewJob, destination: str) -> Kept:
        now_ms = self._places.bus.clock.now_ms()
        _, total = await scan_of(self._places, place)
        statistics = await self._places.bus.namespace.statistics(place.handle.entity)
        away = [part for part in statistics.fragments if not part.is_counted]
        if away:
            # Their last numbers are unknown, so later messages could not be distinguished.
            numbers = ", ".join(str(part.number) for part in away)
            raise Unavailable(
                f"Fragments of '{place.handle.entity.name}' are unavailable ({numbers}): "
                f"{away[0].reason}. Start the job when they are back."
            )
        chosen = only_numbers(new.action, new.selection)
        moment = format_moment(now_ms)
        job_id = f"{moment[:10].replace('-', '')}-{moment[11:19].replace(':', '')}"
        job = Job(
            id=f"{job_id}-{secrets.token_hex(3)}",
            action=new.action,
            entity=line_path(place.handle.entity.name, place.line),
            destination=destination,
            state=RUNNING,
            began_at=moment,
            total=total if chosen is None else len(chosen),
            has_backup=new.backup and new.action != EXPORT,
            rate_max=0 if new.rate_max is UNSET else new.rate_max,
            selection=new.selection,
            edit=None if new.edit is UNSET else new.edit,
            mark="" if new.mark is UNSET else new.mark,
            about="" if new.about is UNSET else new.about,
            warnings=self._warnings(place.handle, new, destination),
        )
        lasts = [sequence_number(part.number, part.sent_total) for part in statistics.fragments]
        kept = Kept(job=job, lasts=lasts, entity_id=place.handle.entity.entity_id)
        if destination:
            only = self._places.target(destination).subscription
            kept.subscription_id = 0 if only is None else only.entity_id
        return kept

    def _warnings(self, handle: EntityHandle, new: NewJob, destination: str) -> list[str]:
        entity = handle.entity
        if new.action != RESUBMIT or destination == entity.name:
            return []
        namespace = self._places.bus.namespace
        topic = namespace.topic(entity.topic_name())
        sisters = [each for each in namespace.subscriptions(topic) if each.name != entity.name]
        if not sisters:
            return []
        names = ", ".join(each.short_name() for each in sisters[:_SISTERS_MAX])
        rest = len(sisters) - _SISTERS_MAX
        more = f" and {rest} more" if rest > 0 else ""
        return [
            f"The letters are sent to the topic '{topic.name}': its other subscriptions whose "
            f"rules match get them too ({names}{more})."
        ]

    async def _make_room(self) -> None:
        """Forget the oldest ended jobs to make room for one more."""
        ended = sorted(job_id for job_id, kept in self._jobs.items() if kept.job.state in ENDED)
        for job_id in ended[: max(0, len(self._jobs) - KEPT_MAX + 1)]:
            # Others make room, too, while files are removed.
            self._jobs.pop(job_id, None)
            await self._aside(partial(self._shelf.remove, job_id))

    def _start(self, kept: Kept) -> None:
        task = asyncio.get_running_loop().create_task(self._work(kept))
        self._tasks[kept.job.id] = task
        task.add_done_callback(lambda _: self._tasks.pop(kept.job.id, None))

    async def _work(self, kept: Kept) -> None:
        job = kept.job
        try:
            await JobRun(kept, self._places, self._transactor, self._shelf, self._aside).run()
            self._end(job, DONE)
        except Stopped:
            self._end(job, STOPPED)
        except (Refused, Unavailable) as failure:
            self._end(job, FAILED, failure.message)
        except OSError as error:
            self._end(job, FAILED, f"The state of the job cannot be kept: {error}.")
        except asyncio.CancelledError:
            # The server ends: the next start continues.
            raise
        except Exception:
            log.exception("job %s failed", job.id)
            self._end(job, FAILED, "An internal error occurred; the server's log has the details.")
        try:
            await self._aside(partial(self._shelf.put, kept))
        except OSError as error:
            log.error("the end of job %s cannot be kept: %s", job.id, error)

    def _end(self, job: Job, state: str, error: str = "") -> None:
        job.state, job.error = state, error
        job.ended_at = format_moment(self._places.bus.clock.now_ms())


def _owner(path: str) -> str:
    """The entity of a line."""
    return path.lower().partition("/$")[0]
