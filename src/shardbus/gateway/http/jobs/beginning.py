"""New jobs: their checks, and the state in which they begin."""

from __future__ import annotations

import secrets
from typing import Final, final

from msgspec import UNSET

from shardbus.broker.bus import EntityHandle
from shardbus.core.errors import NOT_ALLOWED, Refused, Unavailable
from shardbus.core.message import MAIN_LINE
from shardbus.core.namespace.address import line_path
from shardbus.core.sequence import sequence_number
from shardbus.gateway.http.api.messages.scan import scan_of
from shardbus.gateway.http.api.messages.values import read_numbers
from shardbus.gateway.http.api.places import EntityPlace, EntityPlaces
from shardbus.gateway.http.api.search.selection import Condition
from shardbus.gateway.http.jobs.job import (
    BURY,
    DELETE,
    EXPORT,
    MOVE,
    RESUBMIT,
    RUNNING,
    UNDO,
    Job,
    Kept,
    NewJob,
    only_numbers,
)
from shardbus.gateway.http.jobs.repairing import check_repair
from shardbus.gateway.http.jobs.resending import check_edit
from shardbus.gateway.http.moment import format_moment
from shardbus.gateway.http.server.refusal import invalid

_SISTERS_MAX: Final = 5


@final
class NewJobs:
    """Makes jobs. Rights have been checked by the caller."""

    def __init__(self, places: EntityPlaces) -> None:
        self._places = places

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

    def check(self, place: EntityPlace, new: NewJob, destination: str) -> None:
        """Refused for a job that is not possible."""
        Condition(new.selection)
        if new.selection.numbers is not UNSET:
            read_numbers(new.selection.numbers)
        if new.edit is not UNSET:
            if new.action in (DELETE, EXPORT, UNDO, BURY):
                raise invalid(f"The action {new.action} sends nothing: leave out edit.")
            check_edit(new.edit)
            check_repair(new.edit)
        if new.action not in (MOVE, RESUBMIT) and new.destination is not UNSET:
            raise invalid(f"The action {new.action} has no destination.")
        if new.action in (DELETE, EXPORT, BURY) and new.mark is not UNSET:
            raise invalid(f"The action {new.action} has no mark.")
        if new.action == BURY and place.line != MAIN_LINE:
            raise Refused(NOT_ALLOWED, "The messages are dead letters already.")
        if new.action != BURY and (new.reason is not UNSET or new.description is not UNSET):
            raise invalid("reason and description are allowed only with the action dead_letter.")
        if new.action == UNDO and (new.mark is UNSET or place.line != MAIN_LINE):
            raise invalid(
                "An undo needs the mark of the resubmitted messages, and the entity where they are "
                "now."
            )
        if place.has_sessions and new.action not in (EXPORT, UNDO):
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

    async def made(self, place: EntityPlace, new: NewJob, destination: str) -> Kept:
        """The job as it begins."""
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
            reason="" if new.reason is UNSET else new.reason,
            description="" if new.description is UNSET else new.description,
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
