"""Outcomes of deliveries, in both directions."""

import pytest

from shardbus.amqp.config import ConnectionConfig
from shardbus.amqp.frames import amqp_frame
from shardbus.amqp.outcomes import (
    ACCEPTED,
    RELEASED,
    AmqpError,
    Modified,
    Rejected,
    encode_state,
)
from shardbus.amqp.performatives import (
    encode_disposition,
)
from shardbus.codec.errors import UsageError
from tests.unit.amqp.bare import Bare, credit_flow, receiver_attach
from tests.unit.amqp.frames_seen import names, seen
from tests.unit.amqp.wire import (
    Lane,
    kinds,
    settlements,
)

TAG = bytes(range(16))


def test_outcomes_of_sent_messages_come_back_in_one_event() -> None:
    lane = Lane()
    lane.inlet.grant(100)
    lane.run()
    ids = [lane.sender.send(b"tag%d" % number, b"x", False) for number in range(6)]
    lane.run()
    lane.forget()

    lane.inlet.settle([ids[5], ids[0], ids[1], ids[2]], ACCEPTED)
    lane.inlet.settle([ids[3]], Rejected(AmqpError("amqp:not-allowed", "no")))
    output = lane.server.take_output()
    assert names(output) == ["disposition"] * 3
    lane.client_events += lane.client.receive(output, 0)

    accepted, rejected = settlements(lane.client_events)
    assert (accepted.ids, accepted.state, accepted.settled) == ([0, 1, 2, 5], ACCEPTED, True)
    assert accepted.tags == [b"tag0", b"tag1", b"tag2", b"tag5"]
    assert rejected.ids == [3]
    assert isinstance(rejected.state, Rejected)
    assert lane.sender.unsettled_count == 1
    assert lane.inlet.unsettled_count == 1


def test_settling_twice_or_settling_what_was_sent_settled_says_nothing() -> None:
    lane = Lane()
    lane.inlet.grant(10)
    lane.run()
    first = lane.sender.send(TAG, b"x", False)
    second = lane.sender.send(TAG, b"x", True)
    lane.run()

    lane.inlet.settle([first, second, 99], ACCEPTED)
    assert names(lane.server.take_output()) == ["disposition"]
    lane.inlet.settle([first], ACCEPTED)
    assert lane.server.take_output() == b""


def test_a_settlement_handshake_is_confirmed() -> None:
    """Rcv-settle-mode second; Python stalls 60 s without the confirmation."""
    lane = Lane()
    lane.receiver.grant(10)
    lane.run()
    ids = [lane.outlet.send(b"tag%d" % number, b"x", False) for number in range(4)]
    lane.run()
    lane.forget()

    lane.receiver.settle(ids, Modified(True, False), settled=False)
    lane.run()
    (asked,) = settlements(lane.server_events)
    assert (asked.ids, asked.settled) == (ids, False)
    assert asked.tags == [b"tag0", b"tag1", b"tag2", b"tag3"]
    assert asked.state == Modified(True, False)
    assert lane.outlet.unsettled_count == 4

    lane.outlet.confirm(asked.ids, Modified(True, False))
    output = lane.server.take_output()
    (disposition,) = seen(output)
    assert (disposition.field(0), disposition.field(3)) == (False, True)
    assert (disposition.field(1), disposition.field(2)) == (0, 3)
    lane.client_events += lane.client.receive(output, 0)
    (confirmed,) = settlements(lane.client_events)
    assert (confirmed.ids, confirmed.settled) == (ids, True)
    assert lane.outlet.unsettled_count == lane.receiver.unsettled_count == 0
    lane.outlet.confirm(asked.ids, Modified())
    assert lane.server.take_output() == b""


def test_an_outcome_is_reported_once_however_often_it_is_repeated() -> None:
    """A small frame may name a large range, again and again."""
    bare = Bare()
    link = bare.attach(receiver_attach())
    link.accept()
    bare.tell(credit_flow(100))
    for _ in range(10):
        link.send(TAG, b"x", False)
    everything = encode_disposition(True, 0, 0xFFFFFFFF, False, encode_state(RELEASED))

    assert bare.tell(everything) == ["SettlementsReceived"]
    assert bare.tell(everything) == []
    assert link.unsettled_count == 10


def test_a_range_from_back_to_front_settles_nothing() -> None:
    """Read as serial numbers it would mean nearly every delivery there is."""
    bare = Bare()
    bare.attach(receiver_attach()).accept()
    bare.tell(credit_flow(10))
    outlet = bare.server.sessions[0].links[0]
    for _ in range(8):
        outlet.send(TAG, b"x", False)

    told = bare.tell(encode_disposition(True, 5, 2, False, encode_state(ACCEPTED)))

    assert "SettlementsReceived" not in told
    assert told[-1] == "ConnectionClosed"


def test_a_disposition_without_an_outcome_changes_nothing() -> None:
    bare = Bare()
    link = bare.attach(receiver_attach())
    link.accept()
    bare.tell(credit_flow(100))
    link.send(TAG, b"x", False)

    assert bare.tell(encode_disposition(True, 0, 0, False, b"\x40")) == []
    received = bytes.fromhex("005323c003024344")
    assert bare.tell(encode_disposition(True, 0, 0, False, received)) == []
    assert bare.tell(encode_disposition(False, 0, 0, False, encode_state(ACCEPTED))) == []
    assert link.unsettled_count == 1
    assert bare.tell(encode_disposition(True, 0, 0, True, b"\x40")) == ["SettlementsReceived"]


def test_a_range_over_several_links_is_reported_for_each() -> None:
    bare = Bare()
    links = [bare.attach(receiver_attach(handle)) for handle in (0, 1)]
    for handle, link in enumerate(links):
        link.accept()
        bare.tell(credit_flow(10, handle=handle))
    for link in (links[0], links[0], links[1], links[0]):
        link.send(TAG, b"x", False)

    body = encode_disposition(True, 0, 3, True, encode_state(ACCEPTED))
    events = settlements(bare.server.receive(amqp_frame(0, body), 0))

    assert [(event.link, event.ids) for event in events] == [
        (links[0], [0, 1]),
        (links[1], [2]),
        (links[0], [3]),
    ]


def test_deliveries_are_forgotten_with_their_link() -> None:
    lane = Lane()
    lane.receiver.grant(10)
    lane.run()
    ids = [lane.outlet.send(TAG, b"x", False) for _ in range(3)]
    lane.run()
    lane.outlet.detach()
    lane.receiver.settle(ids, ACCEPTED)
    lane.forget()
    lane.run()

    assert settlements(lane.server_events) == []
    assert lane.outlet.unsettled_count == 0
    assert lane.server.is_open


def test_unsettled_deliveries_are_bounded() -> None:
    lane = Lane(server=ConnectionConfig(container_id="server", unsettled_max=3))
    lane.receiver.grant(10)
    lane.run()
    ids = [lane.outlet.send(TAG, b"x", False) for _ in range(3)]

    assert lane.outlet.sendable == 0
    with pytest.raises(UsageError):
        lane.outlet.send(TAG, b"x", False)
    lane.outlet.confirm(ids[:1], ACCEPTED)
    assert lane.outlet.sendable == 1


@pytest.mark.parametrize("settled", [False, True])
def test_a_sender_held_back_by_unsettled_deliveries_is_told_of_room(settled: bool) -> None:
    lane = Lane(server=ConnectionConfig(container_id="server", unsettled_max=3))
    lane.receiver.grant(10)
    lane.run()
    ids = [lane.outlet.send(TAG, b"x", False) for _ in range(3)]
    assert lane.outlet.sendable == 0
    lane.run()
    lane.forget()

    lane.receiver.settle(ids[:2], ACCEPTED, settled=settled)
    lane.run()
    if not settled:
        assert kinds(lane.server_events) == ["SettlementsReceived"]
        lane.outlet.confirm(ids[:2], ACCEPTED)
        lane.server_events += lane.server.receive(b"", 0)

    assert kinds(lane.server_events) == ["SettlementsReceived", "LinkFlowed"]
    assert lane.outlet.sendable == 2
