"""Receiving over the JSON API: messages and sessions stay locked between requests."""

from __future__ import annotations

import asyncio
from typing import Final, final

from msgspec import UNSET

from shardbus.broker.operations.asking import failure_of
from shardbus.broker.routing.joint_holds import tokens_in
from shardbus.codec.encoder import encode
from shardbus.core.errors import MESSAGE_LOCK_LOST, NOT_ALLOWED, Refused, Unavailable
from shardbus.core.limits import MODIFIED_BYTES_MAX
from shardbus.core.messages.command import (
    ABANDON,
    COMPLETE,
    DEAD_LETTER,
    DEFER,
    RELEASE,
    Delivery,
    Settle,
)
from shardbus.core.messages.command import Settled as SettledLocks
from shardbus.core.messages.settling import LOCK_LOST_TEXT
from shardbus.core.properties import pack
from shardbus.core.sequence import fragment_of_token
from shardbus.core.sessions.command import SessionAccepted
from shardbus.gateway.http.api.call import Call
from shardbus.gateway.http.api.messages.batch_receiver import (
    BatchReceiver,
    ReceiveWait,
    accept_session,
)
from shardbus.gateway.http.api.messages.documents import (
    HeldSession,
    Receive,
    ReceivedMessages,
    ReceivedSession,
    Renewal,
    Renewed,
    SessionReleased,
    Settled,
    Settlement,
)
from shardbus.gateway.http.api.messages.message import (
    Message,
    locked_document,
    taken_document,
    token_text,
)
from shardbus.gateway.http.api.messages.values import read_properties
from shardbus.gateway.http.api.places import EntityPlace, EntityPlaces, read_token
from shardbus.gateway.http.messaging.head_receiver import release
from shardbus.gateway.http.moment import format_moment
from shardbus.gateway.http.server import counts as count_of
from shardbus.gateway.http.server.refusal import invalid, shown

_HOW: Final = {
    "complete": COMPLETE,
    "abandon": ABANDON,
    "release": RELEASE,
    "defer": DEFER,
    "dead_letter": DEAD_LETTER,
}
_COUNTED: Final = {"complete": count_of.COMPLETED, "abandon": count_of.ABANDONED}


@final
class Deliveries:
    """Answers requests that receive, settle and renew."""

    def __init__(self, places: EntityPlaces) -> None:
        self._places = places
        self.waiting = ReceiveWait()

    async def receive(self, call: Call[Receive]) -> ReceivedMessages:
        """Receive messages. A session stays held while messages of it are locked, and is released
        otherwise.
        """
        place = self._places.receivable(call.name)
        is_taking = call.body.mode == "receive_and_delete"
        _check_sessions(call, place)
        self._places.pay(1)
        session = await self._session(call, place) if place.has_sessions else None
        if place.has_sessions and session is None:
            return _received([], None)
        router = place.handle.router
        is_held = False
        try:
            deliveries = await self._wait(call, place, session)
            # Nothing is awaited from here until the connection writes: locked messages are sent.
            if is_taking:
                deliveries = await self._take(place, deliveries)
            is_held = bool(deliveries) and not is_taking
        finally:
            if session is not None and not is_held:
                router.release_session(session.token)
        show = taken_document if is_taking else locked_document
        self._places.count(
            place.handle, count_of.DELETED if is_taking else count_of.LOCKED, len(deliveries)
        )
        messages = [show(each) for each in deliveries]
        is_known = call.body.session_lock_token is not UNSET
        return _received(messages, session if is_held else None, is_known=is_known)

    async def settle(self, call: Call[Settlement]) -> Settled:
        """Settle messages. Lost locks are reported; the request is refused if all were lost."""
        place = self._places.place(call.name)
        tokens, action = _tokens(call.body), call.body.action
        command = _command(call.body, tokens)
        self._places.charge(len(tokens))
        outcome = _Settlement(len(tokens))
        place.handle.router.settle(command, outcome)
        lost = await outcome.lost()
        if all(lost):
            raise Refused(MESSAGE_LOCK_LOST, LOCK_LOST_TEXT)
        settled = lost.count(False)
        if action in _COUNTED:
            self._places.count(place.handle, _COUNTED[action], settled)
        gone = [token_text(token) for token, is_lost in zip(tokens, lost, strict=True) if is_lost]
        return Settled(settled=settled, lost=gone)

    async def renew(self, call: Call[Renewal]) -> Renewed:
        place = self._places.place(call.name)
        tokens = _tokens(call.body)
        self._places.charge(len(tokens))
        deadlines_ms = await place.handle.operations.renew(tokens)
        self._places.count(place.handle, count_of.RENEWED, len(tokens))
        return Renewed(locked_until=format_moment(min(deadlines_ms)))

    async def renew_session(self, call: Call[HeldSession]) -> Renewed:
        place = self._places.place(call.name)
        token = _session_token(call.body.session_lock_token)
        locked_until_ms = await place.handle.operations.renew_session(token)
        return Renewed(locked_until=format_moment(locked_until_ms))

    async def release_session(self, call: Call[HeldSession]) -> SessionReleased:
        """Release a session. A session that is no longer held counts as released."""
        place = self._places.place(call.name)
        token = _session_token(call.body.session_lock_token)
        place.handle.router.release_session(token)
        return SessionReleased(released=True)

    async def _session(self, call: Call[Receive], place: EntityPlace) -> SessionAccepted | None:
        if call.body.session_lock_token is not UNSET:
            token = _session_token(call.body.session_lock_token)
            locked_until_ms = await place.handle.operations.renew_session(token)
            # The client got its id when it was accepted.
            return SessionAccepted("", token, locked_until_ms)
        session_id = None if call.body.session_id is UNSET else call.body.session_id
        return await accept_session(
            place.handle.router, session_id, call.body.wait_ms, call.request.departure
        )

    async def _wait(
        self, call: Call[Receive], place: EntityPlace, session: SessionAccepted | None
    ) -> list[Delivery]:
        count, wait_ms = call.body.count, call.body.wait_ms
        router, departure = place.handle.router, call.request.departure
        dispatcher = router.dispatcher(place.line)
        if session is not None:
            dispatcher = router.session_dispatcher(session, place.line)
        receiver = BatchReceiver(router, dispatcher, count_max=count, wait_ms=wait_ms)
        deliveries = await self.waiting.receive(place.handle.entity, receiver, departure)
        if departure.has_happened and deliveries:
            release(router, *deliveries)
            return []
        return deliveries

    async def _take(self, place: EntityPlace, deliveries: list[Delivery]) -> list[Delivery]:
        """The messages that are certainly deleted; only these may be returned."""
        if not deliveries:
            return []
        outcome = _Settlement(len(deliveries))
        tokens = [delivery.token for delivery in deliveries]
        place.handle.router.settle(Settle(COMPLETE, tokens), outcome)
        ended = [False] * len(deliveries)
        try:
            ended = await outcome.ended()
        finally:
            # Messages that are not deleted must not stay locked.
            left = [each for each, is_ended in zip(deliveries, ended, strict=True) if not is_ended]
            release(place.handle.router, *left)
        return [each for each, is_ended in zip(deliveries, ended, strict=True) if is_ended]


@final
class _Settlement:
    """A router.SettleSink that collects the lost locks."""

    def __init__(self, count: int) -> None:
        self._lost = [False] * count
        self._ended = [False] * count
        self._left = count
        self._failure: Refused | Unavailable | None = None
        self._all_told: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def settled(self, positions: list[int], answer: SettledLocks | Refused | Unavailable) -> None:
        self._left -= len(positions)
        if isinstance(answer, SettledLocks):
            for position, is_lost in zip(positions, answer.lost, strict=True):
                self._lost[position] = is_lost
                self._ended[position] = not is_lost
        else:
            self._failure = answer if self._failure is None else failure_of([self._failure, answer])
        if self._left == 0 and not self._all_told.done():
            self._all_told.set_result(None)

    async def lost(self) -> list[bool]:
        """For each lock, whether it was lost; a failure of any fragment is raised.

        If other fragments have settled their messages, the failure must not say that nothing was
        done.
        """
        await self._all_told
        if isinstance(self._failure, Unavailable) and any(self._ended):
            raise Unavailable(self._failure.message, is_unknown=True)
        if self._failure is not None:
            raise self._failure
        return self._lost

    async def ended(self) -> list[bool]:
        """For each lock, whether it certainly ended; a failure is raised if none did."""
        await self._all_told
        if self._failure is not None and not any(self._ended):
            raise self._failure
        return self._ended


def _check_sessions(call: Call[Receive], place: EntityPlace) -> None:
    said = {
        "session_id": call.body.session_id,
        "session_lock_token": call.body.session_lock_token,
    }
    names = [name for name, value in said.items() if value is not UNSET]
    if names and not place.has_sessions:
        raise Refused(NOT_ALLOWED, f"'{call.name}' has no sessions: leave out {names[0]}.")
    if len(names) > 1:
        raise invalid("Give either session_id or session_lock_token, not both.")


def _received(
    messages: list[Message], session: SessionAccepted | None, *, is_known: bool = False
) -> ReceivedMessages:
    if session is None:
        return ReceivedMessages(messages=messages, session=None)
    held = ReceivedSession(
        lock_token=_session_token_text(session.token),
        locked_until=format_moment(session.locked_until_ms),
        session_id=UNSET if is_known else session.session_id,
    )
    return ReceivedMessages(messages=messages, session=held)


def _tokens(body: Settlement | Renewal) -> list[bytes]:
    # Without repetitions: a lock that is ended twice would be reported as lost.
    return list(dict.fromkeys(read_token(text, "lock_tokens") for text in body.lock_tokens))


def _session_token_text(token: bytes) -> str:
    """After a repartition a session may be held at several fragments, each with its own token."""
    return ".".join([token_text(each) for each in tokens_in(token)])


def _session_token(text: str) -> bytes:
    tokens = [read_token(each, "session_lock_token") for each in text.split(".")]
    if len({fragment_of_token(token) for token in tokens}) < len(tokens):
        # Work for each of them would have no bound but that of the text.
        raise invalid(f"session_lock_token is {shown(text)}, which names a fragment twice.")
    return b"".join(tokens)


def _command(body: Settlement, tokens: list[bytes]) -> Settle:
    is_explained = body.reason is not UNSET or body.description is not UNSET
    if body.action != "dead_letter" and is_explained:
        raise invalid("reason and description are allowed only with the action dead-letter.")
    if body.action != "abandon" and body.delay_ms is not UNSET:
        raise invalid("delay_ms is allowed only with the action abandon.")
    return Settle(
        _HOW[body.action],
        tokens,
        reason=body.reason or None,
        description=body.description or None,
        modified=_modified(body),
        delay_ms=body.delay_ms or 0,
    )


def _modified(body: Settlement) -> bytes:
    properties = read_properties(body.properties or {})
    if not properties:
        return b""
    if body.action not in ("abandon", "defer", "dead_letter"):
        raise invalid(f"The action {body.action} cannot change properties: leave them out.")
    packed = pack({name: encode(value) for name, value in properties.items()})
    if len(packed) > MODIFIED_BYTES_MAX:
        raise invalid(
            f"The properties have {len(packed)} bytes; at most {MODIFIED_BYTES_MAX} are allowed."
        )
    return packed
