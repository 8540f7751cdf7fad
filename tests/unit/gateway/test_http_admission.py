"""Many HTTP connections at once: who stays, and what they can make us hold."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from shardbus.core.errors import Refused
from shardbus.gateway.admission import http as crowd
from shardbus.gateway.admission.admission import TURNED_AWAY_MAX
from shardbus.gateway.http.server.connection import LINGER_BYTES_MAX, HttpGateway
from shardbus.gateway.http.server.head import BODY_BYTES_MAX
from shardbus.gateway.http.server.message import TEXT, HttpRequest, HttpResponse
from tests.simulation.world import VirtualLoop
from tests.unit.gateway.transport import FakeTransport

PLACES = 3
GET = b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n"
KNOWN = b"GET /a HTTP/1.1\r\nHost: h\r\nAuthorization: good\r\n\r\n"
LARGE = b"PUT /a HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n"


class House:
    """A gateway of three places; who says so in a header is known."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.gate.set()
        self.gateway = HttpGateway(self.respond, self.refuse, connections_max=PLACES)

    async def respond(self, request: HttpRequest) -> HttpResponse:
        if "authorization" in request.headers:
            request.vouched()
        await self.gate.wait()
        return HttpResponse(200, TEXT, "done")

    def refuse(self, refusal: Refused, target: str, peer: str) -> HttpResponse:
        return HttpResponse(refusal.kind.status, TEXT, refusal.message)

    async def dial(self, said: bytes = b"", host: str = "192.0.2.1") -> FakeTransport:
        transport = FakeTransport(host=host)
        transport.connect(self.gateway.connection())
        await self.say(transport, said)
        return transport

    async def say(self, transport: FakeTransport, said: bytes) -> None:
        protocol = transport.get_protocol()
        assert isinstance(protocol, asyncio.Protocol)
        if said:
            protocol.data_received(said)
        for _ in range(20):
            await asyncio.sleep(0)


def run(scenario: Callable[[House], Awaitable[None]]) -> None:
    loop = VirtualLoop()

    async def main() -> None:
        house = House()
        async with house.gateway:
            await scenario(house)

    loop.finish(loop.create_task(main()))


def test_the_oldest_stranger_of_the_noisiest_peer_makes_room() -> None:
    async def scenario(house: House) -> None:
        quiet = await house.dial(GET[:20], "192.0.2.7")
        noisy = [await house.dial(GET[:20]) for _ in range(4)]

        assert [transport.is_aborted for transport in noisy] == [True, True, False, False]
        assert not quiet.is_closed
        await house.say(noisy[3], GET[20:])
        assert noisy[3].written.startswith(b"HTTP/1.1 200 ")

    run(scenario)


def test_known_clients_stay_while_there_is_a_stranger() -> None:
    async def scenario(house: House) -> None:
        known = [await house.dial(KNOWN) for _ in range(2)]
        strangers = [await house.dial(GET) for _ in range(5)]

        assert [transport.is_closed for transport in known] == [False, False]
        assert [transport.is_closed for transport in strangers] == [True] * 4 + [False]

    run(scenario)


def test_among_known_clients_the_one_that_waits_longest_makes_room() -> None:
    async def scenario(house: House) -> None:
        quiet = await house.dial(KNOWN, "192.0.2.7")
        noisy = [await house.dial(KNOWN) for _ in range(2)]
        late = await house.dial(KNOWN, "192.0.2.8")

        assert not quiet.is_closed
        assert [transport.is_aborted for transport in noisy] == [True, False]
        assert late.written.startswith(b"HTTP/1.1 200 ")

    run(scenario)


def test_when_all_are_being_answered_one_too_many_is_told_so() -> None:
    async def scenario(house: House) -> None:
        house.gate.clear()
        busy = [await house.dial(KNOWN) for _ in range(PLACES)]
        late = [await house.dial(GET) for _ in range(TURNED_AWAY_MAX + 1)]

        assert all(transport.written.startswith(b"HTTP/1.1 503 ") for transport in late)
        assert all(transport.has_written_eof for transport in late)
        assert [transport.is_aborted for transport in late] == [True] + [False] * TURNED_AWAY_MAX
        house.gate.set()
        await house.say(busy[0], b"")
        assert all(transport.written.startswith(b"HTTP/1.1 200 ") for transport in busy)

    run(scenario)


def test_unfinished_bodies_of_strangers_are_bounded_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(crowd, "BODIES_BYTES_MAX", 1_000)

    async def scenario(house: House) -> None:
        quiet = await house.dial(LARGE % 100 + bytes(99), "192.0.2.7")
        noisy = [await house.dial(LARGE % 600 + bytes(500)) for _ in range(2)]

        assert [transport.is_aborted for transport in noisy] == [True, False]
        await house.say(quiet, b"x")
        assert quiet.written.startswith(b"HTTP/1.1 200 ")
        await house.say(noisy[1], bytes(100))
        assert noisy[1].written.startswith(b"HTTP/1.1 200 ")

    run(scenario)


def test_when_known_clients_send_too_much_at_once_the_one_that_only_holds_is_told_to_try_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(crowd, "BODIES_BYTES_MAX", 1_000)

    async def scenario(house: House) -> None:
        known = [await house.dial(KNOWN) for _ in range(2)]
        for transport in known:
            transport.written = b""
            await house.say(transport, LARGE % 600 + bytes(550))
            await asyncio.sleep(1)

        assert known[0].written.startswith(b"HTTP/1.1 503 ")
        assert known[1].written == b""
        await house.say(known[1], bytes(50))
        assert known[1].written.startswith(b"HTTP/1.1 200 ")
        again = await house.dial(KNOWN)
        await house.say(again, LARGE % 900 + bytes(900))
        assert again.written.count(b"HTTP/1.1 200 ") == 2

    run(scenario)


def test_a_body_of_a_gigabyte_is_refused_before_it_is_read() -> None:
    async def scenario(house: House) -> None:
        transport = await house.dial(LARGE % 2**30)

        assert transport.written.startswith(b"HTTP/1.1 413 ")
        assert transport.has_written_eof

    run(scenario)


def test_who_sends_on_after_a_refusal_is_cut_off() -> None:
    async def scenario(house: House) -> None:
        transport = await house.dial(LARGE % 2**30)
        piece = bytes(LINGER_BYTES_MAX // 4)
        for _ in range(4):
            await house.say(transport, piece)
        was_aborted = transport.is_aborted

        await house.say(transport, b"x")

        assert (was_aborted, transport.is_aborted) == (False, True)

    run(scenario)


def test_a_chunked_body_is_refused_at_the_limit() -> None:
    async def scenario(house: House) -> None:
        head = b"PUT /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
        transport = await house.dial(head)
        chunk = b"10000\r\n" + bytes(0x10000) + b"\r\n"
        for _ in range(BODY_BYTES_MAX // 0x10000):
            await house.say(transport, chunk)
        assert transport.written == b""

        await house.say(transport, chunk)

        assert transport.written.startswith(b"HTTP/1.1 413 ")

    run(scenario)


def test_a_client_that_does_not_read_is_not_read_either() -> None:
    """What it sends could only wait in memory."""

    async def scenario(house: House) -> None:
        transport = await house.dial(GET)
        protocol = transport.get_protocol()
        protocol.pause_writing()
        await house.say(transport, GET)
        was_paused = transport.is_paused

        protocol.resume_writing()
        await house.say(transport, b"")

        assert (was_paused, transport.is_paused) == (True, False)
        assert transport.written.count(b"HTTP/1.1 200 ") == 2

    run(scenario)


class DeafTransport(FakeTransport):
    """Of a client that takes nothing of what is written."""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        super().write(data)
        protocol = self.get_protocol()
        assert isinstance(protocol, asyncio.Protocol)
        protocol.pause_writing()

    def get_write_buffer_size(self) -> int:
        return 450 if self.written else 0


def test_answers_that_nobody_reads_are_bounded_over_all_connections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever has not read the most for the longest time goes."""
    monkeypatch.setattr(crowd, "ANSWERS_BYTES_MAX", 1_000)

    async def scenario(house: House) -> None:
        clients = []
        for _ in range(PLACES):
            client = DeafTransport(host="192.0.2.1")
            client.connect(house.gateway.connection())
            await house.say(client, KNOWN)
            clients.append(client)
            await asyncio.sleep(1)

        assert [client.is_aborted for client in clients] == [True, False, False]
        assert house.gateway.admission.unread.total_bytes == 900
        for client in clients:
            client.abort()
        await asyncio.sleep(0)
        assert house.gateway.admission.unread.total_bytes == 0

    run(scenario)


def test_a_stranger_that_holds_nothing_does_not_make_room_for_bodies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has none to give: who has just come would be turned away by whoever sends much."""
    monkeypatch.setattr(crowd, "BODIES_BYTES_MAX", 100_000)

    async def scenario(house: House) -> None:
        new = await house.dial(host="192.0.2.9")
        known = [await house.dial(KNOWN) for _ in range(PLACES - 1)]
        for client in known:
            await house.say(client, LARGE % 90_000 + bytes(80_000))
            await asyncio.sleep(1)

        assert not new.is_closed
        await house.say(new, GET)
        assert b"done" in new.written

    run(scenario)
