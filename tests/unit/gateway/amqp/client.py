"""A client of the gateway without sockets: the AMQP engine in its other role."""

import asyncio
from collections.abc import Mapping

from shardbus.amqp.config import ConnectionConfig
from shardbus.amqp.connection import Connection
from shardbus.amqp.events import (
    ConnectionClosed,
    Event,
    IncomingDelivery,
    LinkDetached,
    LinkOpened,
    SettlementsReceived,
)
from shardbus.amqp.link import Link
from shardbus.amqp.outcomes import AmqpError, DeliveryState
from shardbus.amqp.session import AmqpSession
from shardbus.amqp.termini import Coordinator, Source, Target
from shardbus.broker.access.auth import DEVELOPMENT_KEY, DEVELOPMENT_KEY_NAME
from shardbus.codec.types import Value
from shardbus.gateway.amqp.connection.protocol import AmqpProtocol
from shardbus.message.sections import (
    DecodedMessage,
    build_message,
    decode_message,
    encode_data_message,
)
from tests.unit.amqp.frames_seen import Seen, seen
from tests.unit.amqp.wire import deliveries
from tests.unit.gateway.amqp.transport import SlowTransport

ROOT_KEY = f"\0{DEVELOPMENT_KEY_NAME}\0{DEVELOPMENT_KEY}".encode()
PEEK_LOCK = (0, 1)
RECEIVE_AND_DELETE = (1, 0)
SESSION_FILTER = "com.microsoft:session-filter"


def plain(response: bytes = ROOT_KEY) -> ConnectionConfig:
    """A client that shows the key itself."""
    return ConnectionConfig(
        container_id="client", sasl_mechanism="PLAIN", sasl_response=response, idle_timeout_ms=0
    )


def anonymous() -> ConnectionConfig:
    """A client that may do nothing until it has put a token."""
    return ConnectionConfig(container_id="client", idle_timeout_ms=0)


class Client:
    """One connection. Everything takes effect while the bench lets time pass."""

    def __init__(
        self, protocol: AmqpProtocol, config: ConnectionConfig, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.protocol = protocol
        self.events: list[Event] = []
        self.is_beating = True
        self._loop = loop
        self.connection = Connection(config, is_server=False, now_ms=self._now_ms())
        self.transport = SlowTransport(loop, self._receive)
        self._session: AmqpSession | None = None
        self._requests = 0

    def connect(self) -> None:
        self.transport.connect(self.protocol)
        self.connection.open()
        self.flush()

    def flush(self) -> None:
        """Write what the engine has to say."""
        output = self.connection.take_output()
        if output:
            self.transport.feed(output)

    def beat(self) -> None:
        """Keep the connection alive, as SDKs do."""
        if self.is_beating and not self.connection.is_closed:
            self.connection.tick(self._now_ms())
            self.flush()
            self._loop.call_later(30, self.beat)

    @property
    def session(self) -> AmqpSession:
        if self._session is None:
            self._session = self.connection.begin_session()
        return self._session

    def sender(
        self, target: str | Target | Coordinator, name: str = "sender", *, is_settled: bool = False
    ) -> Link:
        link = self.session.attach_sender(
            name, target=target, snd_settle_mode=1 if is_settled else 0
        )
        self.flush()
        return link

    def receiver(
        self,
        source: str | Source,
        credit: int = 0,
        *,
        name: str = "receiver",
        modes: tuple[int, int] = PEEK_LOCK,
        target: str | None = None,
        session: AmqpSession | None = None,
    ) -> Link:
        """Attach and, in the same write, give credit."""
        link = (session or self.session).attach_receiver(
            name, source=source, settle_modes=modes, target=target
        )
        self.grant(link, credit)
        return link

    def session_receiver(
        self,
        entity: str,
        session_id: Value = None,
        credit: int = 0,
        *,
        name: str = "receiver",
        wait_ms: Value = None,
        modes: tuple[int, int] = PEEK_LOCK,
    ) -> Link:
        """Ask for a session, the next free one by default, and in the same write give credit."""
        source = Source()
        source.address = entity
        source.filters = {SESSION_FILTER: session_id}
        properties = {} if wait_ms is None else {"com.microsoft:timeout": wait_ms}
        link = self.session.attach_receiver(
            name, source=source, settle_modes=modes, properties=properties
        )
        self.grant(link, credit)
        return link

    def grant(self, link: Link, credit: int, *, drain: bool = False) -> None:
        link.grant(credit, drain)
        self.flush()

    def send(self, link: Link, *contents: bytes, is_settled: bool = False) -> list[int]:
        """Send plain messages in one write; their delivery-ids."""
        return self.send_raw(
            link, *(encode_data_message(content) for content in contents), is_settled=is_settled
        )

    def send_raw(
        self, link: Link, *payloads: bytes, is_settled: bool = False, message_format: int = 0
    ) -> list[int]:
        ids = [
            link.send(b"%d" % number, payload, is_settled, message_format)
            for number, payload in enumerate(payloads)
        ]
        self.flush()
        return ids

    def settle(
        self, link: Link, ids: list[int], state: DeliveryState, *, is_settled: bool = False
    ) -> None:
        link.settle(ids, state, is_settled)
        self.flush()

    def ask(
        self,
        link: Link,
        body: Value,
        properties: Mapping[str, Value],
        *,
        message_id: Value = "1",
        reply_to: str | None = None,
        state: DeliveryState | None = None,
    ) -> list[int]:
        """Send a request to a request/response node; its delivery-id."""
        payload = build_message(
            body=body,
            application_properties=properties,
            message_id=message_id,
            reply_to=reply_to,
        )
        ident = link.send(b"0", payload, False, 0, state)
        self.flush()
        return [ident]

    # What happened.

    def is_opened(self, link: Link) -> bool:
        return any(isinstance(event, LinkOpened) and event.link is link for event in self.events)

    def detach_error(self, link: Link) -> AmqpError:
        """Why the server detached a link; fails unless it did, and said so once."""
        [event] = [e for e in self.events if isinstance(e, LinkDetached) and e.link is link]
        assert event.error is not None
        return event.error

    def received(self, link: Link) -> list[IncomingDelivery]:
        """The deliveries of one link, in order."""
        from_link = [event for event in self.events if getattr(event, "link", None) is link]
        return deliveries(from_link)

    def bodies(self, link: Link) -> list[Value]:
        return [decode_message(delivery.payload).body for delivery in self.received(link)]

    def answers(self, link: Link) -> list[DecodedMessage]:
        return [decode_message(delivery.payload) for delivery in self.received(link)]

    def outcomes(self, link: Link) -> dict[int, DeliveryState | None]:
        """What the server said of each delivery of a link; fails when it said it twice."""
        found: dict[int, DeliveryState | None] = {}
        for event in self.events:
            if isinstance(event, SettlementsReceived) and event.link is link:
                for ident in event.ids:
                    assert ident not in found
                    found[ident] = event.state
        return found

    def is_read(self) -> bool:
        """Whether the server reads what this client writes."""
        return not self.transport.is_paused

    def is_closed(self) -> bool:
        return any(isinstance(event, ConnectionClosed) for event in self.events)

    def close_error(self) -> AmqpError:
        [error] = [event.error for event in self.events if isinstance(event, ConnectionClosed)]
        assert error is not None
        return error

    def frames(self, name: str) -> list[Seen]:
        """The frames of one kind that the server wrote so far."""
        return [frame for frame in seen(self.transport.written) if frame.name == name]

    def _receive(self, data: bytes) -> None:
        self.events += self.connection.receive(data, self._now_ms())
        self.flush()

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)
