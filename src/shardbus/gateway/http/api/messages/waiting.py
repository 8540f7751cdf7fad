"""Scheduled and deferred messages, which requests select by sequence number."""

from __future__ import annotations

from typing import Annotated, Final, Literal, final

from msgspec import UNSET, Meta, Struct

from shardbus.core.errors import NOT_ALLOWED, Refused
from shardbus.core.messages.command import NO_SESSION
from shardbus.core.namespace.access import SEND
from shardbus.core.sessions.command import SessionAccepted
from shardbus.gateway.http.api.call import Call, Row, takes
from shardbus.gateway.http.api.messages.documents import ReceivedMessages
from shardbus.gateway.http.api.messages.message import locked_document, taken_document
from shardbus.gateway.http.api.messages.sessions import SessionId, hold_session, request_about
from shardbus.gateway.http.api.messages.values import Number, read_numbers
from shardbus.gateway.http.api.places import EntityPlace, EntityPlaces
from shardbus.gateway.http.document import Body, Count, Maybe, told
from shardbus.gateway.http.server.refusal import invalid

NUMBERS_MAX: Final = 250

_Numbers = Annotated[
    list[Number], Meta(min_length=1, max_length=NUMBERS_MAX, examples=[["281474976710657"]])
]


class Cancelling(Body, kw_only=True, frozen=True):
    numbers: _Numbers


class Cancelled(Struct, kw_only=True):
    cancelled: Count


class DeferredWanted(Body, kw_only=True, frozen=True):
    numbers: _Numbers
    mode: Literal["peek_lock", "receive_and_delete"] = "peek_lock"
    session_id: Annotated[
        Maybe[SessionId],
        told("The session of the messages: required to delete from an entity with sessions."),
    ] = UNSET


@final
class WaitingPages:
    """A Group of the API."""

    def __init__(self, places: EntityPlaces) -> None:
        self._places = places

    def rows(self) -> list[Row]:
        return [
            takes(
                request_about(
                    "scheduled/cancel", "Cancel scheduled messages.", Cancelled, right=SEND
                ),
                Cancelling,
                self._cancel,
            ),
            takes(
                request_about(
                    "deferred/receive",
                    "Receive deferred messages by their numbers, all of them or none.",
                    ReceivedMessages,
                    identifier="receiveDeferred",
                ),
                DeferredWanted,
                self._receive,
            ),
        ]

    async def _cancel(self, call: Call[Cancelling]) -> Cancelled:
        place = self._places.line_of(call.name)
        numbers = read_numbers(call.body.numbers)
        self._places.charge(len(numbers))
        await place.handle.operations.cancel(numbers)
        return Cancelled(cancelled=len(numbers))

    async def _receive(self, call: Call[DeferredWanted]) -> ReceivedMessages:
        place = self._places.receivable(call.name)
        numbers = read_numbers(call.body.numbers)
        is_locking = call.body.mode == "peek_lock"
        if place.has_sessions and is_locking:
            raise Refused(
                NOT_ALLOWED,
                f"'{call.name}' requires sessions: receive its deferred messages over AMQP, or "
                "delete them with the mode receive_and_delete.",
            )
        self._places.pay(1)
        session = await self._held(call, place) if place.has_sessions else None
        token = NO_SESSION if session is None else session.token
        try:
            deliveries = await place.handle.operations.receive_deferred(
                place.line, numbers, is_locking=is_locking, session=token
            )
        finally:
            if session is not None:
                place.handle.router.release_session(session.token)
        show = locked_document if is_locking else taken_document
        return ReceivedMessages(messages=[show(each) for each in deliveries], session=None)

    async def _held(self, call: Call[DeferredWanted], place: EntityPlace) -> SessionAccepted:
        if call.body.session_id is UNSET:
            raise invalid(f"'{call.name}' requires sessions: give session_id.")
        return await hold_session(place, call.body.session_id, call)
