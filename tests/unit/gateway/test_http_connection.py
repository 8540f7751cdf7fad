"""HTTP/1.1 over a transport that is not there: order, bounds, time limits."""

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest

from shardbus.core.errors import Refused
from shardbus.gateway.http.server.connection import (
    IDLE_MS_MAX,
    LINGER_MS_MAX,
    OWN_BODY_BYTES_MIN,
    REQUEST_MS_MAX,
    WRITE_MS_MAX,
    HttpConnection,
    HttpGateway,
)
from shardbus.gateway.http.server.head import BODY_BYTES_MAX, HEADER_BYTES_MAX
from shardbus.gateway.http.server.message import TEXT, HttpRequest, HttpResponse
from tests.simulation.world import VirtualLoop
from tests.unit.gateway.transport import FakeTransport

GET = b"GET /a?x=1 HTTP/1.1\r\nHost: h\r\n\r\n"


class Client:
    """One connection to a gateway that tells what it was asked."""

    def __init__(self) -> None:
        self.requests: list[HttpRequest] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.gateway = HttpGateway(self.respond, self.refuse)
        self.transport = FakeTransport()
        self.protocol = HttpConnection(self.gateway)

    async def respond(self, request: HttpRequest) -> HttpResponse:
        self.requests.append(request)
        await self.gate.wait()
        body = request.body.decode() or request.path
        return HttpResponse(200, TEXT, f"{request.method} {body}")

    def refuse(self, refusal: Refused, target: str, peer: str) -> HttpResponse:
        return HttpResponse(refusal.kind.status, TEXT, refusal.message)

    def connect(self) -> None:
        self.transport.connect(self.protocol)

    def send(self, data: bytes) -> None:
        self.protocol.data_received(data)

    def bodies(self) -> list[str]:
        parts = self.transport.written.decode().split("HTTP/1.1 ")[1:]
        return [part.partition("\r\n\r\n")[2] for part in parts]

    def statuses(self) -> list[int]:
        parts = self.transport.written.decode().split("HTTP/1.1 ")[1:]
        return [int(part[:3]) for part in parts]


async def settle() -> None:
    """Let everything that is ready happen; time stands still."""
    for _ in range(20):
        await asyncio.sleep(0)


def run(scenario: Callable[[Client], Awaitable[None]]) -> Client:
    loop = VirtualLoop()

    async def main() -> Client:
        client = Client()
        async with client.gateway:
            client.connect()
            await scenario(client)
        return client

    return loop.finish(loop.create_task(main()))


def test_requests_on_one_connection_are_answered_in_order() -> None:
    async def scenario(client: Client) -> None:
        client.send(GET)
        await settle()
        client.send(b"PUT /b HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhel")
        client.send(b"lo")
        await settle()

    client = run(scenario)

    assert client.bodies() == ["GET a", "PUT hello"]
    assert client.statuses() == [200, 200]
    assert client.requests[0].query == {"x": "1"}
    assert b"content-length: 5\r\n" in client.transport.written.lower()


def test_pipelined_requests_wait_for_each_other() -> None:
    async def scenario(client: Client) -> None:
        client.gate.clear()
        client.send(GET + GET.replace(b"/a", b"/b"))
        await settle()
        assert [request.path for request in client.requests] == ["a"]
        assert client.transport.is_paused
        client.gate.set()
        await settle()
        assert not client.transport.is_paused

    assert run(scenario).bodies() == ["GET a", "GET b"]


def test_a_request_in_single_bytes_is_understood() -> None:
    async def scenario(client: Client) -> None:
        for byte in (
            b"PUT /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"
        ):
            client.send(bytes([byte]))
        await settle()

    assert run(scenario).bodies() == ["PUT hi"]


def test_head_is_answered_without_a_body() -> None:
    async def scenario(client: Client) -> None:
        client.send(GET.replace(b"GET", b"HEAD") + GET)
        await settle()

    client = run(scenario)

    assert client.bodies() == ["", "GET a"]
    assert b"content-length: 6" in client.transport.written.lower()


def test_a_client_that_waits_is_told_to_continue() -> None:
    async def scenario(client: Client) -> None:
        head = b"PUT /x HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"
        client.send(head)
        assert client.transport.written == b"HTTP/1.1 100 \r\n\r\n"
        client.send(b"hi")
        await settle()

    assert run(scenario).statuses() == [100, 200]


@pytest.mark.parametrize(
    "request_text", [GET.replace(b"1.1", b"1.0"), GET[:-2] + b"Connection: close\r\n\r\n"]
)
def test_a_client_that_does_not_keep_the_connection_is_closed_after_the_answer(
    request_text: bytes,
) -> None:
    async def scenario(client: Client) -> None:
        client.send(request_text)
        await settle()
        assert client.transport.is_closed

    assert run(scenario).bodies() == ["GET a"]


LONG = b"x" * (3 * OWN_BODY_BYTES_MIN)


def put(path: str, body: bytes, *, is_chunked: bool = False, more: str = "") -> bytes:
    framing = "Transfer-Encoding: chunked" if is_chunked else f"Content-Length: {len(body)}"
    head = f"PUT /{path} HTTP/1.1\r\nHost: h\r\n{more}{framing}\r\n\r\n".encode()
    if not is_chunked:
        return head + body
    return head + (b"%x\r\n%b\r\n" % (len(body), body) if body else b"") + b"0\r\n\r\n"


@pytest.mark.parametrize("seed", range(12))
def test_bodies_of_all_lengths_arrive_whole_however_they_are_cut(seed: int) -> None:
    dice = random.Random(seed)
    lengths = [0, 1, 5_000, OWN_BODY_BYTES_MIN - 1, OWN_BODY_BYTES_MIN, 200_000, BODY_BYTES_MAX]
    digits = dice.randbytes(BODY_BYTES_MAX).hex().encode()
    bodies = [digits[: dice.choice(lengths)] for _ in range(dice.randrange(1, 8))]
    data = b"".join(
        put(str(at), body, is_chunked=dice.random() < 0.2) for at, body in enumerate(bodies)
    )

    async def scenario(client: Client) -> None:
        left = data
        while left or client.transport.is_paused:
            if left and not client.transport.is_paused:
                cut = dice.choice([1, 100, 4_096, 65_536, 262_144])
                client.send(left[:cut])
                left = left[cut:]
            if dice.random() < 0.5 or client.transport.is_paused:
                await settle()
        await settle()

    client = run(scenario)

    assert [request.body for request in client.requests] == bodies
    assert client.statuses() == [200] * len(bodies)


def test_a_length_beside_chunks_is_ignored() -> None:
    """ "Transfer-Encoding overrides the Content-Length" (RFC 9112, 6.3)."""

    async def scenario(client: Client) -> None:
        client.send(put("x", b"hi", is_chunked=True, more=f"Content-Length: {len(LONG)}\r\n"))
        await settle()

    assert run(scenario).bodies() == ["PUT hi"]


def test_nothing_is_read_after_a_request_with_two_lengths() -> None:
    """ "The server MUST close the connection after responding" (RFC 9112, 6.1): a proxy that goes
    by the other length would take what follows for somebody else's request.
    """

    async def scenario(client: Client) -> None:
        doubtful = put("x", b"hi", is_chunked=True, more="Content-Length: 4\r\n")
        client.send(doubtful + put("y", b"smuggled"))
        await settle()

    client = run(scenario)

    assert client.bodies() == ["PUT hi"]
    assert b"connection: close" in client.transport.written.lower()
    assert client.transport.is_closing()


def test_a_client_with_a_long_body_is_told_to_continue() -> None:
    async def scenario(client: Client) -> None:
        request = put("x", LONG, more="Expect: 100-continue\r\n")
        client.send(request[: -len(LONG)])
        assert client.transport.written == b"HTTP/1.1 100 \r\n\r\n"
        client.send(LONG)
        await settle()

    assert run(scenario).statuses() == [100, 200]


def test_a_long_body_that_ends_early_is_refused() -> None:
    async def scenario(client: Client) -> None:
        client.send(put("x", LONG)[:-1])
        client.protocol.eof_received()
        await settle()

    client = run(scenario)

    assert client.statuses() == [400]
    assert client.requests == []


@pytest.mark.parametrize("more", ["Connection: close\r\n", ""])
def test_a_client_that_ends_behind_a_long_body_is_answered_and_closed(more: str) -> None:
    async def scenario(client: Client) -> None:
        request = put("x", LONG, more=more)
        client.gate.clear()
        client.send(request[:-1])
        client.send(request[-1:])
        if not more:
            assert client.protocol.eof_received() is True
        client.gate.set()
        await settle()
        assert client.transport.is_closed

    assert run(scenario).statuses() == [200]


REFUSED = [
    (b"\x16\x03\x01\x00\xa5nonsense\r\n\r\n", 400),
    (b"GET / HTTP/9.9\r\n\r\n", 505),
    (b"GET / HTTP/1.1\r\n\r\n", 400),
    (b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: x\r\n\r\n", 400),
    (b"GET /?" + b"&".join([b"a=1"] * 40) + b" HTTP/1.1\r\nHost: h\r\n\r\n", 400),
    (b"GET http://[/ HTTP/1.1\r\nHost: h\r\n\r\n", 400),
    (b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * HEADER_BYTES_MAX, 431),
    (b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % (BODY_BYTES_MAX + 1), 413),
    (
        b"PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n"
        % (BODY_BYTES_MAX + 1)
        + bytes(BODY_BYTES_MAX + 1),
        413,
    ),
]


@pytest.mark.parametrize(("data", "status"), REFUSED)
def test_what_is_not_http_or_too_large_is_answered_and_the_connection_ends(
    data: bytes, status: int
) -> None:
    async def scenario(client: Client) -> None:
        client.send(data)
        await settle()
        assert client.transport.has_written_eof
        client.send(b"more that nobody reads")
        await asyncio.sleep(LINGER_MS_MAX / 1000 + 1)
        assert client.transport.is_closed

    client = run(scenario)

    assert client.statuses() == [status]
    assert b"connection: close" in client.transport.written.lower()
    assert client.requests == []


def test_a_slow_request_is_given_up_however_it_trickles() -> None:
    async def scenario(client: Client) -> None:
        client.send(b"GET / HTTP/1.1\r\n")
        for _ in range(REQUEST_MS_MAX // 1000 - 1):
            await asyncio.sleep(1)
            client.send(b"x: y\r\n")
        assert not client.transport.is_aborted
        await asyncio.sleep(2)
        assert client.transport.is_aborted

    assert run(scenario).requests == []


def test_an_idle_connection_is_closed_and_a_busy_one_is_not() -> None:
    async def scenario(client: Client) -> None:
        client.gate.clear()
        client.send(GET)
        await asyncio.sleep(IDLE_MS_MAX / 1000 + 1)
        assert not client.transport.is_closed
        client.gate.set()
        await asyncio.sleep(IDLE_MS_MAX / 1000 - 1)
        assert not client.transport.is_closed
        await asyncio.sleep(2)
        assert client.transport.is_aborted

    assert run(scenario).bodies() == ["GET a"]


def test_a_client_that_takes_nothing_gets_nothing_more_and_is_cut_off() -> None:
    async def scenario(client: Client) -> None:
        client.protocol.pause_writing()
        client.send(GET)
        await settle()
        assert client.requests == []
        await asyncio.sleep(WRITE_MS_MAX / 1000 + 1)
        assert client.transport.is_aborted

    run(scenario)


def test_a_client_that_takes_again_is_served_again() -> None:
    async def scenario(client: Client) -> None:
        client.protocol.pause_writing()
        client.send(GET)
        client.protocol.resume_writing()
        await settle()

    assert run(scenario).bodies() == ["GET a"]


def test_a_client_that_has_said_everything_still_gets_its_answer() -> None:
    async def scenario(client: Client) -> None:
        client.gate.clear()
        client.send(GET)
        assert client.protocol.eof_received() is True
        client.gate.set()
        await settle()
        assert client.transport.is_closed

    assert run(scenario).bodies() == ["GET a"]


def test_a_client_that_leaves_does_not_end_what_it_began() -> None:
    async def scenario(client: Client) -> None:
        client.gate.clear()
        client.send(GET)
        await settle()
        client.protocol.connection_lost(None)
        client.gate.set()
        await settle()

    client = run(scenario)

    assert len(client.requests) == 1
    assert client.transport.written == b""
    assert client.gateway.connections == set()


def test_leaving_lets_an_answer_end_and_closes_idle_connections() -> None:
    loop = VirtualLoop()
    client_of: list[Client] = []

    async def main() -> None:
        client = Client()
        client_of.append(client)
        idle = FakeTransport()
        async with client.gateway:
            client.connect()
            idle.connect(client.gateway.connection())
            client.gate.clear()
            client.send(GET)
            await settle()
            loop.call_later(4, client.gate.set)
        assert idle.is_closed

    loop.finish(loop.create_task(main()))

    assert client_of[0].bodies() == ["GET a"]
    assert b"connection: close" in client_of[0].transport.written.lower()


def test_leaving_does_not_wait_for_an_answer_that_does_not_come() -> None:
    """R42: a broker that hangs would hold the end of the process until it is killed."""
    loop = VirtualLoop()
    client_of: list[Client] = []

    async def main() -> None:
        client = Client()
        client_of.append(client)
        async with client.gateway:
            client.connect()
            client.gate.clear()
            client.send(GET)
            await settle()

    loop.finish(loop.create_task(main()))

    assert client_of[0].transport.is_aborted
    assert client_of[0].gateway.connections == set()
