"""Removes messages over the JSON API, and sends dead letters again."""

from __future__ import annotations

from typing import Final, final

from msgspec import UNSET

from shardbus.broker.bus import EntityHandle
from shardbus.broker.operations.transactions import Transactor
from shardbus.core.errors import NOT_ALLOWED, NOT_FOUND, Refused
from shardbus.core.message import NEVER_MS
from shardbus.core.namespace.access import SEND
from shardbus.core.sessions.command import SessionAccepted
from shardbus.gateway.http.api.call import Call
from shardbus.gateway.http.api.messages.batch_receiver import accept_session
from shardbus.gateway.http.api.messages.documents import Purge, Purged, Resubmit, Resubmitted
from shardbus.gateway.http.api.messages.resubmission import Resubmission
from shardbus.gateway.http.api.places import EntityPlace, EntityPlaces, check_sendable
from shardbus.gateway.http.moment import parse_moment
from shardbus.gateway.http.server.gate import Gate
from shardbus.gateway.http.server.message import Departure
from shardbus.gateway.http.server.refusal import invalid, shown

# Maximum number of sessions that one request empties; each must be held for that.
SESSIONS_MAX: Final = 200


@final
class Removals:
    """Answers requests to purge and to resubmit."""

    def __init__(self, places: EntityPlaces) -> None:
        self._places = places
        self._transactor = Transactor(places.bus.clock)
        self._gate = Gate(places.bus.namespace, places.bus.authorizer)

    async def purge(self, call: Call[Purge]) -> Purged:
        place = self._places.receivable(call.name)
        count_max = call.body.count
        until_ms = _until_ms(call.body)
        self._places.pay(1)
        if place.has_sessions:
            purging = SessionPurge(place, until_ms, call.request.departure)
            return await _purge_sessions(call.body, purging)
        if call.body.session_id is not UNSET:
            raise Refused(NOT_ALLOWED, f"'{call.name}' has no sessions: leave out session_id.")
        purged = await place.handle.operations.purge(
            place.line, count_max=count_max, enqueued_until_ms=until_ms
        )
        return Purged(purged=purged, has_more=purged >= count_max)

    async def resubmit(self, call: Call[Resubmit]) -> Resubmitted:
        place = self._places.dead_letters(call.name)
        source, target = place.handle, self._target(place.handle)
        if target is not source:
            # Other subscriptions of the topic get them too, so a right on this one is not enough.
            self._gate.require(call.request, SEND, target.entity.name)
        check_sendable(target)
        count_max, numbers = call.body.count, call.body.sequence_numbers
        self._places.pay(1)
        resubmission = Resubmission(source, target, place.line, self._transactor)
        if numbers is UNSET:
            moved = await resubmission.oldest(count_max)
            has_more = len(moved) >= count_max or resubmission.has_failed
            return _resubmitted(moved, [], has_more=has_more)
        moved = await resubmission.numbered(numbers[:count_max])
        missing = sorted(set(numbers[:count_max]) - set(moved))
        return _resubmitted(moved, missing, has_more=len(numbers) > count_max)

    def _target(self, source: EntityHandle) -> EntityHandle:
        entity = source.entity
        if not entity.is_subscription():
            return source
        topic = self._places.bus.find(entity.topic_name().lower())
        if topic is None:
            raise Refused(NOT_FOUND, f"The messaging entity '{entity.name}' does not exist.")
        return topic


@final
class SessionPurge:
    """Empties sessions one after another: only the holder of a session can remove its messages."""

    def __init__(self, place: EntityPlace, until_ms: int, departure: Departure) -> None:
        self._place = place
        self._until_ms = until_ms
        self._departure = departure
        self._held: list[SessionAccepted] = []
        self.is_over = False

    async def one(self, session_id: str, count_max: int) -> int:
        """How many messages of a session were removed; Refused when another client holds it."""
        try:
            return await self._next(session_id, count_max) or 0
        finally:
            self._release()

    async def all(self, count_max: int) -> int:
        """How many messages were removed from free sessions.

        The sessions stay held until the end, so that a session with newer messages is not emptied
        twice.
        """
        purged = 0
        try:
            while purged < count_max and len(self._held) < SESSIONS_MAX and not self.is_over:
                count = await self._next(None, count_max - purged)
                self.is_over = count is None
                purged += count or 0
        finally:
            self._release()
        return purged

    async def _next(self, session_id: str | None, count_max: int) -> int | None:
        router = self._place.handle.router
        session = await accept_session(router, session_id, 0, self._departure)
        if session is None:
            return None
        self._held.append(session)
        return await self._place.handle.operations.purge(
            self._place.line,
            count_max=count_max,
            enqueued_until_ms=self._until_ms,
            session=session.token,
        )

    def _release(self) -> None:
        for session in self._held:
            self._place.handle.router.release_session(session.token)


async def _purge_sessions(body: Purge, purging: SessionPurge) -> Purged:
    if body.session_id is UNSET:
        purged = await purging.all(body.count)
        return Purged(purged=purged, has_more=not purging.is_over)
    purged = await purging.one(body.session_id, body.count)
    return Purged(purged=purged, has_more=purged >= body.count)


def _until_ms(body: Purge) -> int:
    """The last moment of messages to remove; NEVER_MS for all."""
    if body.enqueued_before is UNSET:
        return NEVER_MS
    moment_ms = parse_moment(body.enqueued_before)
    if moment_ms is None:
        raise invalid(
            f"enqueued_before is {shown(body.enqueued_before)}; it must be a moment like "
            "2026-01-02T03:04:05Z."
        )
    return max(moment_ms - 1, 1)


def _resubmitted(moved: list[int], missing: list[int], *, has_more: bool) -> Resubmitted:
    return Resubmitted(
        resubmitted=len(moved), sequence_numbers=moved, missing=missing, has_more=has_more
    )
