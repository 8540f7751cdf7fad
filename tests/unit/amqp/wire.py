"""A client and a server joined by a wire in memory, each recording what it was told."""

from collections.abc import Callable

from shardbus.amqp.config import ConnectionConfig
from shardbus.amqp.connection import Connection
from shardbus.amqp.events import (
    DeliveriesReceived,
    Event,
    IncomingDelivery,
    LinkAttached,
    LinkDetached,
    SaslInitReceived,
    SettlementsReceived,
)
from shardbus.amqp.link import Link
from shardbus.amqp.session import AmqpSession

# How a transport cuts what is written into what is read.
Cut = Callable[[bytes], list[bytes]]

SASL_HEADER = b"AMQP\x03\x01\x00\x00"
AMQP_HEADER = b"AMQP\x00\x01\x00\x00"
PATIENCE = 1_000


def whole(data: bytes) -> list[bytes]:
    return [data]


def byte_by_byte(data: bytes) -> list[bytes]:
    return [data[index : index + 1] for index in range(len(data))]


class Wire:
    """Moves bytes both ways until neither end has more to say."""

    def __init__(
        self,
        client: ConnectionConfig | None = None,
        server: ConnectionConfig | None = None,
        cut: Cut = whole,
    ) -> None:
        self.now_ms = 0
        self.client = Connection(client or ConnectionConfig(container_id="client"), False, 0)
        self.server = Connection(server or ConnectionConfig(container_id="server"), True, 0)
        self.client_events: list[Event] = []
        self.server_events: list[Event] = []
        self.accepts_sasl = True
        self._cut = cut

    def run(self) -> None:
        """Exchange everything; both ends must fall silent within bounded turns."""
        for _ in range(PATIENCE):
            to_server = self.client.take_output()
            to_client = self.server.take_output()
            if not to_server and not to_client:
                return
            for piece in self._cut(to_server):
                self._serve(self.server.receive(piece, self.now_ms))
            for piece in self._cut(to_client):
                self.client_events += self.client.receive(piece, self.now_ms)
        raise AssertionError("the two ends never fall silent")

    def _serve(self, events: list[Event]) -> None:
        self.server_events += events
        for event in events:
            if isinstance(event, SaslInitReceived):
                self._serve(self.server.sasl_outcome(self.accepts_sasl))

    def open(self) -> "Wire":
        self.client.open()
        self.run()
        return self

    def forget(self) -> None:
        """Start a new page of events."""
        self.client_events.clear()
        self.server_events.clear()

    def attached(self) -> list[Link]:
        """The links that the server was asked to accept."""
        return [event.link for event in self.server_events if isinstance(event, LinkAttached)]


def deliveries(events: list[Event]) -> list[IncomingDelivery]:
    groups = [event.deliveries for event in events if isinstance(event, DeliveriesReceived)]
    return [delivery for group in groups for delivery in group]


def settlements(events: list[Event]) -> list[SettlementsReceived]:
    return [event for event in events if isinstance(event, SettlementsReceived)]


def detachments(events: list[Event]) -> list[LinkDetached]:
    return [event for event in events if isinstance(event, LinkDetached)]


def kinds(events: list[Event]) -> list[str]:
    return [type(event).__name__ for event in events]


class Lane(Wire):
    """A wire with one session, and a link of each direction between the two ends."""

    def __init__(
        self,
        client: ConnectionConfig | None = None,
        server: ConnectionConfig | None = None,
        cut: Cut = whole,
    ) -> None:
        super().__init__(client, server, cut)
        self.open()
        self.session: AmqpSession = self.client.begin_session()
        # to the server: `sender` there is `inlet`; from the server: `outlet` feeds `receiver`.
        self.sender = self.session.attach_sender("sender", target="queue", snd_settle_mode=0)
        self.receiver = self.session.attach_receiver(
            "receiver", source="queue", settle_modes=(0, 1)
        )
        self.run()
        self.inlet, self.outlet = self.attached()
        self.inlet.accept()
        self.outlet.accept()
        self.run()
        self.forget()
