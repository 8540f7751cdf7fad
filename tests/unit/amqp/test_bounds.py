"""What a hostile peer can make a connection hold, however small its pieces are."""

import sys

from shardbus.amqp.config import ConnectionConfig
from shardbus.amqp.frames import amqp_frame
from shardbus.amqp.performatives import Begin
from shardbus.amqp.pieces import Pieces
from shardbus.codec.limits import FLOWS_WAITING_MAX, PIECES_MAX
from tests.unit.amqp.bare import Bare, credit_flow, receiver_attach, sender_attach, transfer
from tests.unit.amqp.frames_seen import error_of, seen


def begin(channel: int) -> bytes:
    frame = Begin()
    frame.incoming_window = 1
    frame.outgoing_window = 1
    return amqp_frame(channel, frame.encode())


def test_pieces_come_out_whole_and_in_order() -> None:
    for size in (0, 1, 2, 7, 1_000):
        pieces, data = Pieces(), bytes(range(256)) * 20
        for start in range(0, len(data), max(size, 1)):
            pieces.add(data[start : start + max(size, 1)])

        assert pieces.size == len(data)
        assert pieces.take() == data
        assert pieces.size == 0
        assert pieces.take() == b""


def test_a_message_in_pieces_of_two_bytes_costs_little_more_than_its_bytes() -> None:
    bare = Bare()
    bare.attach(sender_attach()).accept()
    before = sys.getallocatedblocks()

    for _ in range(20 * PIECES_MAX):
        bare.tell(transfer(b"xy", more=True))

    assert bare.server.buffered_bytes == 40 * PIECES_MAX
    assert sys.getallocatedblocks() - before < 2 * PIECES_MAX


def test_frames_without_payload_add_nothing_to_a_message_that_never_ends() -> None:
    bare = Bare()
    bare.attach(sender_attach()).accept()
    bare.tell(transfer(b"x", more=True))
    before = sys.getallocatedblocks()

    for _ in range(20 * PIECES_MAX):
        bare.tell(transfer(b"", more=True))

    assert bare.server.buffered_bytes == 1
    assert sys.getallocatedblocks() - before < PIECES_MAX


def test_flows_that_wait_for_the_window_are_bounded() -> None:
    """A peer may keep its window shut and ask for the state of a link without end."""
    bare = Bare(ConnectionConfig(sasl_required=False, idle_timeout_ms=0, max_frame_size=512))
    link = bare.attach(receiver_attach())
    link.accept()
    bare.tell(credit_flow(10))
    # The peer takes 4,096 frames: of a longer message the rest waits.
    link.send(b"tag", bytes(512 * 4_200), True)
    bare.server.take_output()
    ask = credit_flow(10, echo=True).replace((2_048).to_bytes(4, "big"), bytes(4))

    kinds: list[str] = []
    asked = 0
    while not bare.server.is_closed and asked <= 2 * FLOWS_WAITING_MAX:
        kinds = bare.tell(ask)
        asked += 1

    assert FLOWS_WAITING_MAX <= asked <= FLOWS_WAITING_MAX + 2
    assert "ConnectionClosed" in kinds
    [close] = [frame for frame in seen(bare.server.take_output()) if frame.name == "close"]
    assert error_of(close) == "amqp:resource-limit-exceeded"


def test_an_owner_may_allow_fewer_sessions_and_more_later() -> None:
    bare = Bare()
    bare.server.sessions_max = 2
    bare.server.receive(begin(1), 0)
    assert bare.server.is_open

    bare.server.sessions_max = 3
    bare.server.receive(begin(2), 0)
    assert bare.server.is_open
    assert len(bare.server.sessions) == 3

    bare.server.receive(begin(3), 0)
    assert bare.server.is_closed


def test_an_owner_may_allow_fewer_links() -> None:
    bare = Bare()
    bare.server.links_max = 1
    bare.attach(receiver_attach(0))

    assert bare.tell(receiver_attach(1).encode()) == []

    [detach] = [frame for frame in seen(bare.server.take_output()) if frame.name == "detach"]
    assert detach.field(2) is not None
    assert bare.tell(receiver_attach(2).encode())[-1] == "ConnectionClosed"
