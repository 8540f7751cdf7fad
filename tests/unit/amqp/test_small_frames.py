"""A peer that takes small frames gets none that is longer, whatever there is to be told."""

import pytest

from shardbus.amqp.config import ConnectionConfig
from shardbus.amqp.events import ConnectionClosed, LinkDetached, SettlementsReceived
from shardbus.amqp.outcomes import ACCEPTED, AmqpError, Rejected
from shardbus.codec import errors
from tests.unit.amqp.frames_seen import seen
from tests.unit.amqp.wire import Lane, Wire

FRAME_BYTES = 512
SMALL = ConnectionConfig(container_id="client", max_frame_size=FRAME_BYTES)
TAG = bytes(16)
LONG = AmqpError("amqp:not-allowed", "grüße " * 300)


def tell(wire: Wire) -> None:
    """Carry what the server wrote to the client; no frame of it may be too long."""
    output = wire.server.take_output()
    assert seen(output)
    position = 0
    while position < len(output):
        size = int.from_bytes(output[position : position + 4], "big")
        assert size <= FRAME_BYTES
        position += size
    wire.client_events += wire.client.receive(output, wire.now_ms)


def is_told(error: AmqpError | None) -> bool:
    """Whether an error came with its condition, and with as much of its text as there was room."""
    return (
        error is not None
        and error.condition == LONG.condition
        and LONG.description.startswith(error.description)
        and len(error.description) > 200
    )


def test_a_long_reason_is_cut_when_a_link_is_refused_or_ended() -> None:
    lane = Lane(client=SMALL)
    lane.session.attach_sender("another", target="queue")
    lane.run()
    refused = lane.attached()[-1]

    refused.refuse(LONG)
    lane.outlet.detach(LONG)
    tell(lane)

    ends = [event for event in lane.client_events if isinstance(event, LinkDetached)]
    assert [is_told(end.error) for end in ends] == [True, True]


def test_a_long_reason_is_cut_when_a_delivery_is_rejected() -> None:
    lane = Lane(client=SMALL)
    lane.receiver.grant(1)
    lane.inlet.grant(1)
    lane.run()
    sent = lane.outlet.send(TAG, b"out", False)
    came = lane.sender.send(TAG, b"in", False)
    lane.run()
    lane.receiver.settle([sent], ACCEPTED, settled=False)
    lane.run()
    lane.forget()

    lane.outlet.confirm([sent], Rejected(LONG))
    lane.inlet.settle([came], Rejected(LONG))
    tell(lane)

    outcomes = [event for event in lane.client_events if isinstance(event, SettlementsReceived)]
    assert len(outcomes) == 2
    for outcome in outcomes:
        assert isinstance(outcome.state, Rejected)
        assert is_told(outcome.state.error)


def test_a_long_reason_is_cut_when_a_session_or_the_connection_ends() -> None:
    lane = Lane(client=SMALL)

    lane.server.sessions[0].end(LONG)
    tell(lane)
    lane.server.take_output()
    lane.server.close(LONG)
    tell(lane)

    [closed] = [event for event in lane.client_events if isinstance(event, ConnectionClosed)]
    assert is_told(closed.error)


def test_a_reason_that_fits_is_told_whole() -> None:
    lane = Lane(client=SMALL)
    error = AmqpError("amqp:not-allowed", "ü" * 150)

    lane.outlet.detach(error)
    tell(lane)

    [end] = [event for event in lane.client_events if isinstance(event, LinkDetached)]
    assert end.error == error


@pytest.mark.parametrize("size", range(420, 470, 5))
def test_an_attach_whose_answer_no_frame_can_hold_is_refused(size: int) -> None:
    """The address must come back as it was sent, so nothing can be left out."""
    wire = Wire(client=SMALL)
    wire.open()
    link = wire.client.begin_session().attach_receiver("long", source="a" * size)
    wire.run()
    [asked] = wire.attached()

    events = asked.accept()
    tell(wire)

    told = [event.error for event in wire.client_events if isinstance(event, LinkDetached)]
    if size <= 435:
        assert link.is_attached
        assert events == []
    elif size >= 455:
        assert [error.condition for error in told if error] == [errors.FRAME_SIZE_TOO_SMALL]
        assert [type(event) for event in events] == [LinkDetached]


def test_a_link_name_that_cannot_be_answered_ends_the_connection() -> None:
    wire = Wire(client=SMALL)
    wire.open()
    session = wire.client.begin_session()
    session.attach_sender("n" * 600, target="queue")
    wire.run()

    [closed] = [event for event in wire.client_events if isinstance(event, ConnectionClosed)]
    assert closed.error is not None
    assert closed.error.condition == errors.FRAME_SIZE_TOO_SMALL
