"""The bus's end of a link on which a client sends."""
# Compiled by mypyc.

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol, final

from mypy_extensions import i64

from shardbus.amqp.events import Event, IncomingDelivery
from shardbus.amqp.link import Link
from shardbus.amqp.outcomes import ACCEPTED, Rejected, TransactionalState
from shardbus.broker.clock import Timer
from shardbus.broker.fragment.answers import Answer
from shardbus.broker.routing.router import EntityRouter
from shardbus.codec.errors import DecodeError
from shardbus.core.errors import (
    INVALID_ARGUMENT,
    Refused,
    Unavailable,
)
from shardbus.core.message import Message
from shardbus.gateway.amqp.connection.counts import AmqpCounts
from shardbus.gateway.amqp.connection.failures import amqp_error
from shardbus.gateway.amqp.connection.throttle import Throttle
from shardbus.gateway.amqp.transactions.open import Enlistment
from shardbus.message.sections import BATCH_FORMAT, split_batch
from shardbus.message.sent import read_message

CREDIT: Final = 2_000
BATCH_MESSAGES_MAX: Final = 4_500


class Shell(Protocol):
    """The connection, as its links use it."""

    @property
    def counts(self) -> AmqpCounts: ...

    @property
    def addressed_host(self) -> str:
        """The host name by which the client addresses the server."""
        ...

    def now_ms(self) -> int: ...

    def steady_ms(self) -> int: ...

    def flush_soon(self) -> None:
        """Output may be waiting to be written."""
        ...

    def settle_soon(self, inbound: Inbound) -> None:
        """`inbound.flush` must be called before the next write."""
        ...

    def add_pending(self, size_bytes: int) -> None:
        """Add to (or, if negative, subtract from) the bytes that wait to be stored; too many pause
        reading.
        """
        ...

    def add_settling(self, count: int) -> None:
        """Add to (or, if negative, subtract from) the settlements that wait to be stored."""
        ...

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> Timer: ...

    def handle(self, events: list[Event]) -> None:
        """Process events that an answer caused."""
        ...

    def fail(self) -> None:
        """An internal error occurred: close the connection."""
        ...


@final
class Inbound:
    """Sends incoming messages to the bus, and tells the client the result of each delivery."""

    def __init__(
        self,
        link: Link,
        router: EntityRouter,
        shell: Shell,
        enlistment: Enlistment,
        throttle: Throttle | None = None,
    ) -> None:
        self.link = link
        self._router = router
        self._shell = shell
        self._enlistment = enlistment
        self._throttle = throttle
        self._counts = shell.counts
        self._accepted: list[int] = []
        self._in_flight = 0

    def open(self) -> None:
        self.link.grant(CREDIT)

    def receive(self, deliveries: list[IncomingDelivery]) -> None:
        singles = _Singles(self)
        now_ms = self._shell.now_ms()
        self._in_flight += len(deliveries)
        self._shell.add_pending(_size_of(deliveries))
        for delivery in deliveries:
            try:
                if isinstance(delivery.state, TransactionalState):
                    self._enlist(delivery, delivery.state.transaction_id)
                elif delivery.message_format == BATCH_FORMAT:
                    singles.send(self._router)
                    singles = _Singles(self)
                    self._send_batch(delivery)
                else:
                    message = read_message(delivery.payload, now_ms)
                    if self._throttle is not None:
                        self._throttle.take(1)
                    singles.add(delivery, message)
            except DecodeError as error:
                self.refused([delivery], Refused(INVALID_ARGUMENT, error.description))
            except Refused as refusal:
                self.refused([delivery], refusal)
        singles.send(self._router)

    def accepted(self, deliveries: list[IncomingDelivery], message_count: int) -> None:
        self._counts.sent += message_count
        for delivery in deliveries:
            if not delivery.settled:
                self._accepted.append(delivery.delivery_id)
        self._shell.add_pending(-_size_of(deliveries))
        self._in_flight -= len(deliveries)
        self._shell.settle_soon(self)

    def refused(self, deliveries: list[IncomingDelivery], failure: Refused | Unavailable) -> None:
        self._counts.refused(failure, len(deliveries))
        ids = [delivery.delivery_id for delivery in deliveries if not delivery.settled]
        if ids:
            self.link.settle(ids, Rejected(amqp_error(failure)))
        self._shell.add_pending(-_size_of(deliveries))
        self._in_flight -= len(deliveries)
        self._shell.settle_soon(self)

    def flush(self) -> None:
        """Settle everything accepted since the last call, in as few ranges as possible."""
        if self._accepted:
            ids, self._accepted = self._accepted, []
            self.link.settle(ids, ACCEPTED)
        if self.link.credit <= CREDIT // 2:
            self.link.grant(CREDIT - self._in_flight)

    def _send_batch(self, delivery: IncomingDelivery) -> None:
        messages = self._messages_in(delivery)
        self._router.send_batch(messages, _Batch(self, delivery, len(messages)).answered)

    def _messages_in(self, delivery: IncomingDelivery) -> list[Message]:
        payloads = [delivery.payload]
        if delivery.message_format == BATCH_FORMAT:
            payloads = split_batch(delivery.payload)
        if len(payloads) > BATCH_MESSAGES_MAX:
            raise Refused(
                INVALID_ARGUMENT,
                f"The batch has {len(payloads)} messages; at most {BATCH_MESSAGES_MAX} are "
                "allowed.",
            )
        now_ms = self._shell.now_ms()
        messages = [read_message(payload, now_ms) for payload in payloads]
        if self._throttle is not None:
            self._throttle.take(len(messages))
        return messages

    def _enlist(self, delivery: IncomingDelivery, transaction_id: bytes) -> None:
        """Keep a message for the end of its transaction; a refused one spoils the transaction."""
        try:
            self._enlistment.send(transaction_id, self._messages_in(delivery))
        except DecodeError as error:
            refusal = Refused(INVALID_ARGUMENT, error.description)
            self._enlistment.spoil(transaction_id, refusal)
            raise refusal from error
        except Refused as refusal:
            self._enlistment.spoil(transaction_id, refusal)
            raise
        if not delivery.settled:
            self.link.settle([delivery.delivery_id], TransactionalState(transaction_id, ACCEPTED))
        self._shell.add_pending(-len(delivery.payload))
        self._in_flight -= 1
        self._shell.settle_soon(self)


def _size_of(deliveries: list[IncomingDelivery]) -> int:
    size: i64 = 0
    for delivery in deliveries:
        size += len(delivery.payload)
    return size


@final
class _Batch:
    """One transfer with many messages: one outcome for all of them."""

    def __init__(self, inbound: Inbound, delivery: IncomingDelivery, message_count: int) -> None:
        self._inbound = inbound
        self._deliveries = [delivery]
        self._message_count = message_count

    def answered(self, answer: Answer) -> None:
        if isinstance(answer, Refused | Unavailable):
            self._inbound.refused(self._deliveries, answer)
        else:
            self._inbound.accepted(self._deliveries, self._message_count)


@final
class _Singles:
    """Consecutive transfers of one message each; a SendSink."""

    def __init__(self, inbound: Inbound) -> None:
        self._inbound = inbound
        self._deliveries: list[IncomingDelivery] = []
        self._messages: list[Message] = []

    def add(self, delivery: IncomingDelivery, message: Message) -> None:
        self._deliveries.append(delivery)
        self._messages.append(message)

    def send(self, router: EntityRouter) -> None:
        if self._messages:
            router.send_each(self._messages, self)

    def sent(self, positions: list[int], answer: Answer) -> None:
        deliveries = [self._deliveries[position] for position in positions]
        if isinstance(answer, Refused | Unavailable):
            self._inbound.refused(deliveries, answer)
        else:
            self._inbound.accepted(deliveries, len(deliveries))
