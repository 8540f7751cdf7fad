"""A delivery-id that a peer uses again too early, as threads of the Python SDK do on one link."""

from shardbus.amqp.frames import amqp_frame
from shardbus.amqp.outcomes import ACCEPTED
from shardbus.amqp.performatives import Transfer
from tests.unit.amqp.frames_seen import names
from tests.unit.amqp.wire import Lane, deliveries

REQUESTS = 10


def transfer(handle: int, delivery_id: int, payload: bytes) -> bytes:
    made = Transfer()
    made.handle = handle
    made.delivery_id = delivery_id
    made.tag = b"tag"
    return amqp_frame(0, made.encode() + payload)


def receiving_lane() -> Lane:
    lane = Lane()
    lane.receiver.grant(100)
    lane.run()
    lane.forget()
    return lane


def test_deliveries_under_one_id_all_arrive_and_each_is_answered() -> None:
    lane = receiving_lane()

    for number in range(REQUESTS):
        frame = transfer(lane.outlet.handle, 1, b"%d" % number)
        lane.client_events += lane.client.receive(frame, 0)
    lane.client.take_output()
    for delivery in deliveries(lane.client_events):
        lane.receiver.settle([delivery.delivery_id], ACCEPTED)

    payloads = [delivery.payload for delivery in deliveries(lane.client_events)]
    assert payloads == [b"%d" % number for number in range(REQUESTS)]
    assert names(lane.client.take_output()) == ["disposition"] * REQUESTS


def test_an_id_that_was_used_twice_is_settled_twice_and_then_forgotten() -> None:
    lane = receiving_lane()
    for _ in range(2):
        lane.client.receive(transfer(lane.outlet.handle, 7, b"x"), 0)
    lane.client.take_output()

    for _ in range(3):
        lane.receiver.settle([7], ACCEPTED)

    assert names(lane.client.take_output()) == ["disposition"] * 2
    assert lane.receiver.unsettled_count == 0
    assert lane.receiver.session.incoming_count == 0


def test_deliveries_under_one_id_count_towards_the_bound_of_what_is_unsettled() -> None:
    lane = receiving_lane()
    lane.receiver.session.unsettled_max = 2
    for _ in range(3):
        lane.client.receive(transfer(lane.outlet.handle, 7, b"x"), 0)

    assert lane.receiver.session.incoming_count == 3

    lane.receiver.detach()

    assert lane.receiver.session.incoming_count == 0


def test_two_links_may_have_a_delivery_under_one_id() -> None:
    lane = receiving_lane()
    session = lane.receiver.session
    other = session.attach_receiver("other", source="q")
    lane.run()
    lane.attached()[-1].accept()
    lane.run()
    lane.client.receive(transfer(lane.receiver.remote_handle, 3, b"x"), 0)
    lane.client.receive(transfer(other.remote_handle, 3, b"y"), 0)
    lane.client.take_output()

    lane.receiver.settle([3], ACCEPTED)
    other.settle([3], ACCEPTED)

    assert names(lane.client.take_output()) == ["disposition"] * 2
    assert session.incoming_count == 0
    assert not session.incoming
