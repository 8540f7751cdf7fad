"""Messages in the JSON API: the routes and their handlers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

from shardbus.broker.bus import Bus
from shardbus.broker.operations.session_list import PAGE_COUNT_MAX as SESSION_PAGE_MAX
from shardbus.core.limits import PEEK_COUNT_MAX
from shardbus.core.namespace.access import LISTEN, MANAGE, SEND
from shardbus.core.sessions.command import Hold
from shardbus.core.sessions.key import session_key
from shardbus.gateway.http.api.call import Call, Nothing, Row, shows, takes
from shardbus.gateway.http.api.messages.documents import (
    PEEK_COUNT_DEFAULT,
    SESSION_PAGE_DEFAULT,
    HeldSession,
    ListedSession,
    Messages,
    NewMessages,
    Purge,
    Purged,
    Receive,
    ReceivedMessages,
    Renewal,
    Renewed,
    Resubmit,
    Resubmitted,
    SentMessages,
    SessionReleased,
    Sessions,
    Settled,
    Settlement,
)
from shardbus.gateway.http.api.messages.peeking import Browsing
from shardbus.gateway.http.api.messages.receiving import Deliveries
from shardbus.gateway.http.api.messages.removals import Removals
from shardbus.gateway.http.api.messages.sending import Sending
from shardbus.gateway.http.api.messages.session_counts import (
    BYTES_MAX,
    MESSAGES_MAX,
    count_sessions,
)
from shardbus.gateway.http.api.places import EntityPlaces
from shardbus.gateway.http.api.route import NAME, Parameter, Route
from shardbus.gateway.http.document import INTEGER_MAX, Shape
from shardbus.gateway.http.moment import format_moment
from shardbus.gateway.http.server.counts import HttpCounts
from shardbus.gateway.http.server.throttling import HttpThrottle

SKIP_MAX: Final = 1_000_000_000

_ENTITY: Final = "/api/v1/entities/{name}"
_PAGE: Final = (
    NAME,
    Parameter("from", "query", "The sequence number at which to start.", most=INTEGER_MAX),
    Parameter(
        "top",
        "query",
        f"The maximum number of messages; {PEEK_COUNT_DEFAULT} by default.",
        least=1,
        most=PEEK_COUNT_MAX,
    ),
    Parameter("session", "query", "Only the messages of this session."),
    Parameter("cursor", "query", "Where to continue: the member `next` of the previous page."),
)
_SESSION_PAGE: Final = (
    NAME,
    Parameter("skip", "query", "How many to skip.", most=SKIP_MAX),
    Parameter(
        "top",
        "query",
        f"The maximum number of sessions; {SESSION_PAGE_DEFAULT} by default.",
        least=1,
        most=SESSION_PAGE_MAX,
    ),
    Parameter(
        "counts",
        "query",
        f"1: with the messages of each session. Up to {MESSAGES_MAX} messages of the entity, or "
        f"{BYTES_MAX // (1024 * 1024)} MB, are examined.",
        least=0,
        most=1,
        example=1,
    ),
)


def _posted(
    path: str, identifier: str, summary: str, shape: Shape, *, right: int = LISTEN
) -> Route:
    return Route(
        f"{_ENTITY}/{path}",
        summary,
        shape,
        method="POST",
        right=right,
        otherwise=MANAGE,
        parameters=(NAME,),
        identifier=identifier,
    )


_PEEK: Final = Route(
    f"{_ENTITY}/messages",
    "Messages in every state, oldest first; they are neither locked nor counted as delivered.",
    Messages,
    right=LISTEN,
    parameters=_PAGE,
    identifier="peekMessages",
)
_SEND: Final = _posted("messages", "sendMessages", "Send messages.", SentMessages, right=SEND)
_RECEIVE: Final = _posted(
    "messages/receive",
    "receiveMessages",
    "Receive messages; on an entity with sessions, hold a session.",
    ReceivedMessages,
)
_SETTLE: Final = _posted("messages/settle", "settleMessages", "Settle locked messages.", Settled)
_RENEW: Final = _posted(
    "messages/renew",
    "renewLocks",
    "Renew locks; each fragment renews all of its locks or none.",
    Renewed,
)
_PURGE: Final = _posted(
    "messages/purge",
    "purgeMessages",
    "Remove active messages that are not locked, oldest first.",
    Purged,
)
_RESUBMIT: Final = _posted(
    "dead-letters/resubmit",
    "resubmitDeadLetters",
    "Send dead letters again, each of them once; those of a subscription to its topic.",
    Resubmitted,
    right=LISTEN | SEND,
)
_SESSIONS: Final = Route(
    f"{_ENTITY}/sessions",
    "The sessions that have messages or a state.",
    Sessions,
    right=LISTEN,
    parameters=_SESSION_PAGE,
)
_RENEW_SESSION: Final = _posted(
    "sessions/renew", "renewSession", "Renew the lock of a session.", Renewed
)
_RELEASE_SESSION: Final = _posted(
    "sessions/release",
    "releaseSession",
    "Release a session; its locked messages return uncounted.",
    SessionReleased,
)


@final
class MessagesApi:
    """A Group of the API: peek, send, receive, settle, purge, resubmit, sessions."""

    def __init__(self, bus: Bus, counts: HttpCounts, throttle: HttpThrottle | None = None) -> None:
        self._places = EntityPlaces(bus, counts, throttle)
        self._browsing = Browsing(self._places)
        self._sending = Sending(self._places)
        self._deliveries = Deliveries(self._places)
        self._removals = Removals(self._places)
        bus.namespace.subscribe(self._deliveries.waiting)

    def rows(self) -> list[Row]:
        return [
            shows(_PEEK, self._browsing.show),
            takes(_SEND, NewMessages, self._sending.send),
            takes(_RECEIVE, Receive, self._deliveries.receive),
            takes(_SETTLE, Settlement, self._deliveries.settle),
            takes(_RENEW, Renewal, self._deliveries.renew),
            takes(_PURGE, Purge, self._removals.purge),
            takes(_RESUBMIT, Resubmit, self._removals.resubmit),
            shows(_SESSIONS, self._show_sessions),
            takes(_RENEW_SESSION, HeldSession, self._deliveries.renew_session),
            takes(_RELEASE_SESSION, HeldSession, self._deliveries.release_session),
        ]

    async def _show_sessions(self, call: Call[Nothing]) -> Sessions:
        place = self._places.place(call.name)
        skip = call.query.integer("skip", 0, SKIP_MAX)
        top = call.query.integer("top", SESSION_PAGE_DEFAULT, SESSION_PAGE_MAX, least=1)
        found: list[str] = []
        if place.has_sessions:
            found = await place.handle.operations.list_sessions(
                updated_after_ms=-1, skip=skip, count_max=top
            )
        holds = await place.handle.operations.holds(found)
        holders = place.handle.router.held_links.holders()
        page = Sessions(sessions=_listed(found, holds, holders), skip=skip)
        if call.query.integer("counts", 0, 1) == 1:
            self._places.pay(1)
            counts, page.is_counted = await count_sessions(self._places, place, found)
            for session in page.sessions:
                count = counts[session_key(session.session_id)]
                session.messages, session.size_bytes = count.messages, count.size_bytes
                oldest_ms = count.oldest_at_ms
                session.oldest_at = format_moment(oldest_ms) if oldest_ms else None
        return page


def _listed(
    session_ids: list[str], holds: list[Hold], holders: Mapping[str, str]
) -> list[ListedSession]:
    held = {hold.session_id: hold for hold in holds}
    listed = []
    for session_id in session_ids:
        session, hold = ListedSession(session_id=session_id), held.get(session_id)
        if hold is not None:
            session.locked_until = format_moment(hold.locked_until_ms)
            session.locked_messages = hold.locked
            session.holder = holders.get(session_key(session_id), "")
        listed.append(session)
    return listed
