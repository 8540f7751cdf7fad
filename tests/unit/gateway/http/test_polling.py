"""A page that polls over one connection: what it is answered, byte by byte (R34, R45)."""

import json

import pytest

from shardbus.broker.access.sas import mint_token
from tests.simulation.world import EPOCH_MS
from tests.unit.gateway.http.web import Web, Wire

RULES = "/api/v1/access-rules"


class Page:
    """Asks for the overview as a browser does, with the token of a rule `reader`."""

    def __init__(self, web: Web) -> None:
        made = web.fetch("PUT", f"{RULES}/reader", json.dumps({"rights": ["Listen"]}).encode())
        key = json.loads(made.body)["primary_key"]
        self.token = mint_token("http://bus:5300/", "reader", key, EPOCH_MS // 1000 + 600)
        self._web = web
        self._wire = Wire(web)
        self._etag = ""

    def poll(self) -> int:
        known = f"If-None-Match: {self._etag}\r\n" if self._etag else ""
        head = (
            "GET /api/v1/overview HTTP/1.1\r\nHost: bus:5300\r\nConnection: keep-alive\r\n"
            f"Authorization: {self.token}\r\n{known}\r\n"
        )
        before = len(self._wire.transport.written)
        self._web.loop.call_soon(self._wire.protocol.data_received, head.encode())
        self._web.pass_s(1.5)
        lines = self._wire.transport.written[before:].decode().split("\r\n")
        fields = dict(line.split(": ", 1) for line in lines if ": " in line)
        self._etag = fields.get("ETag", self._etag)
        return int(lines[0].split()[1])

    def close(self) -> None:
        self._wire.close()


def test_an_unchanged_overview_is_not_sent_again_and_a_changed_one_is(web: Web) -> None:
    page = Page(web)
    assert [page.poll(), page.poll(), page.poll()] == [200, 304, 304]

    web.send("q")
    assert page.poll() == 200
    page.close()


@pytest.mark.parametrize(
    ("method", "path", "body", "after"),
    [
        ("DELETE", "/reader", None, 401),
        ("POST", "/reader/rotate", {"key": "primary"}, 401),
        ("POST", "/reader/rotate", {"key": "secondary"}, 304),
        ("PUT", "/reader", {"rights": ["Send"]}, 401),
        ("PUT", "/reader", {"rights": ["Manage"]}, 304),
    ],
)
def test_a_page_loses_its_right_with_the_next_request(
    web: Web, method: str, path: str, body: dict[str, object] | None, after: int
) -> None:
    """R34: nothing that is remembered of a token outlives its key or its right."""
    page = Page(web)
    assert [page.poll(), page.poll()] == [200, 304]

    changed = web.fetch(method, RULES + path, b"" if body is None else json.dumps(body).encode())

    assert changed.status == 200
    assert page.poll() == after
    page.close()


def test_a_page_loses_its_right_when_its_token_expires(web: Web) -> None:
    page = Page(web)
    assert [page.poll(), page.poll()] == [200, 304]

    web.pass_s(600)
    # The idle connection was closed meanwhile: as a browser does, over another.
    assert web.fetch("GET", "/api/v1/overview", token=page.token).status == 401
    page.close()
