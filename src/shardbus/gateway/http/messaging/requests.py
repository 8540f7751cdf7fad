"""HTTP messaging: send, receive, complete, unlock and renew (R33)."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Final, final

from shardbus.broker.bus import Bus, EntityHandle
from shardbus.broker.forwarding.forwarder import not_kept
from shardbus.broker.operations.asking import ask_all
from shardbus.core.errors import (
    ENTITY_DISABLED,
    MESSAGE_LOCK_LOST,
    NOT_ALLOWED,
    Refused,
    RefusedAt,
    Unavailable,
)
from shardbus.core.message import MAIN_LINE, Message
from shardbus.core.messages.command import ABANDON, COMPLETE, Delivery, Settle
from shardbus.core.namespace.access import LISTEN, SEND
from shardbus.core.namespace.address import ENTITY, SUBSCRIPTION, Address, not_sendable
from shardbus.core.namespace.entity import Entity
from shardbus.gateway.http.messaging.head_receiver import HeadReceiver, release
from shardbus.gateway.http.messaging.received import (
    BROKER_PROPERTIES,
    deleted_response,
    locked_response,
)
from shardbus.gateway.http.messaging.sent import read_messages
from shardbus.gateway.http.moment import format_http_date
from shardbus.gateway.http.server import counts as count_of
from shardbus.gateway.http.server import target as target_kind
from shardbus.gateway.http.server.counts import HttpCounts
from shardbus.gateway.http.server.gate import Gate
from shardbus.gateway.http.server.message import ERROR_XML, HttpRequest, HttpResponse
from shardbus.gateway.http.server.refusal import (
    ENTITY_GONE,
    LOCK_NOT_FOUND,
    MESSAGE_TOO_LARGE,
    invalid,
    shown,
)
from shardbus.gateway.http.server.target import MessageUrl
from shardbus.gateway.http.server.throttling import HttpThrottle, pay

WAIT_MS_MAX: Final = 60_000
"""How long a receive waits at most, and by default."""
# "≤ 256 KB / 1 MB over HTTP even for large-message Premium".
MESSAGE_BYTES_MAX: Final = 1024 * 1024

_SECONDS: Final = re.compile(r"(\d{1,6})(?:\.(\d{1,3})\d{0,6})?", re.ASCII)


@final
class Messaging:
    """Answers requests for messages; sending needs the Send right, all others Listen."""

    def __init__(self, bus: Bus, counts: HttpCounts, throttle: HttpThrottle | None = None) -> None:
        self._bus = bus
        self._counts = counts
        self._throttle = throttle
        self._gate = Gate(bus.namespace, bus.authorizer)
        self._waiting: dict[int, set[HeadReceiver]] = {}
        bus.namespace.subscribe(self)

    async def respond(self, request: HttpRequest, target: MessageUrl) -> HttpResponse:
        """The answer; Refused or Unavailable is raised."""
        address = target.address()
        right = SEND if target.kind == target_kind.SEND else LISTEN
        # Many clients sign exactly the URL of the request.
        url = f"{address.path()}/{target.tail}".lower()
        self._gate.require(request, right, address.entity, below=url)
        handle = self._find(address)
        if right == LISTEN and handle.entity.is_topic():
            raise Refused(
                NOT_ALLOWED,
                f"'{address.name}' is a topic, which keeps no messages: receive from "
                f"'{address.name}/Subscriptions/<name>'.",
            )
        wait_ms = _wait_ms(request)
        match target.kind:
            case target_kind.SEND:
                return await self._send(request, address, handle, wait_ms)
            case target_kind.HEAD:
                return await self._receive(request, target, handle, wait_ms)
        return await self._settle(request, target, handle)

    def entity_created(self, entity: Entity) -> None:
        """Nothing to do: nobody can wait at it yet."""

    def entity_updated(self, entity: Entity) -> None:
        if not entity.spec.is_receivable():
            self._end_waiting(entity, _not_receivable(entity))

    def entity_deleted(self, entity: Entity) -> None:
        self._counts.forget(entity.name)
        self._end_waiting(entity, _gone(entity.name))

    def _end_waiting(self, entity: Entity, failure: Refused) -> None:
        for receiver in list(self._waiting.get(entity.entity_id, ())):
            receiver.fail(failure)

    def _find(self, address: Address) -> EntityHandle:
        is_entity = address.kind in (ENTITY, SUBSCRIPTION) and not address.is_management
        handle = self._bus.find(address.entity) if is_entity else None
        if handle is None:
            raise _gone(address.name)
        return handle

    async def _send(
        self, request: HttpRequest, address: Address, handle: EntityHandle, wait_ms: int
    ) -> HttpResponse:
        if address.line != MAIN_LINE or address.kind != ENTITY:
            raise not_sendable(address)
        entity = handle.entity
        if not entity.spec.is_sendable():
            raise Refused(
                ENTITY_DISABLED, f"'{entity.name}' is {entity.spec.status} and accepts no messages."
            )
        messages = read_messages(request, self._bus.clock.now_ms())
        _check_size(messages, entity)
        pay(self._throttle, self._counts, len(messages))
        await self._place(handle, messages, wait_ms)
        self._counts.count(entity.name, count_of.SENT, len(messages))
        return HttpResponse(201, ERROR_XML)

    async def _place(self, handle: EntityHandle, messages: list[Message], wait_ms: int) -> None:
        router = handle.router
        try:
            async with asyncio.timeout((wait_ms or WAIT_MS_MAX) / 1000):
                [answer] = await ask_all([lambda reply_to: router.send_batch(messages, reply_to)])
        except TimeoutError as error:
            raise Unavailable(
                f"It is unknown after {wait_ms or WAIT_MS_MAX} ms whether the message is stored.",
                is_unknown=True,
            ) from error
        if isinstance(answer, Refused | Unavailable):
            raise answer

    async def _receive(
        self, request: HttpRequest, target: MessageUrl, handle: EntityHandle, wait_ms: int
    ) -> HttpResponse:
        entity, line = handle.entity, target.address().line
        if not entity.spec.is_receivable():
            raise _not_receivable(entity)
        refusal = not_kept(entity, line)
        if refusal is not None:
            raise refusal
        if entity.spec.requires_session and line == MAIN_LINE:
            raise Refused(
                NOT_ALLOWED,
                f"'{entity.name}' requires sessions, and sessions cannot be received over HTTP: "
                "receive from it over AMQP.",
            )
        pay(self._throttle, self._counts, 1)
        delivery = await self._wait(request, handle, line, wait_ms)
        if delivery is None:
            return HttpResponse(204, ERROR_XML)
        # From here to the connection nothing waits: a message that is locked now can be sent.
        if request.departure.has_happened:
            release(handle.router, delivery)
            return HttpResponse(204, ERROR_XML)
        return await self._handed_out(request, target, handle, delivery)

    async def _wait(
        self, request: HttpRequest, handle: EntityHandle, line: int, wait_ms: int
    ) -> Delivery | None:
        entity_id = handle.entity.entity_id
        receiver = HeadReceiver(handle.router, line, wait_ms)
        waiting = self._waiting.setdefault(entity_id, set())
        waiting.add(receiver)
        request.departure.then(receiver.end)
        try:
            return await receiver.receive()
        finally:
            waiting.discard(receiver)
            if not waiting:
                self._waiting.pop(entity_id, None)

    async def _handed_out(
        self, request: HttpRequest, target: MessageUrl, handle: EntityHandle, delivery: Delivery
    ) -> HttpResponse:
        name = handle.entity.name
        if request.method == "DELETE":
            response = deleted_response(delivery, handle.entity)
            try:
                await handle.operations.settle(Settle(COMPLETE, [delivery.token]))
            except (Unavailable, asyncio.CancelledError):
                # If it is not deleted it must not stay locked.
                release(handle.router, delivery)
                raise
            self._counts.count(name, count_of.DELETED)
            return response
        base_url = request.base_url(self._bus.namespace.settings.name)
        response = locked_response(delivery, handle.entity, f"{base_url}/{target.entity_path}")
        self._counts.count(name, count_of.LOCKED)
        return response

    async def _settle(
        self, request: HttpRequest, target: MessageUrl, handle: EntityHandle
    ) -> HttpResponse:
        name, operations = handle.entity.name, handle.operations
        response = HttpResponse(200, ERROR_XML)
        if self._throttle is not None:
            self._throttle.charge(1)
        try:
            if request.method == "POST":
                [locked_until_ms] = await operations.renew([target.token])
                until = {"LockedUntilUtc": format_http_date(locked_until_ms)}
                response.headers.append((BROKER_PROPERTIES, json.dumps(until)))
                self._counts.count(name, count_of.RENEWED)
                return response
            is_complete = request.method == "DELETE"
            how = COMPLETE if is_complete else ABANDON
            await operations.settle(Settle(how, [target.token]))
        except Refused as refusal:
            if refusal.kind is MESSAGE_LOCK_LOST:
                raise Refused(LOCK_NOT_FOUND, refusal.message) from refusal
            raise
        self._counts.count(name, count_of.COMPLETED if is_complete else count_of.ABANDONED)
        return response


def _wait_ms(request: HttpRequest) -> int:
    text = request.query.get("timeout")
    if text is None:
        return WAIT_MS_MAX
    match = _SECONDS.fullmatch(text)
    if match is None:
        raise invalid(f"timeout is {shown(text)}; it must be a number of seconds.")
    fraction_ms = int((match.group(2) or "").ljust(3, "0"))
    return min(int(match.group(1)) * 1000 + fraction_ms, WAIT_MS_MAX)


def _check_size(messages: list[Message], entity: Entity) -> None:
    """A batch counts as one message: together its messages may be as large as one."""
    size_bytes = sum(len(message.payload) for message in messages)
    size_bytes_max = min(entity.spec.message_bytes_max(), MESSAGE_BYTES_MAX)
    if size_bytes > size_bytes_max:
        raise Refused(
            MESSAGE_TOO_LARGE,
            f"The request has {size_bytes} bytes of messages; '{entity.name}' allows at most "
            f"{size_bytes_max} in one request.",
        )


def _gone(name: str) -> Refused:
    return RefusedAt(ENTITY_GONE, "The messaging entity", name, " could not be found.")


def _not_receivable(entity: Entity) -> Refused:
    return Refused(
        ENTITY_DISABLED,
        f"'{entity.name}' is {entity.spec.status}: messages cannot be received from it.",
    )
