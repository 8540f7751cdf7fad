"""The client of the JSON API: what is asked, and what answers mean."""

import http.server
import json
import threading
from collections.abc import Iterator, Mapping
from typing import ClassVar

import pytest

from shardbus.app.cli.api_client import ApiClient
from shardbus.app.cli.client import Answer, HttpTransport
from shardbus.app.cli.failures import CommandError, NotFound, Refused, ServerUnavailable, Usage
from shardbus.app.cli.sas import Credential
from shardbus.broker.access.sas import mint_token

ENDPOINT = "http://127.0.0.1:5300"


class Bus:
    """Answers every request alike and remembers the last."""

    def __init__(self, status: int, body: str) -> None:
        self._answer = Answer(status, body.encode())
        self.line = ""
        self.headers: Mapping[str, str] = {}
        self.body: bytes | None = None

    def ask(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None
    ) -> Answer:
        self.line = f"{method} {target}"
        self.headers = headers
        self.body = body
        return self._answer


def client(bus: Bus, now_s: float = 1000.0) -> ApiClient:
    return ApiClient(bus, ENDPOINT, Credential(), clock=lambda: now_s)


def test_a_question_has_the_path_the_parameters_and_a_signature() -> None:
    """R34"""
    bus = Bus(200, '{"name": "a/b c"}')

    answer = client(bus).get("entities/a/b c/$DeadLetterQueue/messages", from_=3, top=None)

    assert answer == {"name": "a/b c"}
    assert bus.line == "GET /api/v1/entities/a/b%20c/$DeadLetterQueue/messages?from=3"
    expected = mint_token(ENDPOINT, Credential().key_name, Credential().key, 1300)
    assert bus.headers["Authorization"] == expected


def test_what_is_posted_and_put_is_json() -> None:
    bus = Bus(200, "{}")

    client(bus).post("entities/q/messages", {"messages": []})
    posted = bus.body
    client(bus).put("access-rules/r", {"rights": ["Send"]})

    assert json.loads(posted or b"") == {"messages": []}
    assert json.loads(bus.body or b"") == {"rights": ["Send"]}
    assert bus.headers["Content-Type"] == "application/json"


def test_an_empty_answer_is_an_empty_document() -> None:
    bus = Bus(204, "")

    assert client(bus).delete("access-rules/r") == {}
    assert bus.line == "DELETE /api/v1/access-rules/r"


@pytest.mark.parametrize(
    ("status", "kind"),
    [(404, NotFound), (409, Refused), (410, Refused), (503, ServerUnavailable), (400, Refused)],
)
def test_a_refusal_is_told_in_the_words_of_the_api(status: int, kind: type[CommandError]) -> None:
    bus = Bus(status, '{"error": {"code": "x", "message": "the reason"}}')

    with pytest.raises(kind, match="the reason"):
        client(bus).get("entities/q/messages")


@pytest.mark.parametrize("body", ["not JSON", "[]"])
def test_an_answer_that_is_no_document_is_told(body: str) -> None:
    with pytest.raises(CommandError, match="the answer of the bus"):
        client(Bus(200, body)).get("health")


class Echo(http.server.BaseHTTPRequestHandler):
    """Answers where the request came from; says goodbye when the path is /last."""

    protocol_version = "HTTP/1.1"
    ports: ClassVar[list[int]] = []

    def do_GET(self) -> None:
        self.ports.append(self.client_address[1])
        self.send_response(200)
        self.send_header("Content-Length", "2")
        if self.path == "/last":
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *arguments: object) -> None:
        """Tests are quiet."""


@pytest.fixture
def server() -> Iterator[str]:
    Echo.ports.clear()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Echo) as served:
        thread = threading.Thread(target=served.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{served.server_address[1]}"
        served.shutdown()
        thread.join()


def test_requests_share_a_connection_until_one_side_ends_it(server: str) -> None:
    transport = HttpTransport(server)

    for target in ("/", "/", "/last", "/"):
        assert transport.ask("GET", target, {}, None) == Answer(200, b"{}")
    transport.close()

    first, second, third, fourth = Echo.ports
    assert first == second == third != fourth


def test_a_file_without_certificates_is_told() -> None:
    transport = HttpTransport("https://127.0.0.1:1", "/nowhere/ca.pem")

    with pytest.raises(Usage, match="holds no certificates"):
        transport.ask("GET", "/", {}, None)
