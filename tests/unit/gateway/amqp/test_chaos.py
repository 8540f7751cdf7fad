"""Clients that do everything in any order: the accepted is never lost, the completed is gone."""

from collections.abc import Callable
from random import Random

import pytest

from shardbus.amqp.events import IncomingDelivery
from shardbus.amqp.link import Link
from shardbus.amqp.outcomes import ACCEPTED, RELEASED, DeliveryState, Modified, Rejected
from shardbus.codec.types import Value
from shardbus.message.sections import decode_message
from tests.unit.gateway.amqp.bench import Bench
from tests.unit.gateway.amqp.client import RECEIVE_AND_DELETE, Client

STEPS = 300
CLIENTS_MAX = 4
OUTCOMES: list[DeliveryState] = [ACCEPTED, ACCEPTED, ACCEPTED, RELEASED, Modified(), Rejected()]


class Guest:
    """A client with what it has sent, received and settled."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.senders: list[Link] = []
        self.receivers: list[Link] = []
        self.sent: dict[tuple[int, int], bytes] = {}
        self.settled: dict[tuple[int, int], tuple[Value, DeliveryState]] = {}

    def accepted(self) -> set[Value]:
        return {
            self.sent[index, ident]
            for index, link in enumerate(self.senders)
            for ident, state in self.client.outcomes(link).items()
            if state == ACCEPTED
        }

    def completed(self) -> set[Value]:
        """Bodies whose completion the server has confirmed."""
        return {
            self.settled[index, ident][0]
            for index, link in enumerate(self.receivers)
            for ident, state in self.client.outcomes(link).items()
            if state == ACCEPTED
        }

    def asked_to_complete(self) -> set[Value]:
        return {body for body, state in self.settled.values() if state == ACCEPTED}

    def unsettled(self, index: int) -> list[IncomingDelivery]:
        deliveries = self.client.received(self.receivers[index])
        return [one for one in deliveries if (index, one.delivery_id) not in self.settled]


class Chaos:
    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.bench = Bench()
        self.queue = self.chance.choice(["q", "many"])
        self.guests: list[Guest] = []
        self.gone: list[Guest] = []
        self.numbers = 0
        self.actions: list[Callable[[Guest], None]] = [
            self.attach_sender,
            self.attach_receiver,
            *[self.send] * 4,
            *[self.grant] * 4,
            *[self.settle] * 8,
            self.drain,
            self.detach,
            self.stall,
            self.flow,
            self.leave,
        ]

    def run(self) -> None:
        for _ in range(STEPS):
            if len(self.guests) < CLIENTS_MAX and self.chance.random() < 0.1:
                self.guests.append(Guest(self.bench.client()))
            if self.guests:
                self.chance.choice(self.actions)(self.chance.choice(self.guests))
            self.bench.pass_s(self.chance.choice([0, 0, 0.0005, 0.002, 0.01, 0.05, 0.05, 0.05, 3]))
            self.bench.latency_s = self.chance.choice([0.001, 0.001, 0.01])
            self.forget_closed()

    def forget_closed(self) -> None:
        for guest in list(self.guests):
            if guest.client.is_closed():
                # The only reason the server has: a guest without a link for too long.
                assert guest.client.close_error().condition == "amqp:connection:forced"
                self.guests.remove(guest)
                self.gone.append(guest)

    def attach_sender(self, guest: Guest) -> None:
        name = f"sender {len(guest.senders)}"
        guest.senders.append(guest.client.sender(self.queue, name))

    def attach_receiver(self, guest: Guest) -> None:
        credit = self.chance.choice([0, 1, 30])
        name = f"receiver {len(guest.receivers)}"
        guest.receivers.append(guest.client.receiver(self.queue, credit, name=name))

    def send(self, guest: Guest) -> None:
        for index, link in enumerate(guest.senders):
            for _ in range(min(self.chance.randint(1, 20), link.sendable)):
                self.numbers += 1
                body = b"%d" % self.numbers
                [ident] = guest.client.send(link, body)
                guest.sent[index, ident] = body

    def grant(self, guest: Guest) -> None:
        for link in guest.receivers:
            guest.client.grant(link, self.chance.choice([0, 5, 50, 50]))

    def drain(self, guest: Guest) -> None:
        for link in guest.receivers:
            guest.client.grant(link, self.chance.choice([1, 100]), drain=True)

    def settle(self, guest: Guest) -> None:
        state = self.chance.choice(OUTCOMES)
        for index, link in enumerate(guest.receivers):
            if not link.is_attached:
                continue
            chosen = [one for one in guest.unsettled(index) if self.chance.random() < 0.7]
            for one in chosen:
                body = decode_message(one.payload).body
                guest.settled[index, one.delivery_id] = (body, state)
            is_settled = self.chance.random() < 0.2
            ids = [one.delivery_id for one in chosen]
            guest.client.settle(link, ids, state, is_settled=is_settled)

    def detach(self, guest: Guest) -> None:
        links = guest.senders + guest.receivers
        if links:
            self.chance.choice(links).detach()
            guest.client.flush()

    def stall(self, guest: Guest) -> None:
        guest.client.transport.stall()

    def flow(self, guest: Guest) -> None:
        guest.client.transport.flow()

    def leave(self, guest: Guest) -> None:
        if self.chance.random() < 0.15:
            self.guests.remove(guest)
            self.gone.append(guest)
            guest.client.transport.abort()

    def settle_down(self) -> list[Value]:
        """Everybody leaves and every lock ends; what the queue and its dead letters then hold."""
        for guest in list(self.guests):
            guest.client.transport.flow()
        self.bench.pass_s(1)
        for guest in list(self.guests):
            assert not any(link.drain for link in guest.receivers if link.is_attached)
            guest.client.transport.abort()
        self.bench.pass_s(61)
        client = self.bench.client()
        lines = [self.queue, f"{self.queue}/$DeadLetterQueue"]
        links = [
            client.receiver(line, 10_000, name=line, modes=RECEIVE_AND_DELETE) for line in lines
        ]
        self.bench.pass_s(10)
        return [body for link in links for body in client.bodies(link)]


@pytest.mark.parametrize("seed", range(8))
def test_whatever_clients_do_accepted_messages_stay_and_completed_ones_go(
    seed: int, request: pytest.FixtureRequest
) -> None:
    chaos = Chaos(seed)
    request.addfinalizer(chaos.bench.close)
    chaos.run()
    left = chaos.settle_down()

    guests = chaos.guests + chaos.gone
    accepted = set[Value]().union(*(guest.accepted() for guest in guests))
    completed = set[Value]().union(*(guest.completed() for guest in guests))
    asked = set[Value]().union(*(guest.asked_to_complete() for guest in guests))
    assert accepted
    assert len(left) == len(set(left))
    assert completed.isdisjoint(left)
    assert accepted - asked <= set(left)
    assert chaos.bench.server.connections == 1
