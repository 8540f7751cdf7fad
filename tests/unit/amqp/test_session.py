"""Sessions: windows in both directions, and what waits for them."""

import pytest

from shardbus.amqp.config import ConnectionConfig
from shardbus.amqp.connection import Connection
from shardbus.amqp.events import LinkAttached
from shardbus.amqp.frames import amqp_frame
from shardbus.amqp.outcomes import ACCEPTED
from shardbus.amqp.performatives import Begin, Flow, Transfer, encode_detach
from shardbus.codec import errors
from shardbus.codec.errors import UsageError
from tests.unit.amqp.bare import receiver_attach
from tests.unit.amqp.frames_seen import error_of, names, seen
from tests.unit.amqp.wire import AMQP_HEADER, Lane, deliveries, kinds

TAG = bytes(16)
NARROW = ConnectionConfig(container_id="client", incoming_window=4, unsettled_max=2)


def narrow_lane() -> Lane:
    """The client takes four transfers, and no more while two are unsettled."""
    lane = Lane(client=NARROW)
    lane.receiver.grant(100)
    lane.run()
    lane.forget()
    return lane


def test_the_window_opens_again_by_itself() -> None:
    lane = Lane(client=ConnectionConfig(container_id="client", incoming_window=4))
    lane.receiver.grant(100)
    lane.run()

    for _ in range(50):
        lane.outlet.send(TAG, b"x", True)
        lane.run()

    assert len(deliveries(lane.client_events)) == 50


def test_transfers_beyond_the_window_wait_and_keep_their_order() -> None:
    lane = narrow_lane()
    ids = [lane.outlet.send(TAG, b"%d" % number, False) for number in range(10)]

    assert ids == list(range(10))
    assert lane.outlet.sendable == 0
    assert names(lane.server.take_output()) == ["transfer"] * 4


def test_what_waited_goes_out_when_the_window_opens() -> None:
    lane = narrow_lane()
    for number in range(10):
        lane.outlet.send(TAG, b"%d" % number, False)
    lane.run()
    received = deliveries(lane.client_events)
    assert len(received) == 4

    settled = 0
    for _ in range(10):
        lane.receiver.settle([delivery.delivery_id for delivery in received[settled:]], ACCEPTED)
        settled = len(received)
        lane.run()
        received = deliveries(lane.client_events)

    assert [delivery.payload for delivery in received] == [b"%d" % number for number in range(10)]
    assert lane.outlet.credit == 90


def test_a_sender_is_told_when_the_window_opens() -> None:
    lane = narrow_lane()
    for number in range(4):
        lane.outlet.send(TAG, b"%d" % number, False)
    assert lane.outlet.sendable == 0
    lane.run()
    assert kinds(lane.server_events) == []

    lane.receiver.settle([0, 1, 2, 3], ACCEPTED)
    lane.run()

    assert "LinkFlowed" in kinds(lane.server_events)
    assert lane.outlet.sendable == 4


def test_nothing_can_be_sent_after_a_close() -> None:
    lane = narrow_lane()
    assert lane.outlet.sendable == 4

    lane.server.close()

    assert lane.outlet.sendable == 0


def test_a_sender_that_was_not_held_back_is_not_woken() -> None:
    lane = narrow_lane()
    for number in range(4):
        lane.outlet.send(TAG, b"%d" % number, False)
    lane.run()
    lane.receiver.settle([0, 1, 2, 3], ACCEPTED)
    lane.run()

    assert "LinkFlowed" not in kinds(lane.server_events)


def test_our_detach_follows_the_transfers_that_wait() -> None:
    lane = narrow_lane()
    for number in range(6):
        lane.outlet.send(TAG, b"%d" % number, True)
    lane.outlet.detach()
    assert names(lane.server.take_output()) == ["transfer"] * 4

    flow = Flow()
    flow.next_incoming_id = 4
    flow.incoming_window = 10
    lane.server.receive(amqp_frame(0, flow.encode()), 0)

    assert names(lane.server.take_output()) == ["transfer", "transfer", "detach"]


def test_a_window_counts_what_is_still_on_its_way() -> None:
    """Part 2, 2.5.6: next-incoming-id + incoming-window - next-outgoing-id."""
    lane = narrow_lane()
    for number in range(3):
        lane.outlet.send(TAG, b"%d" % number, True)
    late = Flow()
    late.next_incoming_id = 1
    late.incoming_window = 4

    lane.server.receive(amqp_frame(0, late.encode()), 0)

    assert lane.outlet.sendable == 2


def test_a_detach_that_waits_goes_out_when_the_peers_own_arrives() -> None:
    lane = narrow_lane()
    for number in range(6):
        lane.outlet.send(TAG, b"%d" % number, True)
    lane.outlet.detach()
    lane.server.take_output()

    events = lane.server.receive(amqp_frame(0, encode_detach(1, True, None)), 0)

    assert kinds(events) == ["LinkDetached"]
    assert names(lane.server.take_output()) == ["detach"]


def test_a_drain_is_answered_after_the_transfers_that_wait() -> None:
    lane = narrow_lane()
    for number in range(6):
        lane.outlet.send(TAG, b"%d" % number, True)
    lane.outlet.drained()
    assert names(lane.server.take_output()) == ["transfer"] * 4

    flow = Flow()
    flow.next_incoming_id = 4
    flow.incoming_window = 10
    lane.server.receive(amqp_frame(0, flow.encode()), 0)

    frames = seen(lane.server.take_output())
    assert [frame.name for frame in frames] == ["transfer", "transfer", "flow"]
    assert (frames[2].field(5), frames[2].field(6), frames[2].field(8)) == (100, 0, True)


def test_a_peers_detach_drops_what_waits_for_it_only() -> None:
    lane = narrow_lane()
    other = lane.session.attach_receiver("other", source="queue")
    lane.run()
    (outlet,) = lane.attached()
    outlet.accept()
    other.grant(10)
    lane.run()
    for number in range(4):
        lane.outlet.send(TAG, b"%d" % number, True)
    lane.outlet.send(TAG, b"dropped", True)
    outlet.send(TAG, b"kept", True)
    lane.forget()
    lane.receiver.detach()
    lane.run()

    payloads = [delivery.payload for delivery in deliveries(lane.client_events)]
    assert payloads[-1] == b"kept"
    assert b"dropped" not in payloads
    assert lane.server.is_open
    assert lane.client.is_open


def test_bytes_that_wait_are_bounded() -> None:
    lane = Lane(
        client=NARROW,
        server=ConnectionConfig(container_id="server", buffered_bytes_max=5_000),
    )
    lane.receiver.grant(100)
    lane.run()
    for _ in range(4):
        lane.outlet.send(TAG, bytes(1_000), True)
    for _ in range(5):
        lane.outlet.send(TAG, bytes(1_000), True)

    with pytest.raises(UsageError):
        lane.outlet.send(TAG, bytes(1_000), True)


def test_more_transfers_than_the_window_allows_are_an_error() -> None:
    few = ConnectionConfig(container_id="server", incoming_window=4, unsettled_max=2)
    lane = Lane(server=few)
    head = Transfer()
    head.handle = 0
    head.tag = b"t"
    events = []
    for number in range(7):
        head.delivery_id = number
        events += lane.server.receive(amqp_frame(0, head.encode() + b"x"), 0)

    assert kinds(events)[-1] == "ConnectionClosed"
    assert error_of(seen(lane.server.take_output())[-1]) == errors.WINDOW_VIOLATION


def test_delivery_ids_are_contiguous_over_the_links_of_a_session() -> None:
    """JavaScript insists on it."""
    lane = Lane()
    other = lane.session.attach_receiver("other", source="queue")
    lane.run()
    (outlet,) = lane.attached()
    outlet.accept()
    other.grant(10)
    lane.receiver.grant(10)
    lane.run()

    ids = [link.send(TAG, b"x", True) for link in (lane.outlet, outlet, lane.outlet, outlet)]

    assert ids == [0, 1, 2, 3]


def test_a_link_cannot_be_attached_to_a_session_that_is_over() -> None:
    lane = Lane()
    lane.session.end()
    lane.run()

    with pytest.raises(UsageError):
        lane.session.attach_sender("late", target="queue")


def test_messages_of_many_frames_are_counted_as_such() -> None:
    """What would only wait here for the window is not to be locked for this client."""
    client = ConnectionConfig(max_frame_size=512, incoming_window=40)
    lane = Lane(client)
    lane.receiver.grant(100)
    lane.run()
    assert lane.outlet.sendable == 40

    lane.outlet.send(TAG, b"x" * 4_000, False)

    frames = names(lane.server.take_output()).count("transfer")
    assert frames == 10
    assert lane.outlet.sendable == (40 - frames) // frames


def test_while_the_window_is_open_one_message_goes_however_large_they_are() -> None:
    lane = Lane(ConnectionConfig(max_frame_size=512, incoming_window=15))
    lane.receiver.grant(100)
    lane.run()

    lane.outlet.send(TAG, b"x" * 4_000, False)
    assert lane.outlet.sendable == 1

    lane.outlet.send(TAG, b"x" * 4_000, False)
    assert lane.outlet.sendable == 0


def test_handles_stay_within_what_the_peer_takes() -> None:
    """Those of the peer may be higher: each end says how far the handles of the other may go."""
    server = Connection(ConnectionConfig(sasl_required=False, idle_timeout_ms=0), True, 0)
    begin = Begin()
    begin.incoming_window = begin.outgoing_window = 100
    begin.handle_max = 1
    opening = amqp_frame(0, b"\x00\x53\x10\xc0\x04\x01\xa1\x01a") + amqp_frame(0, begin.encode())
    attaches = [receiver_attach(handle) for handle in (100, 0, 7)]
    frames = b"".join(amqp_frame(0, attach.encode()) for attach in attaches)
    server.receive(AMQP_HEADER + opening, 0)
    server.take_output()

    attached = server.receive(frames, 0)

    links = [event.link for event in attached if isinstance(event, LinkAttached)]
    assert [(link.remote_handle, link.handle) for link in links] == [(100, 0), (0, 1)]
    # The third has no handle that the peer would take.
    assert error_of(seen(server.take_output())[-1]) == errors.RESOURCE_LIMIT_EXCEEDED
