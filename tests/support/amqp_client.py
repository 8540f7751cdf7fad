"""A small AMQP client over the engine's client role, for tests that look at frames and outcomes.

It adds waiting to the engine and nothing else: every mistake a test wants to make can be made.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from shardbus.amqp.config import ConnectionConfig
from shardbus.amqp.connection import Connection
from shardbus.amqp.events import (
    ConnectionClosed,
    ConnectionOpened,
    DeliveriesReceived,
    Event,
    IncomingDelivery,
    LinkDetached,
    LinkFlowed,
    LinkOpened,
    SaslFailed,
    SettlementsReceived,
)
from shardbus.amqp.link import Link
from shardbus.amqp.outcomes import AmqpError, DeliveryState
from shardbus.amqp.sasl import plain_response
from shardbus.amqp.session import AmqpSession
from shardbus.amqp.termini import Source
from shardbus.app.cli.sas import Credential
from shardbus.codec.types import Value
from shardbus.message.sections import DecodedMessage, build_message, decode_message

TIMEOUT_S: Final = 30.0
WINDOW: Final = 1_000

HEARTBEAT: Final = 0
"""The `performative` of an empty frame, which keeps the line alive."""
TRANSFER: Final = 0x14
FLOW: Final = 0x13

PEEK_LOCK: Final = (0, 1)
RECEIVE_AND_DELETE: Final = (1, 0)


Outcome = Callable[[int, DeliveryState | None], None]
"""Told the position of a message in what was sent, and what became of it."""


class Ended(Exception):
    """The link or the connection is over; `condition` says why, "" when the peer did not."""

    def __init__(self, error: AmqpError | None) -> None:
        super().__init__(error)
        self.condition = error.condition if error is not None else ""
        self.description = error.description if error is not None else ""


class SaslRefused(Exception):
    """The server did not take the key."""


@dataclass(frozen=True)
class Address:
    """Where a server listens for AMQP."""

    host: str
    port: int


class AmqpClient(asyncio.Protocol):
    """One connection with one session. `frames` counts what arrived, by performative."""

    def __init__(self, config: ConnectionConfig) -> None:
        self.frames: Counter[int] = Counter()
        self.connection = Connection(config, is_server=False, now_ms=_now_ms())
        self.ended: asyncio.Future[AmqpError | None] = asyncio.get_running_loop().create_future()
        self.opened = _future()
        self._session: AmqpSession | None = None
        self._transport: asyncio.WriteTransport | None = None
        self._counter = _FrameCounter(self.frames)
        self._links = 0

    @property
    def session(self) -> AmqpSession:
        if self._session is None:
            self._session = self.connection.begin_session()
        return self._session

    def new_session(self) -> AmqpSession:
        """Another session, for the links that are attached from now on."""
        self._session = self.connection.begin_session()
        return self._session

    async def sender(self, address: str) -> Sender:
        """Attach a link to send on. Raises Ended when it is refused."""
        link = self.session.attach_sender(self._name(), target=address, snd_settle_mode=0)
        sender = Sender(self, link)
        await self._attached(sender)
        return sender

    async def receiver(
        self,
        address: str | Source,
        *,
        settle_modes: tuple[int, int] = PEEK_LOCK,
        credit: int = 0,
        session: AmqpSession | None = None,
    ) -> Receiver:
        """Attach a link to receive on. Raises Ended when it is refused."""
        name = self._name()
        link = (session or self.session).attach_receiver(
            name, source=address, target=name, settle_modes=settle_modes
        )
        receiver = Receiver(self, link)
        await self._attached(receiver)
        if credit:
            receiver.grant(credit)
        return receiver

    async def requests(self, node: str) -> Requests:
        """The two links of a request/response node."""
        answers = await self.receiver(node, settle_modes=RECEIVE_AND_DELETE, credit=100)
        return Requests(await self.sender(node), answers)

    async def put_token(self, token: str, audience: str) -> int:
        """Show a token at $cbs; the status that it answers."""
        requests = await self.requests("$cbs")
        properties: dict[str, Value] = {
            "operation": "put-token",
            "type": "servicebus.windows.net:sastoken",
            "name": audience,
        }
        answer = await requests.ask(token, properties)
        status = answer.application_properties["status-code"]
        return _number(status)

    def flush(self) -> None:
        output = self.connection.take_output()
        if output and self._transport is not None and not self._transport.is_closing():
            self._transport.write(output)

    def write_raw(self, data: bytes) -> None:
        """Bytes as they are, past the engine."""
        assert self._transport is not None
        self._transport.write(data)

    def stop_reading(self) -> None:
        """Leave what the server sends in the socket, for ever."""
        assert isinstance(self._transport, asyncio.Transport)
        self._transport.pause_reading()

    def close(self) -> None:
        self.connection.close()
        self.flush()
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport
        self.connection.open()
        self.flush()

    def data_received(self, data: bytes) -> None:
        self._counter.feed(data)
        for event in self.connection.receive(data, _now_ms()):
            self._take(event)
        self.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        for event in self.connection.transport_lost():
            self._take(event)
        self._end(None)

    async def _attached(self, end: LinkEnd) -> None:
        self.flush()
        async with asyncio.timeout(TIMEOUT_S):
            await end.opened

    def _name(self) -> str:
        self._links += 1
        return f"link-{self._links}"

    def _take(self, event: Event) -> None:
        match event:
            case ConnectionOpened():
                _resolve(self.opened)
            case SaslFailed():
                _fail(self.opened, SaslRefused())
            case ConnectionClosed(error):
                self._end(error)
            case DeliveriesReceived() | SettlementsReceived() | LinkOpened() | LinkDetached():
                _end_of(event.link).take(event)
            case LinkFlowed():
                _end_of(event.link).take(event)
            case _:
                pass

    def _end(self, error: AmqpError | None) -> None:
        if not self.ended.done():
            self.ended.set_result(error)
        _fail(self.opened, Ended(error))


class LinkEnd:
    """Our end of a link, and how to wait for it."""

    def __init__(self, client: AmqpClient, link: Link) -> None:
        self.link = link
        self.opened = _future()
        self.error: Ended | None = None
        self._client = client
        self._changed = asyncio.Event()
        link.context = self

    def take(self, event: Event) -> None:
        if isinstance(event, LinkOpened):
            _resolve(self.opened)
        elif isinstance(event, LinkDetached):
            self.error = Ended(event.error)
            _fail(self.opened, self.error)
        self._changed.set()

    async def change(self) -> None:
        """Write what waits, and return when something has happened. Raises Ended at the end."""
        if self.error is not None:
            raise self.error
        self._client.flush()
        self._changed.clear()
        async with asyncio.timeout(TIMEOUT_S):
            await self._changed.wait()


class Sender(LinkEnd):
    """Our end of a link that we send on."""

    def __init__(self, client: AmqpClient, link: Link) -> None:
        super().__init__(client, link)
        self._waiting: dict[int, tuple[int, Outcome]] = {}
        self._tags = 0

    async def send(
        self, payload: bytes, message_format: int = 0, state: DeliveryState | None = None
    ) -> DeliveryState | None:
        """Send one message and wait for its outcome. Raises Ended when none comes any more."""
        outcomes: list[DeliveryState | None] = []
        await self.send_all(
            [payload], lambda _, outcome: outcomes.append(outcome), message_format, state=state
        )
        return outcomes[0]

    async def send_all(
        self,
        payloads: Iterable[bytes],
        then: Outcome,
        message_format: int = 0,
        window: int = WINDOW,
        state: DeliveryState | None = None,
    ) -> None:
        """Send pipelined, and tell each outcome with its position; returns after the last one."""
        for position, payload in enumerate(payloads):
            while len(self._waiting) >= window or self.link.sendable <= 0:
                await self.change()
            self._tags += 1
            tag = self._tags.to_bytes(8, "big")
            ident = self.link.send(tag, payload, False, message_format, state)
            self._waiting[ident] = (position, then)
        while self._waiting:
            await self.change()

    def take(self, event: Event) -> None:
        if isinstance(event, SettlementsReceived):
            for ident in event.ids:
                position, then = self._waiting.pop(ident)
                then(position, event.state)
        super().take(event)


class Receiver(LinkEnd):
    """Our end of a link that we receive on."""

    def __init__(self, client: AmqpClient, link: Link) -> None:
        super().__init__(client, link)
        self._deliveries: deque[IncomingDelivery] = deque()
        self._confirmations: dict[int, DeliveryState | None] = {}

    def grant(self, credit: int, *, drain: bool = False) -> None:
        self.link.grant(credit, drain)
        self._client.flush()

    async def take_some(self) -> list[IncomingDelivery]:
        """What has arrived, at least one message. Raises TimeoutError when none comes."""
        while not self._deliveries:
            await self.change()
        return self.take_waiting()

    async def take_many(self, count: int) -> list[IncomingDelivery]:
        """Exactly so many messages; what arrived beyond them stays for the next call."""
        while len(self._deliveries) < count:
            await self.change()
        return [self._deliveries.popleft() for _ in range(count)]

    def take_waiting(self) -> list[IncomingDelivery]:
        """What has arrived and was not taken, without waiting."""
        taken = list(self._deliveries)
        self._deliveries.clear()
        return taken

    @property
    def waiting(self) -> int:
        """How many messages have arrived and were not taken."""
        return len(self._deliveries)

    async def drained(self) -> None:
        """Return when the peer has used up the credit that was granted with drain."""
        while self.link.credit > 0:
            await self.change()

    async def settle(
        self, deliveries: Sequence[IncomingDelivery], state: DeliveryState
    ) -> list[DeliveryState | None]:
        """Settle and wait for the bus to confirm; what it says of each."""
        ids = [delivery.delivery_id for delivery in deliveries]
        self.link.settle(ids, state, settled=False)
        while not all(ident in self._confirmations for ident in ids):
            await self.change()
        return [self._confirmations.pop(ident) for ident in ids]

    def settle_without_answer(
        self, deliveries: Sequence[IncomingDelivery], state: DeliveryState
    ) -> None:
        self.link.settle([delivery.delivery_id for delivery in deliveries], state)
        self._client.flush()

    async def close(self) -> None:
        self.link.detach()
        self._client.flush()
        while self.error is None:
            await self.change()

    def take(self, event: Event) -> None:
        if isinstance(event, DeliveriesReceived):
            self._deliveries.extend(event.deliveries)
        elif isinstance(event, SettlementsReceived):
            self._confirmations.update(dict.fromkeys(event.ids, event.state))
        super().take(event)


class Requests:
    """Asks a request/response node, one request at a time."""

    def __init__(self, sender: Sender, receiver: Receiver) -> None:
        self._sender = sender
        self._receiver = receiver
        self._asked = 0

    async def ask(
        self,
        body: Value,
        properties: dict[str, Value],
        state: DeliveryState | None = None,
    ) -> DecodedMessage:
        self._asked += 1
        request = build_message(
            body=body,
            application_properties=properties,
            message_id=f"request-{self._asked}",
            reply_to=self._receiver.link.name,
        )
        await self._sender.send(request, state=state)
        [delivery] = await self._receiver.take_many(1)
        return decode_message(delivery.payload)


@asynccontextmanager
async def connected(
    address: Address,
    credential: Credential | None = None,
    *,
    mechanism: str = "ANONYMOUS",
    idle_timeout_ms: int = 120_000,
    incoming_window: int = ConnectionConfig().incoming_window,
) -> AsyncIterator[AmqpClient]:
    """A client whose open was answered: SASL PLAIN with the credential, `mechanism` without."""
    config = ConnectionConfig(
        container_id="shardbus-test",
        hostname=address.host,
        idle_timeout_ms=idle_timeout_ms,
        incoming_window=incoming_window,
        max_message_size=16 * 1024 * 1024,
        sasl_mechanism=mechanism if credential is None else "PLAIN",
        sasl_response=b""
        if credential is None
        else plain_response(credential.key_name, credential.key),
    )
    loop = asyncio.get_running_loop()
    _, client = await loop.create_connection(lambda: AmqpClient(config), address.host, address.port)
    try:
        async with asyncio.timeout(TIMEOUT_S):
            await client.opened
        yield client
    finally:
        client.close()


class _FrameCounter:
    """Counts frames by performative, whatever pieces the stream comes in."""

    def __init__(self, frames: Counter[int]) -> None:
        self._frames = frames
        self._buffer = bytearray()

    def feed(self, data: bytes) -> None:
        self._buffer += data
        position = 0
        while len(self._buffer) - position >= 8:
            if self._buffer[position : position + 4] == b"AMQP":
                position += 8
                continue
            size = int.from_bytes(self._buffer[position : position + 4], "big")
            if len(self._buffer) - position < size:
                break
            self._count(position, size)
            position += size
        del self._buffer[:position]

    def _count(self, position: int, size: int) -> None:
        offset = self._buffer[position + 4] * 4
        # A performative is a described list: 0x00 0x53 code.
        code = self._buffer[position + offset + 2] if size >= offset + 3 else HEARTBEAT
        self._frames[code] += 1


def _future() -> asyncio.Future[None]:
    return asyncio.get_running_loop().create_future()


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _fail(future: asyncio.Future[None], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
        # Whoever waits sees it; nobody may be waiting.
        future.exception()


def _end_of(link: Link) -> LinkEnd:
    end = link.context
    assert isinstance(end, LinkEnd)
    return end


def _number(value: Value) -> int:
    number = getattr(value, "value", value)
    assert isinstance(number, int)
    return number


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
