"""Deliveries: over one frame or many, aborted, too large."""

import pytest

from shardbus.amqp.config import ConnectionConfig
from shardbus.amqp.outcomes import (
    TransactionalState,
)
from shardbus.amqp.performatives import (
    Transfer,
    encode_detach,
)
from shardbus.codec import errors
from tests.unit.amqp.bare import Bare, receiver_attach, sender_attach, transfer
from tests.unit.amqp.frames_seen import error_of, seen
from tests.unit.amqp.wire import (
    Lane,
    deliveries,
    kinds,
)

TAG = bytes(range(16))
SMALL_FRAMES = ConnectionConfig(container_id="client", max_frame_size=512)


def test_consecutive_deliveries_of_a_link_are_one_event() -> None:
    lane = Lane()
    lane.inlet.grant(100)
    lane.run()
    lane.forget()
    for number in range(10):
        lane.sender.send(TAG, b"%d" % number, number % 2 == 0)
    lane.run()

    assert kinds(lane.server_events) == ["DeliveriesReceived"]
    received = deliveries(lane.server_events)
    assert [delivery.payload for delivery in received] == [b"%d" % number for number in range(10)]
    assert [delivery.delivery_id for delivery in received] == list(range(10))
    assert [delivery.settled for delivery in received] == [True, False] * 5
    assert received[0].tag == TAG


def test_formats_and_states_travel_with_a_delivery() -> None:
    lane = Lane()
    lane.inlet.grant(10)
    lane.run()
    lane.forget()
    lane.sender.send(TAG, b"batch", False, 0x80013700)
    lane.sender.send(TAG, b"enlisted", False, 0, TransactionalState(b"txn"))
    lane.run()

    batch, enlisted = deliveries(lane.server_events)
    assert (batch.message_format, batch.state) == (0x80013700, None)
    assert (enlisted.message_format, enlisted.state) == (0, TransactionalState(b"txn"))


@pytest.mark.parametrize("size", [0, 1, 440, 450, 463, 464, 465, 512, 5_000, 100_000])
def test_large_messages_are_split_over_frames_and_put_together(size: int) -> None:
    lane = Lane(client=SMALL_FRAMES)
    lane.inlet.grant(10)
    lane.receiver.grant(10)
    lane.run()
    lane.forget()
    payload = bytes(index % 251 for index in range(size))

    lane.sender.send(TAG, payload, False)
    lane.outlet.send(TAG, payload, True, 7, TransactionalState(bytes(32)))
    lane.run()

    (received,) = deliveries(lane.server_events)
    assert (received.payload, received.settled) == (payload, False)
    (back,) = deliveries(lane.client_events)
    assert (back.payload, back.settled, back.message_format) == (payload, True, 7)
    assert back.state == TransactionalState(bytes(32))


def test_no_frame_is_longer_than_the_peer_takes() -> None:
    lane = Lane(client=SMALL_FRAMES)
    lane.receiver.grant(10)
    lane.run()
    lane.outlet.send(bytes(32), bytes(10_000), False, 0x80013700, TransactionalState(bytes(32)))

    output = lane.server.take_output()

    sizes = []
    while output:
        size = int.from_bytes(output[:4], "big")
        sizes.append(size)
        output = output[size:]
    assert len(sizes) > 20
    assert max(sizes) <= 512


def test_an_aborted_delivery_leaves_no_trace() -> None:
    bare = Bare()
    link = bare.attach(sender_attach())
    link.accept()
    aborted = Transfer()
    aborted.aborted = True

    bare.tell(transfer(b"first ", delivery_id=0, more=True))
    assert bare.tell(aborted.encode()) == []
    bare.tell(transfer(b"second ", delivery_id=1, more=True))
    continuation = Transfer()
    assert bare.tell(continuation.encode() + b"end") == ["DeliveriesReceived"]
    assert link.unsettled_count == 1
    assert bare.server.buffered_bytes == 0


def test_a_later_frame_may_settle_the_delivery() -> None:
    bare = Bare()
    link = bare.attach(sender_attach())
    link.accept()
    last = Transfer()
    last.settled = True

    bare.tell(transfer(b"a", more=True))
    bare.tell(last.encode() + b"b")

    assert link.unsettled_count == 0


def test_a_new_delivery_inside_an_unfinished_one_is_an_error() -> None:
    bare = Bare()
    bare.attach(sender_attach()).accept()

    bare.tell(transfer(b"a", delivery_id=0, more=True))
    events = bare.tell(transfer(b"b", delivery_id=1))

    assert events[-1] == "ConnectionClosed"
    assert error_of(seen(bare.server.take_output())[-1]) == errors.NOT_ALLOWED


def test_a_delivery_without_an_id_is_an_error() -> None:
    bare = Bare()
    bare.attach(sender_attach()).accept()

    assert bare.tell(Transfer().encode() + b"x")[-1] == "ConnectionClosed"
    assert error_of(seen(bare.server.take_output())[-1]) == errors.INVALID_FIELD


def test_a_transfer_from_the_wrong_end_is_an_error() -> None:
    bare = Bare()
    bare.attach(receiver_attach()).accept()

    assert bare.tell(transfer(b"x"))[-1] == "ConnectionClosed"
    assert error_of(seen(bare.server.take_output())[-1]) == errors.NOT_ALLOWED


@pytest.mark.parametrize("frames", [1, 3])
def test_a_message_beyond_the_limit_ends_its_link_only(frames: int) -> None:
    bare = Bare()
    large = bare.attach(sender_attach(0))
    large.accept(max_message_size=100)
    bare.attach(sender_attach(1)).accept()
    bare.server.take_output()
    events: list[str] = []
    for number in range(frames):
        body = transfer(bytes(101 // frames + 1), more=number < frames - 1)
        events += bare.tell(body)

    assert events == ["LinkDetached"]
    refusal, detach = seen(bare.server.take_output())
    assert (refusal.name, refusal.field(1), refusal.field(3)) == ("disposition", 0, True)
    assert error_of(detach) == errors.MESSAGE_SIZE_EXCEEDED
    assert bare.tell(transfer(b"late", delivery_id=7)) == []
    assert bare.tell(encode_detach(0, True, None)) == []
    assert bare.tell(transfer(b"fine", delivery_id=8, handle=1)) == ["DeliveriesReceived"]
    assert bare.server.buffered_bytes == 0


def test_unfinished_deliveries_of_all_links_are_bounded_together() -> None:
    config = ConnectionConfig(
        sasl_required=False, idle_timeout_ms=0, buffered_bytes_max=1_000, max_message_size=0
    )
    bare = Bare(config)
    for handle in range(3):
        bare.attach(sender_attach(handle)).accept()
    bare.server.take_output()

    assert bare.tell(transfer(bytes(500), more=True, handle=0)) == []
    assert bare.tell(transfer(bytes(400), delivery_id=1, more=True, handle=1)) == []
    assert bare.tell(transfer(bytes(300), delivery_id=2, more=True, handle=2)) == ["LinkDetached"]

    refusal, detach = seen(bare.server.take_output())
    assert (refusal.name, refusal.field(1)) == ("disposition", 2)
    assert error_of(detach) == errors.RESOURCE_LIMIT_EXCEEDED
    assert bare.server.buffered_bytes == 900
