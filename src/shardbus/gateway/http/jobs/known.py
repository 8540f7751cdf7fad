"""Jobs by id, and what API and server ask of those who keep them."""

from __future__ import annotations

from typing import Protocol, final

from shardbus.core.errors import NOT_ALLOWED, NOT_FOUND, QUOTA_EXCEEDED, Refused
from shardbus.gateway.http.api.places import EntityPlace
from shardbus.gateway.http.jobs.job import ENDED, KEPT_MAX, RUNNING_MAX, Job, Kept, NewJob
from shardbus.gateway.http.server.refusal import shown


class KeptJobs(Protocol):
    """Starts, continues, stops and lists jobs. Rights have been checked by the caller."""

    @property
    def is_complete(self) -> bool:
        """Whether there are no other jobs, of other gateways."""
        ...

    async def load(self) -> None:
        """Load the existing jobs before clients can request them."""
        ...

    async def run(self) -> None:
        """Continue jobs that nobody runs, and let jobs run until cancelled."""
        ...

    async def all(self, entity: str = "") -> list[Job]:
        """Jobs of all entities, or of one with all its lines, newest first."""
        ...

    async def show(self, entity: str, job_id: str) -> Job: ...

    async def stop(self, entity: str, job_id: str) -> Job:
        """Stop a job after its present chunk; a job that has ended stays as it is."""
        ...

    async def remove(self, entity: str, job_id: str) -> None:
        """Forget a job that has ended, and its lines."""
        ...

    async def export(self, entity: str, job_id: str, offset: int, most: int) -> tuple[bytes, int]:
        """A part of the JSON lines of a job, and their total size."""
        ...

    def destination(self, place: EntityPlace, new: NewJob) -> str:
        """The destination of the messages; empty if there is none. Refused for an invalid
        destination.
        """
        ...

    async def begin(self, place: EntityPlace, new: NewJob, destination: str) -> Job:
        """Check a job, and start it unless it is a dry run."""
        ...


@final
class KnownJobs:
    """Jobs by id."""

    def __init__(self) -> None:
        self.by_id: dict[str, Kept] = {}

    def listed(self, entity: str) -> list[Job]:
        """Those of one entity with all its lines, or all without one; newest first."""
        key = entity.lower()
        found = [
            kept.job
            for kept in self.by_id.values()
            if not key or _owner(kept.job.entity) == _owner(key)
        ]
        return sorted(found, key=lambda job: job.id, reverse=True)

    def found(self, entity: str, job_id: str, elsewhere: str = "") -> Job:
        kept = self.by_id.get(job_id)
        if kept is None or _owner(kept.job.entity) != _owner(entity.lower()):
            raise Refused(NOT_FOUND, f"There is no job {shown(job_id)}{elsewhere}.")
        return kept.job

    def check_running(self, starting: int = 0) -> None:
        """Refused when no other job may run; `starting` ones are not listed yet."""
        running = sum(kept.job.state not in ENDED for kept in self.by_id.values())
        if running + starting >= RUNNING_MAX:
            raise Refused(
                QUOTA_EXCEEDED, f"{RUNNING_MAX} jobs are running, the maximum: wait, or stop one."
            )

    def superfluous(self) -> list[str]:
        """The oldest ended jobs that are forgotten to make room for one more."""
        ended = sorted(job_id for job_id, kept in self.by_id.items() if kept.job.state in ENDED)
        return ended[: max(0, len(self.by_id) - KEPT_MAX + 1)]


def check_ended(job: Job) -> None:
    """Refused for a job that still runs: it cannot be forgotten."""
    if job.state not in ENDED:
        raise Refused(NOT_ALLOWED, f"The job {job.id} is {job.state}: stop it first.")


def _owner(path: str) -> str:
    """The entity of a line."""
    return path.lower().partition("/$")[0]
