"""Sessions and their states, and the fragments to which keys belong."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from typing import Annotated, Final, final

from msgspec import UNSET, Meta, Struct

from shardbus.core.errors import NOT_ALLOWED, NOT_FOUND, Refused
from shardbus.core.limits import KEY_CHARACTERS_MAX
from shardbus.core.message import ACTIVE, DEFERRED, SCHEDULED, Entry
from shardbus.core.namespace.access import LISTEN, MANAGE
from shardbus.core.sessions.command import SessionAccepted
from shardbus.core.sessions.key import session_key
from shardbus.gateway.http.api.call import Call, Row, takes
from shardbus.gateway.http.api.messages.batch_receiver import accept_session
from shardbus.gateway.http.api.messages.documents import HOLDER
from shardbus.gateway.http.api.messages.scan import scan_of
from shardbus.gateway.http.api.messages.session_counts import reader_of_session
from shardbus.gateway.http.api.messages.values import read_base64
from shardbus.gateway.http.api.places import EntityPlace, EntityPlaces
from shardbus.gateway.http.api.route import NAME, Route
from shardbus.gateway.http.document import B, Body, Count, Maybe, Moment, Shape, one_of, told
from shardbus.gateway.http.moment import format_moment
from shardbus.gateway.http.server.refusal import invalid

MESSAGES_MAX: Final = 5_000
"""Messages of a session that one request counts."""
STATE_CHARACTERS_MAX: Final = 1024 * 1024


SessionId = Annotated[str, Meta(max_length=KEY_CHARACTERS_MAX, examples=["s"])]
_HOLDERS: Final = ("", "client", "reader")
_BY: Final = ("session_id", "partition_key", "message_id", "bus")


class SessionAsked(Body, kw_only=True, frozen=True):
    session_id: SessionId


class SessionShown(Struct, kw_only=True):
    session_id: str
    fragment: Count
    messages: Annotated[Count, told(f"At most {MESSAGES_MAX} are counted.")]
    is_more: bool
    active: Count
    deferred: Count
    scheduled: Count
    oldest_at: Moment | None
    newest_at: Moment | None
    locked_until: Annotated[Moment | None, told("The moment until which the session is held.")]
    locked_messages: Count
    held_by: Annotated[str, one_of(*_HOLDERS), told("Empty for a session that is free.")]
    reader: Annotated[str, told("The name of the reader that holds it, if one does.")]
    holder: Annotated[str, told(f"For a held session: {HOLDER}")]
    is_state_known: Annotated[bool, told("False while another client holds the session.")]
    state_bytes: Annotated[Count | None, told("Its size; null while it is not known.")]
    state_base64: str | None
    state_text: Annotated[str | None, told("The state, if it is text.")]


class NewState(Body, kw_only=True, frozen=True):
    session_id: SessionId
    state_base64: Maybe[Annotated[str, Meta(max_length=STATE_CHARACTERS_MAX)]] = UNSET
    state_text: Annotated[
        Maybe[Annotated[str, Meta(max_length=STATE_CHARACTERS_MAX)]],
        told("If both are left out, the state is removed."),
    ] = UNSET


class StateSet(Struct, kw_only=True):
    session_id: str
    size_bytes: Count


class Placing(Body, kw_only=True, frozen=True):
    session_id: Maybe[SessionId] = UNSET
    partition_key: Annotated[
        Maybe[Annotated[str, Meta(max_length=KEY_CHARACTERS_MAX)]], Meta(examples=["k"])
    ] = UNSET
    message_id: Maybe[Annotated[str, Meta(max_length=KEY_CHARACTERS_MAX)]] = UNSET


class Placement(Struct, kw_only=True):
    by: Annotated[str, one_of(*_BY), told("Which value selects the fragment; `bus`: round robin.")]
    fragment: Count | None
    broker: str
    is_available: bool
    reason: str


@final
class SessionPages:
    """A Group of the API."""

    def __init__(self, places: EntityPlaces, broker_names: Callable[[int], str]) -> None:
        self._places = places
        self._broker_name = broker_names

    def rows(self) -> list[Row]:
        return [
            takes(
                request_about(
                    "sessions/show", "One session: messages, holder, state.", SessionShown
                ),
                SessionAsked,
                self._show_session,
            ),
            takes(
                request_about(
                    "sessions/state", "Set the state of a session that is free.", StateSet
                ),
                NewState,
                self._set_state,
            ),
            takes(
                request_about("placement", "The fragment to which a key belongs.", Placement),
                Placing,
                self._place,
            ),
        ]

    async def _show_session(self, call: Call[SessionAsked]) -> SessionShown:
        place, session_id = self._session_place(call.name), call.body.session_id
        self._places.pay(1)
        scan, _ = await scan_of(self._places, place, session_id=session_id)
        found: list[Entry] = []
        while len(found) < MESSAGES_MAX and (batch := await scan.batch()):
            for entry in batch:
                scan.passed(entry)
            found += batch
        holds = await place.handle.operations.holds([session_id])
        state, is_known = b"", False
        if not holds:
            session = await hold_session(place, session_id, call)
            try:
                state = await place.handle.operations.state(session.token) or b""
                is_known = True
            finally:
                place.handle.router.release_session(session.token)
        # Readers lock no messages, but one may have claimed messages of the session.
        is_claimed = bool(holds) and not holds[0].locked
        reader = await reader_of_session(place, found) if is_claimed else ""
        moments = [entry.enqueued_at_ms for entry in found]
        router = place.handle.router
        return SessionShown(
            session_id=session_id,
            fragment=router.numbers[router.index_of_key(session_key(session_id))],
            messages=len(found),
            is_more=scan.cursor is not None,
            active=sum(entry.state == ACTIVE for entry in found),
            deferred=sum(entry.state == DEFERRED for entry in found),
            scheduled=sum(entry.state == SCHEDULED for entry in found),
            oldest_at=format_moment(min(moments)) if moments else None,
            newest_at=format_moment(max(moments)) if moments else None,
            locked_until=format_moment(holds[0].locked_until_ms) if holds else None,
            locked_messages=holds[0].locked if holds else 0,
            held_by=("reader" if reader else "client") if holds else "",
            reader=reader,
            holder=router.held_links.holders().get(session_key(session_id), ""),
            is_state_known=is_known,
            state_bytes=len(state) if is_known else None,
            state_base64=b64encode(state).decode() if state else None,
            state_text=_text(state),
        )

    async def _set_state(self, call: Call[NewState]) -> StateSet:
        place, body = self._session_place(call.name), call.body
        if body.state_base64 is not UNSET and body.state_text is not UNSET:
            raise invalid("Give either state_base64 or state_text, not both.")
        state: bytes | None = None
        if body.state_base64 is not UNSET:
            state = read_base64(body.state_base64, "state_base64")
        elif body.state_text is not UNSET:
            state = body.state_text.encode()
        self._places.pay(1)
        session = await hold_session(place, body.session_id, call)
        try:
            await place.handle.operations.set_state(session.token, state)
        finally:
            place.handle.router.release_session(session.token)
        return StateSet(session_id=body.session_id, size_bytes=len(state or b""))

    async def _place(self, call: Call[Placing]) -> Placement:
        handle, body = self._places.line_of(call.name).handle, call.body
        spec = handle.entity.spec
        by, key = "bus", ""
        if body.session_id is not UNSET:
            by, key = "session_id", session_key(body.session_id)
        elif body.partition_key is not UNSET:
            by, key = "partition_key", body.partition_key
        elif body.message_id is not UNSET and spec.requires_duplicate_detection:
            by, key = "message_id", body.message_id
        if handle.router.is_partitioned and by == "bus":
            return Placement(by=by, fragment=None, broker="", is_available=True, reason="")
        router = handle.router
        index = router.index_of_key(key) if by != "bus" else router.former_count
        home, runner = handle.entity.fragments[index], handle.runners[index]
        return Placement(
            by=by,
            fragment=home.number,
            broker=self._broker_name(home.broker_index),
            is_available=runner.is_available,
            reason=runner.reason,
        )

    def _session_place(self, name: str) -> EntityPlace:
        place = self._places.place(name)
        if not place.has_sessions:
            raise Refused(NOT_ALLOWED, f"'{name}' has no sessions.")
        return place


async def hold_session(place: EntityPlace, session_id: str, call: Call[B]) -> SessionAccepted:
    """Hold a session for a moment; Refused while another client holds it."""
    departure = call.request.departure
    session = await accept_session(place.handle.router, session_id, 0, departure)
    if session is None:
        raise Refused(NOT_FOUND, "The session cannot be held now: try again.")
    return session


def request_about(
    path: str, summary: str, shape: Shape, *, right: int = LISTEN, identifier: str = ""
) -> Route:
    return Route(
        f"/api/v1/entities/{{name}}/{path}",
        summary,
        shape,
        method="POST",
        right=right,
        otherwise=MANAGE,
        parameters=(NAME,),
        identifier=identifier,
    )


def _text(state: bytes) -> str | None:
    try:
        return state.decode() if state else None
    except UnicodeDecodeError:
        return None
