"""A server whose peer is a hand that writes frames."""

from shardbus.amqp.config import ConnectionConfig
from shardbus.amqp.connection import Connection
from shardbus.amqp.frames import amqp_frame
from shardbus.amqp.link import Link
from shardbus.amqp.performatives import (
    Attach,
    Flow,
    Transfer,
)
from tests.unit.amqp.wire import (
    AMQP_HEADER,
    kinds,
)


class Bare:
    """A server that talks to frames made by hand, on channel 0."""

    def __init__(self, config: ConnectionConfig | None = None) -> None:
        own = config or ConnectionConfig(sasl_required=False, idle_timeout_ms=0)
        self.server = Connection(own, True, 0)
        opening = b"\x00\x53\x10\xc0\x04\x01\xa1\x01a"
        begin = bytes.fromhex("005311c00d04404370000010007000001000")
        self.server.receive(AMQP_HEADER + amqp_frame(0, opening) + amqp_frame(0, begin), 0)
        self.server.take_output()

    def tell(self, body: bytes) -> list[str]:
        """Feed one frame; the kinds of events it caused."""
        return kinds(self.server.receive(amqp_frame(0, body), 0))

    def attach(self, attach: Attach) -> Link:
        assert self.tell(attach.encode()) == ["LinkAttached"]
        return self.server.sessions[0].links[-1]


def sender_attach(handle: int = 0) -> Attach:
    attach = Attach()
    attach.name = f"sender-{handle}"
    attach.handle = handle
    attach.initial_delivery_count = 0
    return attach


def receiver_attach(handle: int = 0) -> Attach:
    attach = Attach()
    attach.name = f"receiver-{handle}"
    attach.handle = handle
    attach.is_receiver = True
    return attach


def transfer(payload: bytes, delivery_id: int = 0, more: bool = False, handle: int = 0) -> bytes:
    head = Transfer()
    head.handle = handle
    head.delivery_id = delivery_id
    head.tag = b"tag"
    head.more = more
    return head.encode() + payload


def credit_flow(credit: int, handle: int = 0, drain: bool = False, echo: bool = False) -> bytes:
    flow = Flow()
    flow.next_incoming_id = 0
    flow.incoming_window = 2_048
    flow.handle = handle
    flow.delivery_count = 0
    flow.link_credit = credit
    flow.drain = drain
    flow.echo = echo
    return flow.encode()
