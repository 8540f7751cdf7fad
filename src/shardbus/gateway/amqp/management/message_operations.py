"""Translates management requests about messages."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final, TypeVar, final

from shardbus.broker.clock import Clock
from shardbus.broker.operations.browse import BrowseCursor
from shardbus.codec.codes import LONG, TIMESTAMP
from shardbus.codec.errors import DecodeError
from shardbus.codec.types import Array, Int, Timestamp, Uuid, Value, text_of, value_of
from shardbus.core.errors import INVALID_ARGUMENT, TOO_LARGE, Refused
from shardbus.core.limits import DEFERRED_COUNT_MAX
from shardbus.core.message import DEFERRED, Entry, Message
from shardbus.core.messages.command import ABANDON, COMPLETE, DEAD_LETTER, DEFER, Delivery, Settle
from shardbus.gateway.amqp.links.inbound import BATCH_MESSAGES_MAX
from shardbus.gateway.amqp.links.session_hold import held_answer
from shardbus.gateway.amqp.links.settlement import dead_letter_with, settle_with
from shardbus.gateway.amqp.management.desk import DELETE_COUNT_MAX, Desk
from shardbus.gateway.amqp.management.fields import RequestFields, guid_swapped
from shardbus.gateway.amqp.management.requests import NodeResponse
from shardbus.message.sections import drop_body
from shardbus.message.seen import DESCRIPTION_KEY, REASON_KEY
from shardbus.message.sent import read_message
from shardbus.message.stored import DeliverySource, encode_entry, encode_received

RECEIVE_AND_DELETE: Final = 0
PEEK_LOCK: Final = 1

# SDKs and the service write "defered".
_DISPOSITIONS: Final = {
    "completed": COMPLETE,
    "abandoned": ABANDON,
    "suspended": DEAD_LETTER,
    "defered": DEFER,
    "deferred": DEFER,
}

T = TypeVar("T")


@final
class MessageOperations:
    """The requests of one link about messages."""

    def __init__(self, desk: Desk, clock: Clock) -> None:
        self._desk = desk
        self._clock = clock
        self._cursor = BrowseCursor()

    async def renew_lock(self, fields: RequestFields) -> NodeResponse:
        deadlines = await self._desk.operations.renew(fields.tokens())
        expirations = Array(TIMESTAMP, [Timestamp(deadline_ms) for deadline_ms in deadlines])
        return NodeResponse(200, "OK", {"expirations": expirations})

    async def update_disposition(self, fields: RequestFields) -> NodeResponse:
        await self._holding(fields, self._desk.operations.settle(self.settlement(fields)))
        return NodeResponse(200, "OK", {})

    def settlement(self, fields: RequestFields) -> Settle:
        """The settlement of an update-disposition."""
        status = fields.text("disposition-status")
        how = _DISPOSITIONS.get(status) if status is not None else None
        if how is None:
            raise fields.bad("disposition-status", f"cannot be {status!r:.100}")
        given = fields.properties("properties-to-modify")
        if how == DEAD_LETTER:
            command = dead_letter_with(fields.tokens(), {**(given or {}), **_reasons(fields)})
        else:
            command = settle_with(how, fields.tokens(), given)
        # Refused when the connection does not hold the session; the lock tokens alone identify the
        # messages.
        token = self._desk.session_token(fields)
        if self._desk.shared_hold(fields) is not None:
            command.session = token
        return command

    async def peek(self, fields: RequestFields) -> NodeResponse:
        start = fields.integer("from-sequence-number")
        count = fields.integer("message-count", least=1)
        omits_body = fields.flag("omit-message-body")
        session_id = fields.text("session-id")
        if session_id is not None:
            self._desk.require_sessions(fields.operation)
        entries = await self._desk.operations.peek(
            self._desk.line,
            start=start,
            count_max=count,
            # A session is in one fragment: there is nothing to merge and to remember.
            cursor=self._cursor if session_id is None else BrowseCursor(),
            session_id=session_id,
        )
        return _messages([{"message": self._peeked(entry, omits_body)} for entry in entries])

    async def receive_deferred(self, fields: RequestFields) -> NodeResponse:
        mode = fields.integer("receiver-settle-mode", default=PEEK_LOCK)
        if mode not in (RECEIVE_AND_DELETE, PEEK_LOCK):
            raise fields.bad("receiver-settle-mode", "must be 0 or 1")
        is_locking = mode == PEEK_LOCK
        receiving = self._desk.operations.receive_deferred(
            self._desk.line,
            fields.numbers(count_max=DEFERRED_COUNT_MAX),
            is_locking=is_locking,
            session=self._desk.session_token(fields),
        )
        deliveries = await self._holding(fields, receiving)
        return _messages([self._received(delivery, is_locking) for delivery in deliveries])

    async def schedule(self, fields: RequestFields) -> NodeResponse:
        return scheduled(await self._desk.operations.schedule(self.to_schedule(fields)))

    def to_schedule(self, fields: RequestFields) -> list[Message]:
        """The messages of a schedule-message."""
        items = fields.items("messages", count_max=BATCH_MESSAGES_MAX)
        now_ms = self._clock.now_ms()
        return [self._scheduled(fields, item, now_ms) for item in items]

    async def cancel(self, fields: RequestFields) -> NodeResponse:
        await self._desk.operations.cancel(fields.numbers())
        return NodeResponse(200, "OK", {})

    async def delete(self, fields: RequestFields) -> NodeResponse:
        count = fields.integer("message-count", least=1)
        if count > DELETE_COUNT_MAX:
            raise fields.bad("message-count", f"must be at most {DELETE_COUNT_MAX}")
        until_ms = fields.moment_ms("enqueued-time-utc")
        deleted = 0
        # No message was enqueued before the epoch, and the bus takes 0 as "no limit".
        if until_ms > 0:
            purging = self._desk.operations.purge(
                self._desk.line,
                count_max=count,
                enqueued_until_ms=until_ms,
                session=self._desk.session_token(fields),
            )
            deleted = await self._holding(fields, purging)
        body = {"message-count": Int(deleted)}
        return NodeResponse(200, "OK", body) if deleted else NodeResponse(204, "No Content", body)

    async def _holding(self, fields: RequestFields, answer: Awaitable[T]) -> T:
        """An answer; by it the link of a session that was taken over learns of that."""
        hold = self._desk.shared_hold(fields)
        return await (answer if hold is None else held_answer(hold, answer))

    def _source(self) -> DeliverySource:
        return DeliverySource(
            is_partitioned=self._desk.is_partitioned,
            is_subscription=self._desk.is_subscription,
        )

    def _peeked(self, entry: Entry, omits_body: bool) -> bytes:
        payload = entry.payload or b""
        # A deferred message was locked once, and .NET looks for until when: here a moment that has
        # passed.
        return encode_entry(
            entry,
            drop_body(payload) if omits_body else payload,
            self._source(),
            delivery_count=entry.delivery_count,
            locked_until_ms=entry.enqueued_at_ms if entry.state == DEFERRED else -1,
        )

    def _received(self, delivery: Delivery, is_locking: bool) -> dict[str, Value]:
        message = encode_received(delivery, self._source(), is_locked=is_locking)
        if not is_locking:
            return {"message": message}
        return {"message": message, "lock-token": Uuid(guid_swapped(delivery.token))}

    def _scheduled(self, fields: RequestFields, item: Value, now_ms: int) -> Message:
        payload: Value = None
        if isinstance(item, dict):
            payload = next(
                (value_of(value) for key, value in item.items() if text_of(key) == "message"), None
            )
        if not isinstance(payload, bytes):
            raise fields.bad("messages", "must hold maps with a binary 'message'")
        size_bytes_max = self._desk.spec.message_bytes_max()
        if len(payload) > size_bytes_max:
            raise Refused(
                TOO_LARGE,
                f"The message has {len(payload)} bytes; at most {size_bytes_max} are allowed.",
            )
        try:
            return read_message(payload, now_ms)
        except DecodeError as error:
            raise Refused(INVALID_ARGUMENT, error.description) from error


def _reasons(fields: RequestFields) -> dict[Value, Value]:
    """Reason and description of a dead letter in a request; an empty text counts as missing."""
    said = {
        REASON_KEY: fields.value("deadletter-reason"),
        DESCRIPTION_KEY: fields.value("deadletter-description"),
    }
    return {name: value for name, value in said.items() if value is not None and value != ""}


def scheduled(numbers: list[int]) -> NodeResponse:
    return NodeResponse(200, "OK", {"sequence-numbers": Array(LONG, list(numbers))})


def _messages(messages: list[dict[str, Value]]) -> NodeResponse:
    if not messages:
        return NodeResponse(204, "No Content", {"messages": []})
    return NodeResponse(200, "OK", {"messages": messages})
