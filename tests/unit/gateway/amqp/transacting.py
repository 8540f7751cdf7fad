"""A client that does what it does in transactions."""

from __future__ import annotations

from shardbus.amqp.events import IncomingDelivery
from shardbus.amqp.link import Link
from shardbus.amqp.outcomes import ACCEPTED, Declared, DeliveryState, Rejected, TransactionalState
from shardbus.amqp.termini import Coordinator
from shardbus.codec import codes
from shardbus.codec.types import Described, Ulong, Value
from shardbus.message.sections import build_message, encode_data_message
from tests.unit.gateway.amqp.bench import Bench
from tests.unit.gateway.amqp.client import Client

SOON_S = 0.3


class Transacting:
    """One connection with a coordinator link, in virtual time."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.client: Client = bench.client()
        self.coordinator = self.client.sender(Coordinator(), "coordinator")
        self._senders: dict[str, Link] = {}
        self._tags = 0
        bench.pass_s()

    def declare(self) -> bytes:
        state = self.command(Described(Ulong(codes.DECLARE), [None]))
        assert isinstance(state, Declared)
        return state.transaction_id

    def commit(self, transaction_id: bytes) -> DeliveryState | None:
        return self.discharge(transaction_id, is_failed=False)

    def roll_back(self, transaction_id: bytes) -> DeliveryState | None:
        return self.discharge(transaction_id, is_failed=True)

    def discharge(self, transaction_id: bytes, *, is_failed: bool) -> DeliveryState | None:
        return self.command(Described(Ulong(codes.DISCHARGE), [transaction_id, is_failed]))

    def command(self, body: Value) -> DeliveryState | None:
        return self._send(self.coordinator, build_message(body=body), None)

    def send(
        self,
        transaction_id: bytes,
        entity: str,
        content: bytes = b"x",
        *,
        session_id: str | None = None,
        partition_key: str | None = None,
        message_format: int = 0,
    ) -> DeliveryState | None:
        payload = encode_data_message(content, session_id=session_id, partition_key=partition_key)
        return self.send_raw(transaction_id, entity, payload, message_format)

    def send_raw(
        self, transaction_id: bytes, entity: str, payload: bytes, message_format: int = 0
    ) -> DeliveryState | None:
        state = TransactionalState(transaction_id, None)
        return self._send(self.sender(entity), payload, state, message_format)

    def sender(self, entity: str) -> Link:
        if entity not in self._senders:
            self._senders[entity] = self.client.sender(entity, f"to-{entity}")
            self.bench.pass_s()
        return self._senders[entity]

    def sender_via(self, via: str, destination: str) -> Link:
        """A sender whose messages go by way of one entity to another."""
        link = self.client.session.attach_sender(
            f"via-{via}",
            target=via,
            snd_settle_mode=0,
            properties={"com.microsoft:transfer-destination-address": destination},
        )
        self.client.flush()
        self._senders[destination] = link
        self.bench.pass_s()
        return link

    def receive(self, entity: str, count: int = 1) -> tuple[Link, list[IncomingDelivery]]:
        link = self.client.receiver(entity, count, name=f"from-{entity}")
        self.bench.pass_s(SOON_S)
        return link, self.client.received(link)

    def settle(
        self, transaction_id: bytes, link: Link, delivery: IncomingDelivery, outcome: DeliveryState
    ) -> DeliveryState | None:
        state = TransactionalState(transaction_id, outcome)
        self.client.settle(link, [delivery.delivery_id], state)
        self.bench.pass_s(SOON_S)
        return self.client.outcomes(link).get(delivery.delivery_id)

    def _send(
        self,
        link: Link,
        payload: bytes,
        state: DeliveryState | None,
        message_format: int = 0,
    ) -> DeliveryState | None:
        self._tags += 1
        ident = link.send(b"t%d" % self._tags, payload, False, message_format, state)
        self.client.flush()
        self.bench.pass_s(SOON_S)
        return self.client.outcomes(link).get(ident)


def is_enlisted(state: DeliveryState | None, transaction_id: bytes) -> bool:
    """Whether it was taken into the transaction."""
    return state == TransactionalState(transaction_id, ACCEPTED)


def condition_of(state: DeliveryState | None) -> str:
    """Why something was rejected; fails unless it was."""
    assert isinstance(state, Rejected) and state.error is not None, state
    return state.error.condition


def text_of(state: DeliveryState | None) -> str:
    assert isinstance(state, Rejected) and state.error is not None, state
    return state.error.description
