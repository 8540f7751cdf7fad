"""How the bulk lane asks a gateway: connections that are kept, lost and too many."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from shardbus.broker.access.slowdown import WAITING_OF_PEER_MAX
from shardbus.gateway.flight.server.bus import CALLS_MAX, BusClient, BusError, entity_path
from tests.support.ports import free_port


class Gateway(ThreadingHTTPServer):
    """Answers every request with what it is told to, and counts connections."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.status = 200
        self.content = b'{"a": 1}'
        self.is_closing = False
        self.requests: list[tuple[str, str, str, bytes]] = []
        self.connections = 0


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Gateway

    def setup(self) -> None:
        super().setup()
        self.server.connections += 1

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: a test says what went wrong."""

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        token = self.headers.get("Authorization", "")
        self.server.requests.append((self.command, self.path, token, body))
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(self.server.content)))
        self.end_headers()
        self.wfile.write(self.server.content)
        # As a gateway may that has enough of an idle connection: without a word.
        self.close_connection = self.server.is_closing


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    gateway = Gateway()
    serving = threading.Thread(target=gateway.serve_forever, kwargs={"poll_interval": 0.01})
    serving.start()
    yield gateway
    gateway.shutdown()
    serving.join()
    gateway.server_close()


@pytest.fixture
def bus(gateway: Gateway) -> Iterator[BusClient]:
    bus = BusClient("127.0.0.1", gateway.server_address[1])
    yield bus
    bus.close()


def test_requests_share_a_connection_and_show_the_token(gateway: Gateway, bus: BusClient) -> None:
    assert bus.get("x", "token") == {"a": 1}
    assert bus.post("y", "token", {"b": 2}) == {"a": 1}

    assert gateway.connections == 1
    assert gateway.requests == [
        ("GET", "/api/v1/x", "token", b""),
        ("POST", "/api/v1/y", "token", b'{"b": 2}'),
    ]


def test_a_connection_that_was_closed_meanwhile_is_replaced(
    gateway: Gateway, bus: BusClient
) -> None:
    gateway.is_closing = True

    for _ in range(5):
        assert bus.get("x", "") == {"a": 1}

    assert gateway.connections == 5


def test_a_refusal_has_its_status_and_code(gateway: Gateway, bus: BusClient) -> None:
    gateway.status = 404
    gateway.content = b'{"error": {"code": "not-found", "message": "No."}}'

    with pytest.raises(BusError, match=r"^not-found: ") as refused:
        bus.get("x", "")
    assert refused.value.status == 404


@pytest.mark.parametrize("content", [b"", b"<html>", b"[]", b'{"error": 5}'])
@pytest.mark.parametrize("status", [200, 500])
def test_what_is_no_answer_of_the_bus_is_told(
    gateway: Gateway, bus: BusClient, content: bytes, status: int
) -> None:
    gateway.status, gateway.content = status, content
    if status == 200 and content.startswith(b"{"):
        assert bus.get("x", "") == {"error": 5}
        return

    with pytest.raises(BusError, match=r"^internal: "):
        bus.get("x", "")


def test_nobody_there_is_unavailable() -> None:
    with pytest.raises(BusError, match=r"^unavailable: ") as silent:
        BusClient("127.0.0.1", free_port()).get("x", "")
    assert silent.value.status == 0


def test_a_token_that_no_header_can_hold_is_refused(bus: BusClient) -> None:
    with pytest.raises(BusError, match=r"^invalid-argument: ") as refused:
        bus.get("x", "a\nb: c")
    assert refused.value.status == 400


def test_names_of_entities_are_quoted() -> None:
    assert entity_path("a b/$DeadLetterQueue", "bulk") == "entities/a%20b/$DeadLetterQueue/bulk"
    assert entity_path("a?b#c%", "readers") == "entities/a%3Fb%23c%25/readers"


def test_guessers_cannot_hold_every_place() -> None:
    """The bus holds so many answers back for one address, and the lane is one."""
    assert CALLS_MAX - WAITING_OF_PEER_MAX == 32
