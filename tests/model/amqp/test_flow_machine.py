"""Credit, windows, drains and settlements between two engines, against the simplest model.

The model is a list of what was sent and a set of what has no outcome yet; the wire is cut into
pieces of any size and either direction may lag behind the other.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from shardbus.amqp.config import ConnectionConfig
from shardbus.amqp.connection import Connection
from shardbus.amqp.events import (
    ConnectionClosed,
    DeliveriesReceived,
    Event,
    LinkDetached,
    SettlementsReceived,
)
from shardbus.amqp.outcomes import ACCEPTED, RELEASED, Modified
from tests.unit.amqp.wire import Lane

CLIENT = ConnectionConfig(
    container_id="client", max_frame_size=512, incoming_window=6, unsettled_max=5
)
SERVER = ConnectionConfig(container_id="server", unsettled_max=8)
STATES = (ACCEPTED, RELEASED, Modified(True, True))


class Flows(RuleBasedStateMachine):
    """The server sends to the client on one link; the client settles, in one step or two."""

    def __init__(self) -> None:
        super().__init__()
        self.lane = Lane(client=CLIENT, server=SERVER)
        self.to_client = b""
        self.to_server = b""
        self.sent: list[bytes] = []
        self.presettled: set[int] = set()
        self.received: list[int] = []
        self.open_ids: set[int] = set()
        self.asked: dict[int, int] = {}
        self.outcomes: dict[int, int] = {}
        self.unconfirmed: dict[int, int] = {}
        self.confirmed: set[int] = set()

    @rule(credit=st.integers(0, 12))
    def grant(self, credit: int) -> None:
        self.lane.receiver.grant(credit)

    @rule(size=st.sampled_from([0, 5, 440, 1_500]), settled=st.booleans())
    def send(self, size: int, settled: bool) -> None:
        outlet = self.lane.outlet
        if outlet.credit == 0 or outlet.unsettled_count >= SERVER.unsettled_max:
            assert outlet.sendable == 0
            return
        number = len(self.sent)
        payload = number.to_bytes(4, "big") + bytes(size)
        delivery_id = outlet.send(number.to_bytes(4, "big"), payload, settled)
        assert delivery_id == number
        self.sent.append(payload)
        if settled:
            self.presettled.add(number)

    @rule(count=st.integers(1, 2_000))
    def carry_to_client(self, count: int) -> None:
        self.to_client += self.lane.server.take_output()
        piece, self.to_client = self.to_client[:count], self.to_client[count:]
        self._client(self.lane.client.receive(piece, 0))

    @rule(count=st.integers(1, 300))
    def carry_to_server(self, count: int) -> None:
        self.to_server += self.lane.client.take_output()
        piece, self.to_server = self.to_server[:count], self.to_server[count:]
        self._server(self.lane.server.receive(piece, 0))

    @precondition(lambda self: self.open_ids)
    @rule(data=st.data(), state=st.integers(0, 2), settled=st.booleans())
    def settle(self, data: st.DataObject, state: int, settled: bool) -> None:
        chosen = data.draw(st.sets(st.sampled_from(sorted(self.open_ids)), min_size=1))
        self.lane.receiver.settle(list(chosen), STATES[state], settled=settled)
        self.open_ids -= chosen
        for delivery_id in chosen:
            self.asked[delivery_id] = state
            if settled:
                self.confirmed.add(delivery_id)

    @precondition(lambda self: self.unconfirmed)
    @rule(data=st.data())
    def confirm(self, data: st.DataObject) -> None:
        chosen = data.draw(st.sets(st.sampled_from(sorted(self.unconfirmed)), min_size=1))
        for state in range(3):
            ids = [number for number in chosen if self.unconfirmed[number] == state]
            self.lane.outlet.confirm(ids, STATES[state])
        for delivery_id in chosen:
            del self.unconfirmed[delivery_id]

    @rule()
    def drain(self) -> None:
        self.lane.receiver.grant(self.lane.receiver.credit, drain=True)

    @precondition(lambda self: self.lane.outlet.drain)
    @rule()
    def answer_drain(self) -> None:
        self.lane.outlet.drained()
        assert self.lane.outlet.credit == 0

    @rule()
    def fall_silent(self) -> None:
        """Everything on the wire arrives; then both ends agree on where they stand."""
        for _ in range(50):
            self.carry_to_client(10**6)
            self.carry_to_server(10**6)
        assert not self.to_client
        assert not self.to_server
        waiting = len(self.sent) - len(self.received)
        if waiting == 0:
            assert self.lane.outlet.credit == self.lane.receiver.credit
        else:
            # Credit that was taken back too late is still used by what waits.
            assert self.lane.outlet.credit + waiting >= self.lane.receiver.credit
            # Only a client with too much unsettled keeps its window shut.
            assert self.lane.receiver.unsettled_count >= CLIENT.unsettled_max
        assert set(self.outcomes) == set(self.asked)
        assert self.lane.outlet.unsettled_count == (
            len(self.sent) - len(self.presettled) - len(self.confirmed | self._answered())
        )

    def _answered(self) -> set[int]:
        return {number for number in self.outcomes if number not in self.unconfirmed}

    def _client(self, events: list[Event]) -> None:
        for event in events:
            assert not isinstance(event, (ConnectionClosed, LinkDetached))
            if isinstance(event, DeliveriesReceived):
                for delivery in event.deliveries:
                    assert delivery.payload == self.sent[len(self.received)]
                    assert delivery.settled == (delivery.delivery_id in self.presettled)
                    self.received.append(delivery.delivery_id)
                    if not delivery.settled:
                        self.open_ids.add(delivery.delivery_id)
            elif isinstance(event, SettlementsReceived):
                assert event.settled
                for delivery_id in event.ids:
                    assert event.state == STATES[self.asked[delivery_id]]
                    assert delivery_id not in self.confirmed
                    self.confirmed.add(delivery_id)

    def _server(self, events: list[Event]) -> None:
        for event in events:
            assert not isinstance(event, (ConnectionClosed, LinkDetached))
            if isinstance(event, SettlementsReceived):
                for delivery_id, tag in zip(event.ids, event.tags, strict=True):
                    assert tag == delivery_id.to_bytes(4, "big")
                    assert delivery_id not in self.outcomes
                    state = [known == event.state for known in STATES].index(True)
                    self.outcomes[delivery_id] = state
                    assert state == self.asked[delivery_id]
                    if not event.settled:
                        self.unconfirmed[delivery_id] = state

    @invariant()
    def deliveries_come_once_and_in_order(self) -> None:
        assert self.received == list(range(len(self.received)))
        assert len(self.received) <= len(self.sent)

    @invariant()
    def nothing_is_buffered_beyond_its_bound(self) -> None:
        ends: tuple[Connection, ...] = (self.lane.client, self.lane.server)
        for end in ends:
            assert 0 <= end.buffered_bytes <= 2_000
        assert self.lane.receiver.unsettled_count <= CLIENT.unsettled_max + CLIENT.incoming_window
        assert 0 <= self.lane.outlet.sendable <= self.lane.outlet.credit


Flows.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestFlows = Flows.TestCase
