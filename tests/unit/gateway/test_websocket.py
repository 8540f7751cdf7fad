"""A WebSocket between a transport that is not there and a protocol that believes it is on TCP."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

import pytest

from shardbus.core.errors import Refused
from shardbus.gateway.http.server.connection import IDLE_MS_MAX, REQUEST_MS_MAX, HttpGateway
from shardbus.gateway.http.server.message import TEXT, HttpRequest, HttpResponse
from shardbus.gateway.listening.websocket import CLOSE_MS_MAX, LINGER_MS_MAX, WebSocket, WebSockets
from tests.simulation.world import VirtualLoop
from tests.support.websocket_frames import (
    ACCEPT,
    BINARY,
    CLOSE,
    PING,
    PONG,
    Frame,
    client_frame,
    close_payload,
    server_frames,
    upgrade_request,
)
from tests.support.websocket_frames import TEXT as TEXT_FRAME
from tests.unit.gateway.transport import FakeTransport

NORMAL_CLOSE = Frame(CLOSE, close_payload(1000))


class Inner(asyncio.Protocol):
    """Remembers everything that its transport tells it."""

    def __init__(self) -> None:
        self.received = b""
        self.news: list[str] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.news.append("made")

    def data_received(self, data: bytes) -> None:
        self.received += data
        if data == b"close!":
            self.transport.close()

    def pause_writing(self) -> None:
        self.news.append("pause")

    def resume_writing(self) -> None:
        self.news.append("resume")

    def connection_lost(self, error: Exception | None) -> None:
        self.news.append("lost")


class Client:
    """One connection to an HTTP gateway behind which WebSockets are served."""

    def __init__(self) -> None:
        self.inners: list[Inner] = []
        websockets = WebSockets(self._new_inner, is_any_origin_welcome=False)
        self.gateway = HttpGateway(self._respond, self._refuse, websockets=websockets)
        self.transport = FakeTransport()
        self.protocol: asyncio.Protocol = self.gateway.connection()

    @property
    def inner(self) -> Inner:
        (inner,) = self.inners
        return inner

    def connect(self) -> None:
        self.transport.connect(self.protocol)

    def upgrade(self) -> None:
        """Open the WebSocket and forget how."""
        self.connect()
        self.protocol.data_received(upgrade_request())
        assert self.inner.news == ["made"]
        self.transport.written = b""

    def send(self, *frames: bytes) -> None:
        self._current().data_received(b"".join(frames))

    def frames(self) -> list[Frame]:
        frames, rest = server_frames(self.transport.written)
        assert rest == b""
        return frames

    def pause_writing(self) -> None:
        self._current().pause_writing()

    def resume_writing(self) -> None:
        self._current().resume_writing()

    def _current(self) -> asyncio.Protocol:
        protocol = self.transport.get_protocol()
        assert isinstance(protocol, asyncio.Protocol)
        return protocol

    def _new_inner(self) -> Inner:
        inner = Inner()
        self.inners.append(inner)
        return inner

    async def _respond(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse(200, TEXT, request.path)

    def _refuse(self, refusal: Refused, target: str, peer: str) -> HttpResponse:
        return HttpResponse(refusal.kind.status, TEXT, refusal.message)


async def settle() -> None:
    """Let everything that is ready happen; time stands still."""
    for _ in range(20):
        await asyncio.sleep(0)


def run(scenario: Callable[[Client], Awaitable[None]]) -> Client:
    loop = VirtualLoop()

    async def main() -> Client:
        client = Client()
        async with client.gateway:
            await scenario(client)
        return client

    return loop.finish(loop.create_task(main()))


@pytest.mark.parametrize(
    "path",
    [
        "/$servicebus/websocket",
        "/$servicebus/websocket/",
        "/$ServiceBus/WebSocket",
        "/%24servicebus/websocket?sb-hc-action=connect",
        "https://localhost/$servicebus/websocket",
    ],
)
def test_the_request_of_every_sdk_opens_a_websocket(path: str) -> None:
    """R32. The last is how the Java SDK asks, and it looks for the phrase."""

    async def scenario(client: Client) -> None:
        client.connect()
        client.protocol.data_received(upgrade_request(path))
        assert isinstance(client.transport.get_protocol(), WebSocket)

    client = run(scenario)
    head, _, rest = client.transport.written.partition(b"\r\n\r\n")

    assert head.startswith(b"HTTP/1.1 101 Switching Protocols\r\n")
    assert f"\r\nSec-WebSocket-Accept: {ACCEPT}".encode() in head
    assert b"\r\nSec-WebSocket-Protocol: AMQPWSB10" in head
    assert rest == b""


def test_frames_that_come_with_the_request_are_not_lost() -> None:
    async def scenario(client: Client) -> None:
        client.connect()
        client.protocol.data_received(upgrade_request() + client_frame(BINARY, b"AMQP")[:7])
        client.send(client_frame(BINARY, b"AMQP")[7:])
        assert client.inner.received == b"AMQP"

    run(scenario)


def test_an_open_websocket_is_no_http_connection_any_more() -> None:
    async def scenario(client: Client) -> None:
        client.upgrade()
        assert client.gateway.connections == set()
        await asyncio.sleep((IDLE_MS_MAX + REQUEST_MS_MAX) / 1000 + 1)
        assert not client.transport.is_closed
        client.send(client_frame(BINARY, b"still here"))
        assert client.inner.received == b"still here"

    assert not run(scenario).transport.is_closed


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (upgrade_request(without="Upgrade"), 426),
        (upgrade_request(Sec_WebSocket_Version="7"), 426),
        (upgrade_request(without="Sec-WebSocket-Key"), 400),
        (upgrade_request(Sec_WebSocket_Protocol="mqtt"), 400),
        (upgrade_request(Origin="https://example.com"), 403),
    ],
)
def test_a_refused_client_is_told_how_to_ask_and_may_ask_again(
    request_bytes: bytes, status: int
) -> None:
    async def scenario(client: Client) -> None:
        client.connect()
        client.protocol.data_received(request_bytes)
        assert client.transport.written.startswith(b"HTTP/1.1 %d " % status)
        assert b"\r\nsec-websocket-version: 13\r\n" in client.transport.written.lower()
        client.transport.written = b""
        client.protocol.data_received(upgrade_request())
        assert client.transport.written.startswith(b"HTTP/1.1 101 ")

    run(scenario)


def test_elsewhere_an_upgrade_is_ignored_as_http_allows() -> None:
    async def scenario(client: Client) -> None:
        client.connect()
        client.protocol.data_received(upgrade_request("/queue"))
        await settle()
        assert client.transport.written.startswith(b"HTTP/1.1 200 ")

    assert run(scenario).inners == []


def test_a_websocket_may_follow_another_request_on_the_same_connection() -> None:
    async def scenario(client: Client) -> None:
        client.connect()
        get = b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n"
        client.protocol.data_received(get + upgrade_request() + client_frame(BINARY, b"x"))
        await settle()
        assert client.inner.received == b"x"
        assert not client.transport.is_paused

    run(scenario)


def test_what_the_protocol_writes_leaves_in_frames() -> None:
    async def scenario(client: Client) -> None:
        client.upgrade()
        client.inner.transport.write(b"one")
        client.inner.transport.write(b"")
        client.inner.transport.writelines([b"tw", b"o"])

    assert run(scenario).frames() == [Frame(BINARY, b"one"), Frame(BINARY, b"two")]


def test_pausing_reaches_the_connection_in_both_directions() -> None:
    async def scenario(client: Client) -> None:
        client.upgrade()
        client.inner.transport.pause_reading()
        assert client.transport.is_paused
        client.pause_writing()
        assert client.inner.news == ["made", "pause"]
        client.resume_writing()
        assert client.inner.news == ["made", "pause", "resume"]
        client.inner.transport.resume_reading()

    assert not run(scenario).transport.is_paused


def test_a_ping_is_answered_with_its_payload() -> None:
    async def scenario(client: Client) -> None:
        client.upgrade()
        client.send(client_frame(PING, b"one"))
        client.send(client_frame(PING, b"two"), client_frame(BINARY, b"x"))

    assert run(scenario).frames() == [Frame(PONG, b"one"), Frame(PONG, b"two")]


def test_pings_of_a_client_that_does_not_read_cost_one_pong() -> None:
    async def scenario(client: Client) -> None:
        client.upgrade()
        client.pause_writing()
        for number in range(1000):
            client.send(client_frame(PING, b"%d" % number))
        assert client.transport.written == b""
        client.resume_writing()

    assert run(scenario).frames() == [Frame(PONG, b"999")]


@pytest.mark.parametrize("payload", [b"", close_payload(1000), close_payload(4000, "done")])
def test_a_client_that_closes_is_answered_and_the_connection_ends(payload: bytes) -> None:
    async def scenario(client: Client) -> None:
        client.upgrade()
        client.send(client_frame(BINARY, b"last"), client_frame(CLOSE, payload))
        assert client.transport.is_closed
        client.inner.transport.write(b"too late")
        await settle()
        assert client.inner.received == b"last"
        assert client.inner.news == ["made", "pause", "lost"]

    assert run(scenario).frames() == [Frame(CLOSE, payload[:2])]


def test_a_protocol_that_closes_says_so_and_waits_for_the_answer() -> None:
    async def scenario(client: Client) -> None:
        client.upgrade()
        stream = client.inner.transport
        stream.write(b"goodbye")
        stream.close()
        stream.close()
        stream.write(b"too late")
        assert stream.is_closing()
        client.send(client_frame(BINARY, b"unheard"), client_frame(PING, b"unheard"))
        await settle()
        assert client.inner.news == ["made"]
        client.send(client_frame(CLOSE, close_payload(1000)))
        await settle()
        assert client.inner.news == ["made", "lost"]
        assert client.inner.received == b""

    assert run(scenario).frames() == [Frame(BINARY, b"goodbye"), NORMAL_CLOSE]


def test_a_protocol_may_close_while_it_is_given_data() -> None:
    async def scenario(client: Client) -> None:
        client.upgrade()
        client.send(client_frame(BINARY, b"close!"), client_frame(PING), client_frame(CLOSE))
        assert client.transport.is_closed
        await settle()
        assert client.inner.news == ["made", "lost"]

    assert run(scenario).frames() == [NORMAL_CLOSE]


def test_a_paused_protocol_that_closes_still_hears_the_answer() -> None:
    async def scenario(client: Client) -> None:
        client.upgrade()
        client.inner.transport.pause_reading()
        client.inner.transport.close()
        assert not client.transport.is_paused

    run(scenario)


def test_a_client_that_does_not_answer_a_close_is_cut_off() -> None:
    async def scenario(client: Client) -> None:
        client.upgrade()
        client.inner.transport.close()
        await asyncio.sleep(CLOSE_MS_MAX / 1000 - 1)
        client.send(client_frame(BINARY, b"what?"))
        assert not client.transport.is_closed
        await asyncio.sleep(2)
        assert client.transport.is_aborted
        assert client.inner.news == ["made", "lost"]

    run(scenario)


def test_a_client_that_answers_nonsense_to_a_close_has_answered() -> None:
    async def scenario(client: Client) -> None:
        client.upgrade()
        client.inner.transport.close()
        client.send(b"\x88\x02\x03\xe8")
        assert client.transport.is_closed
        assert not client.transport.is_aborted

    assert run(scenario).frames() == [NORMAL_CLOSE]


@pytest.mark.parametrize(
    ("frame", "code"),
    [(client_frame(TEXT_FRAME, b"hello"), 1003), (b"\x82\x01x", 1002), (b"\xff\xff", 1002)],
)
def test_a_client_that_breaks_a_rule_is_told_which_before_it_is_cut_off(
    frame: bytes, code: int
) -> None:
    async def scenario(client: Client) -> None:
        client.upgrade()
        client.send(client_frame(BINARY, b"good"), frame, client_frame(BINARY, b"more"))
        assert client.inner.received == b"good"
        assert client.inner.news == ["made", "pause"]
        assert client.inner.transport.is_closing()
        assert client.transport.has_written_eof
        client.send(b"x" * 1000)
        client.resume_writing()
        assert not client.transport.is_closed
        await asyncio.sleep(LINGER_MS_MAX / 1000 + 1)
        assert client.transport.is_aborted
        assert client.inner.news == ["made", "pause", "lost"]

    (last,) = run(scenario).frames()

    assert last.opcode == CLOSE
    assert int.from_bytes(last.payload[:2], "big") == code
    assert len(last.payload) > 10


def test_inside_tls_a_broken_rule_is_told_too() -> None:
    async def scenario(client: Client) -> None:
        client.transport = FakeTransport(is_secure=True)
        client.upgrade()
        client.send(b"\x82\x01x")
        assert not client.transport.has_written_eof
        assert not client.transport.is_closed

    assert run(scenario).frames()[0].payload[:2] == close_payload(1002)


def test_a_protocol_that_aborts_sends_nothing_more() -> None:
    async def scenario(client: Client) -> None:
        client.upgrade()
        client.inner.transport.abort()
        client.inner.transport.write(b"x")
        assert client.transport.is_aborted
        await settle()
        assert client.inner.news == ["made", "lost"]

    assert run(scenario).frames() == []


def test_a_connection_that_breaks_is_lost_once_and_leaves_no_timer() -> None:
    async def scenario(client: Client) -> None:
        client.upgrade()
        client.inner.transport.close()
        client.transport.ended(ConnectionResetError())
        client.send(client_frame(BINARY, b"ghost"))
        await asyncio.sleep(CLOSE_MS_MAX / 1000 + 1)
        assert client.inner.news == ["made", "lost"]
        assert not client.transport.is_aborted

    run(scenario)


def test_questions_about_the_transport_are_answered_by_the_connection() -> None:
    async def scenario(client: Client) -> None:
        client.transport = FakeTransport(is_secure=True)
        client.upgrade()
        stream = client.inner.transport
        assert stream.get_extra_info("sslcontext") is not None
        assert stream.get_extra_info("peername", "unknown") == "unknown"
        assert not stream.can_write_eof()

    run(scenario)
