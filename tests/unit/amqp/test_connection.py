"""The connection: headers, SASL, open and close, sessions, heart-beats and silence."""

import pytest

from shardbus.amqp.config import ConnectionConfig
from shardbus.amqp.connection import Connection
from shardbus.amqp.events import (
    ConnectionClosed,
    SaslFailed,
    SaslInitReceived,
    SessionEnded,
)
from shardbus.amqp.frames import HEARTBEAT, amqp_frame, sasl_frame
from shardbus.amqp.outcomes import AmqpError
from shardbus.amqp.performatives import (
    Attach,
    Begin,
    Open,
    encode_close,
    encode_disposition,
    encode_end,
)
from shardbus.amqp.sasl import SaslInit, encode_init
from shardbus.codec import errors
from shardbus.codec.encoder import encode_fields
from shardbus.codec.errors import UsageError
from shardbus.codec.types import Symbol
from tests.unit.amqp.frames_seen import error_of, names, seen
from tests.unit.amqp.wire import (
    AMQP_HEADER,
    SASL_HEADER,
    Lane,
    Wire,
    byte_by_byte,
    detachments,
    kinds,
)

NO_SASL = ConnectionConfig(container_id="server", sasl_required=False, idle_timeout_ms=0)


def plain_server(config: ConnectionConfig = NO_SASL) -> Connection:
    """A server that has seen the AMQP header and an open."""
    server = Connection(config, True, 0)
    server.receive(AMQP_HEADER + open_frame(), 0)
    server.take_output()
    return server


def open_frame(max_frame_size: int = 65_536, idle_timeout_ms: int = 0) -> bytes:
    opened = Open()
    opened.container_id = "peer"
    opened.max_frame_size = max_frame_size
    opened.idle_timeout_ms = idle_timeout_ms
    return amqp_frame(0, opened.encode())


def begin_frame(channel: int) -> bytes:
    begin = Begin()
    begin.incoming_window = 2_048
    begin.outgoing_window = 2_048
    return amqp_frame(channel, begin.encode())


def attach_frame(channel: int, handle: int, name: str, is_receiver: bool = False) -> bytes:
    attach = Attach()
    attach.name = name
    attach.handle = handle
    attach.is_receiver = is_receiver
    attach.initial_delivery_count = -1 if is_receiver else 0
    return amqp_frame(channel, attach.encode())


@pytest.mark.parametrize("mechanism", ["ANONYMOUS", "PLAIN", "EXTERNAL", "MSSBCBS"])
def test_every_mechanism_opens_a_connection(mechanism: str) -> None:
    config = ConnectionConfig(
        container_id="client", sasl_mechanism=mechanism, sasl_response=b"\0rule\0key"
    )

    wire = Wire(client=config).open()

    assert kinds(wire.client_events) == ["ConnectionOpened"]
    assert kinds(wire.server_events) == ["SaslInitReceived", "ConnectionOpened"]
    init = wire.server_events[0]
    assert isinstance(init, SaslInitReceived)
    assert (init.mechanism, init.response) == (mechanism, b"\0rule\0key")
    assert wire.client.is_open
    assert wire.server.remote_container_id == "client"
    assert wire.client.remote_container_id == "server"


def test_the_same_conversation_byte_by_byte() -> None:
    wire = Wire(cut=byte_by_byte).open()

    assert kinds(wire.server_events) == ["SaslInitReceived", "ConnectionOpened"]
    assert wire.client.is_open


def test_the_server_offers_its_mechanisms_in_order() -> None:
    server = Connection(ConnectionConfig(), True, 0)
    server.receive(SASL_HEADER, 0)

    header, mechanisms = seen(server.take_output())

    assert (header.name, header.channel) == ("header", 3)
    expected = ["MSSBCBS", "PLAIN", "ANONYMOUS", "EXTERNAL"]
    assert mechanisms.field(0) == [Symbol(name) for name in expected]


def test_refused_credentials_end_both_ends() -> None:
    wire = Wire()
    wire.accepts_sasl = False
    wire.open()

    assert kinds(wire.client_events) == ["SaslFailed", "ConnectionClosed"]
    failed = wire.client_events[0]
    assert isinstance(failed, SaslFailed)
    assert failed.code == 1
    assert wire.client.is_closed
    assert wire.server.is_closed
    assert kinds(wire.server_events)[-1] == "ConnectionClosed"


def test_a_mechanism_that_is_not_offered_is_refused_by_either_end() -> None:
    only_plain = ConnectionConfig(sasl_mechanisms=("PLAIN",))
    wire = Wire(server=only_plain).open()
    assert kinds(wire.client_events) == ["SaslFailed", "ConnectionClosed"]

    server = Connection(only_plain, True, 0)
    init = sasl_frame(encode_init(SaslInit("EXTERNAL", b"", "")))
    events = server.receive(SASL_HEADER + init, 0)
    assert kinds(events) == ["ConnectionClosed"]
    outcome = seen(server.take_output())[-1]
    assert (outcome.name, outcome.field(0)) == ("sasl-outcome", 1)


def test_a_client_may_skip_sasl_only_where_that_is_allowed() -> None:
    no_sasl = ConnectionConfig(container_id="client", sasl_mechanism="")
    assert Wire(client=no_sasl, server=NO_SASL).open().client.is_open

    refused = Wire(client=no_sasl, server=ConnectionConfig(sasl_required=True)).open()
    assert refused.server.is_closed
    assert refused.client.is_closed


@pytest.mark.parametrize(
    "first", [b"GET / HTTP/1.1\r\n", b"AMQP\x02\x01\x00\x00", b"AMQP\x00\x00\x09\x01", bytes(8)]
)
def test_another_protocol_gets_our_header_and_is_closed(first: bytes) -> None:
    """Part 2, 2.2: the server writes the header that it would accept."""
    server = Connection(ConnectionConfig(), True, 0)

    events = server.receive(first, 0)

    assert kinds(events) == ["ConnectionClosed"]
    assert server.take_output() == SASL_HEADER
    assert server.is_closed


def test_a_peer_may_pipeline_everything_before_the_first_answer() -> None:
    """Python pipelines header, open, begin and both $cbs attaches on channel 1."""
    server = Connection(NO_SASL, True, 0)
    pipelined = (
        AMQP_HEADER
        + open_frame()
        + begin_frame(1)
        + attach_frame(1, 1, "request")
        + attach_frame(1, 2, "response", is_receiver=True)
    )

    events = server.receive(pipelined, 0)

    assert kinds(events) == ["ConnectionOpened", "SessionBegun", "LinkAttached", "LinkAttached"]
    header, opened, begun = seen(server.take_output())
    assert (header.name, opened.name, begun.name) == ("header", "open", "begin")
    assert (opened.channel, begun.channel, begun.field(0)) == (0, 1, 1)


def test_input_behind_a_sasl_init_waits_for_the_outcome() -> None:
    server = Connection(ConnectionConfig(), True, 0)
    init = sasl_frame(encode_init(SaslInit("ANONYMOUS", b"", "")))

    first = server.receive(SASL_HEADER + init + AMQP_HEADER + open_frame(), 0)
    second = server.receive(begin_frame(0), 0)
    third = server.sasl_outcome(True)

    assert kinds(first) == ["SaslInitReceived"]
    assert second == []
    assert kinds(third) == ["ConnectionOpened", "SessionBegun"]


def test_a_flood_before_the_sasl_outcome_is_cut_off() -> None:
    server = Connection(ConnectionConfig(accepted_frame_size=512), True, 0)
    server.receive(SASL_HEADER + sasl_frame(encode_init(SaslInit("ANONYMOUS", b"", ""))), 0)

    events = server.receive(bytes(2_000), 0)

    assert kinds(events) == ["ConnectionClosed"]
    assert server.sasl_outcome(True) == []


def test_frames_are_as_long_as_both_ends_can_take() -> None:
    small = ConnectionConfig(container_id="client", max_frame_size=1_024)

    wire = Wire(client=small).open()

    assert wire.client.frame_size_max == 1_024
    assert wire.server.frame_size_max == 1_024


def test_a_frame_size_below_the_minimum_is_refused() -> None:
    server = Connection(NO_SASL, True, 0)

    events = server.receive(AMQP_HEADER + open_frame(max_frame_size=511), 0)

    assert kinds(events) == ["ConnectionClosed"]
    frames = seen(server.take_output())
    assert [frame.name for frame in frames] == ["header", "open", "close"]
    assert error_of(frames[-1]) == errors.INVALID_FIELD


def test_a_close_is_answered_and_ends_everything_once() -> None:
    lane = Lane()
    lane.client.close(AmqpError("amqp:connection:forced", "bye"))
    lane.run()

    assert kinds(lane.server_events) == [
        "LinkDetached",
        "LinkDetached",
        "SessionEnded",
        "ConnectionClosed",
    ]
    closed = lane.server_events[-1]
    assert isinstance(closed, ConnectionClosed)
    assert closed.error == AmqpError("amqp:connection:forced", "bye")
    assert kinds(lane.client_events)[-1] == "ConnectionClosed"
    assert lane.client.transport_lost() == []
    assert lane.server.transport_lost() == []


def test_frames_after_our_close_are_ignored_until_the_answer() -> None:
    server = plain_server()
    server.close()
    assert names(server.take_output()) == ["close"]

    assert server.receive(begin_frame(0), 0) == []
    events = server.receive(amqp_frame(0, encode_close(None)), 0)

    assert kinds(events) == ["ConnectionClosed"]
    assert server.take_output() == b""


def test_a_lost_transport_ends_everything_once() -> None:
    lane = Lane()

    events = lane.server.transport_lost()

    assert kinds(events) == ["LinkDetached", "LinkDetached", "SessionEnded", "ConnectionClosed"]
    assert lane.server.is_closed
    assert lane.server.transport_lost() == []
    assert lane.server.receive(begin_frame(4), 0) == []
    assert lane.server.take_output() == b""


def test_closing_before_the_open_is_immediate() -> None:
    client = Connection(ConnectionConfig(), False, 0)
    client.open()

    client.close()

    assert client.is_closed
    assert kinds(client.transport_lost()) == ["ConnectionClosed"]


def test_an_empty_frame_is_a_heart_beat_and_nothing_else() -> None:
    server = plain_server()

    assert server.receive(HEARTBEAT * 3, 0) == []
    assert server.take_output() == b""


def test_the_peer_gets_a_heart_beat_at_half_its_patience() -> None:
    """JavaScript closes after twice its 60 s without a frame."""
    server = Connection(NO_SASL, True, 0)
    server.receive(AMQP_HEADER + open_frame(idle_timeout_ms=60_000), 1_000)
    server.take_output()

    assert server.tick(1_000) == 31_000
    assert server.tick(30_999) == 31_000
    assert server.take_output() == b""
    assert server.tick(31_000) == 61_000
    assert server.take_output() == HEARTBEAT
    assert server.tick(60_000) == 61_000
    assert server.take_output() == b""


def test_other_output_stands_in_for_a_heart_beat() -> None:
    server = Connection(NO_SASL, True, 0)
    server.receive(AMQP_HEADER + open_frame(idle_timeout_ms=60_000), 0)
    server.take_output()

    server.receive(begin_frame(0), 20_000)
    assert names(server.take_output()) == ["begin"]

    assert server.tick(30_000) == 50_000
    assert server.take_output() == b""


def test_a_peer_silent_for_twice_our_time_out_is_dropped() -> None:
    server = plain_server(ConnectionConfig(sasl_required=False, idle_timeout_ms=1_000))
    server.receive(HEARTBEAT, 500)

    assert server.tick(500) == 2_500
    assert server.tick(2_499) == 2_500
    assert server.take_output() == b""
    assert server.tick(2_500) == -1

    assert server.is_closed
    assert kinds(server.transport_lost()) == ["ConnectionClosed"]
    (close,) = seen(server.take_output())
    assert error_of(close) == errors.RESOURCE_LIMIT_EXCEEDED


def test_without_time_outs_there_is_nothing_to_wait_for() -> None:
    assert plain_server().tick(10**9) == -1


def test_sessions_of_both_ends_keep_their_channels_apart() -> None:
    wire = Wire().open()
    ours = [wire.client.begin_session() for _ in range(3)]
    theirs = wire.server.begin_session()
    wire.run()

    assert [session.channel for session in ours] == [0, 1, 2]
    assert sorted(session.channel for session in wire.server.sessions) == [0, 1, 2, 3]
    assert kinds(wire.client_events).count("SessionBegun") == 4
    assert theirs.remote_channel >= 0

    ours[1].end()
    wire.run()

    assert len(wire.client.sessions) == 3
    assert len(wire.server.sessions) == 3
    assert wire.client.begin_session().channel == 1


def test_an_end_is_answered_and_reports_links_before_the_session() -> None:
    lane = Lane()

    lane.session.end(AmqpError("amqp:internal-error", "x"))
    lane.run()

    assert kinds(lane.server_events) == ["LinkDetached", "LinkDetached", "SessionEnded"]
    assert kinds(lane.client_events) == ["LinkDetached", "LinkDetached", "SessionEnded"]
    ended = lane.server_events[-1]
    assert isinstance(ended, SessionEnded)
    assert ended.error == AmqpError("amqp:internal-error", "x")
    assert detachments(lane.server_events)[0].closed
    assert lane.server.is_open


def test_an_answer_to_our_answer_of_an_end_is_harmless() -> None:
    """The Python SDK sends a second end."""
    server = plain_server()
    end = amqp_frame(0, encode_end(None))
    server.receive(begin_frame(0) + end, 0)

    assert server.receive(end, 0) == []
    assert server.is_open


def test_a_session_may_end_before_its_begin_was_answered() -> None:
    wire = Wire().open()
    session = wire.client.begin_session()
    session.attach_sender("early", target="queue")
    session.end()
    wire.run()

    assert kinds(wire.client_events)[-2:] == ["LinkDetached", "SessionEnded"]
    assert wire.client.sessions == []
    assert wire.server.sessions == []


def test_only_so_many_sessions_are_begun() -> None:
    few = ConnectionConfig(container_id="client", channel_max=1)
    wire = Wire(client=few).open()
    wire.client.begin_session()
    wire.client.begin_session()

    with pytest.raises(UsageError):
        wire.client.begin_session()


def test_a_session_before_the_open_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(UsageError):
        Connection(ConnectionConfig(), False, 0).begin_session()


PROTOCOL_MISTAKES: dict[str, tuple[bytes, str]] = {
    "a frame longer than agreed": (b"\x00\x10\x00\x00\x02\x00\x00\x00", errors.FRAMING_ERROR),
    "a frame shorter than its header": (b"\x00\x00\x00\x07\x02\x00\x00\x00", errors.FRAMING_ERROR),
    "a body that begins in the header": (b"\x00\x00\x00\x08\x01\x00\x00\x00", errors.FRAMING_ERROR),
    "a body that begins after the end": (b"\x00\x00\x00\x08\x03\x00\x00\x00", errors.FRAMING_ERROR),
    "a frame of an unknown type": (b"\x00\x00\x00\x09\x02\x07\x00\x00\x40", errors.FRAMING_ERROR),
    "a SASL frame": (sasl_frame(encode_init(SaslInit("A", b"", ""))), errors.FRAMING_ERROR),
    "no performative": (amqp_frame(0, b"\x40"), errors.DECODE_ERROR),
    "half a performative": (amqp_frame(0, b"\x00\x53\x10\xc0\x20"), errors.DECODE_ERROR),
    "the performative is unknown": (amqp_frame(0, b"\x00\x53\x7f\x45"), errors.NOT_IMPLEMENTED),
    "a performative below all": (amqp_frame(0, b"\x00\x53\x01\x45"), errors.NOT_IMPLEMENTED),
    "a second open": (open_frame(), errors.ILLEGAL_STATE),
    "a channel without a session": (attach_frame(3, 0, "x"), errors.FRAMING_ERROR),
    "a channel out of range": (begin_frame(5_000), errors.FRAMING_ERROR),
    "a begin on a busy channel": (begin_frame(0) * 2, errors.ILLEGAL_STATE),
    "an answer to no begin": (
        amqp_frame(0, encode_fields(0x11, [b"\x60\x00\x09", b"\x43", b"\x43", b"\x43"])),
        errors.ILLEGAL_STATE,
    ),
    "a handle in use": (
        begin_frame(0) + attach_frame(0, 0, "x") + attach_frame(0, 0, "y"),
        errors.HANDLE_IN_USE,
    ),
    "a handle out of range": (begin_frame(0) + attach_frame(0, 65_536, "x"), errors.FRAMING_ERROR),
    "a transfer to no link": (
        begin_frame(0) + amqp_frame(0, b"\x00\x53\x14\xc0\x03\x01\x52\x05"),
        errors.UNATTACHED_HANDLE,
    ),
    "a flow to no link": (
        begin_frame(0) + amqp_frame(0, encode_fields(0x13, [b"\x43"] * 5)),
        errors.UNATTACHED_HANDLE,
    ),
    "a detach of no link": (
        begin_frame(0) + amqp_frame(0, b"\x00\x53\x16\xc0\x03\x01\x52\x05"),
        errors.UNATTACHED_HANDLE,
    ),
    "a disposition from back to front": (
        begin_frame(0) + amqp_frame(0, encode_disposition(True, 5, 2, True, b"\x00\x53\x24\x45")),
        errors.INVALID_FIELD,
    ),
    "an unknown performative of a session": (
        begin_frame(0) + amqp_frame(0, b"\x00\xa3\x01a\x45"),
        errors.NOT_IMPLEMENTED,
    ),
    "bytes after a performative": (
        begin_frame(0) + amqp_frame(0, encode_fields(0x13, [b"\x43"] * 4) + b"\x40"),
        errors.DECODE_ERROR,
    ),
}


@pytest.mark.parametrize(
    ("frames", "condition"), PROTOCOL_MISTAKES.values(), ids=PROTOCOL_MISTAKES.keys()
)
def test_a_peers_mistake_ends_in_the_right_error_and_a_close(frames: bytes, condition: str) -> None:
    server = plain_server()

    events = server.receive(frames, 0)

    assert kinds(events)[-1] == "ConnectionClosed"
    assert server.is_closed
    close = seen(server.take_output())[-1]
    assert close.name == "close"
    assert error_of(close) == condition


def test_a_frame_before_the_open_is_answered_with_open_and_close() -> None:
    server = Connection(NO_SASL, True, 0)

    server.receive(AMQP_HEADER + begin_frame(0), 0)

    frames = seen(server.take_output())
    assert [frame.name for frame in frames] == ["header", "open", "close"]
    assert error_of(frames[-1]) == errors.ILLEGAL_STATE


def test_an_oversized_sasl_frame_is_refused_without_reading_it() -> None:
    server = Connection(ConnectionConfig(), True, 0)

    events = server.receive(SASL_HEADER + b"\x7f\xff\xff\xff\x02\x01\x00\x00", 0)

    assert kinds(events) == ["ConnectionClosed"]
