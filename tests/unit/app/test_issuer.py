"""The keys of an issuer: how they are fetched, how long they are kept, and when asked for again."""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Final

import pytest

from shardbus.app.server.fetching import DOCUMENT_BYTES_MAX, FetchFailed, fetch_document
from shardbus.app.server.issuer import (
    ASK_AGAIN_MS,
    DISCOVERY,
    FETCH_MS_MAX,
    KEYS_AGE_MS_MAX,
    REFRESH_MS,
    Issuer,
)
from shardbus.broker.clock import SystemClock
from shardbus.gateway.listening.tls import development_certificate, server_context
from tests.support.issuer import KEYS, LocalIssuer, answer, key_set, rsa_key, running_issuer
from tests.support.refusals import unavailability
from tests.unit.broker.house import House

URL: Final = "https://login.example/tenant"
WHERE: Final = "https://keys.example/set"
ONE, TWO = rsa_key("one"), rsa_key("two")


class Net:
    """The two documents of an issuer, and how long they take; `is_up` says whether they come."""

    def __init__(self) -> None:
        self.documents: dict[str, bytes] = {
            URL + DISCOVERY: json.dumps({"issuer": URL, "jwks_uri": WHERE}).encode(),
            WHERE: key_set(ONE),
        }
        self.is_up = True
        self.takes_s = 0.1
        self.asked: list[str] = []

    async def fetch(self, url: str) -> bytes:
        self.asked.append(url)
        await asyncio.sleep(self.takes_s)
        if not self.is_up:
            raise FetchFailed(f"{url} cannot be reached: refused")
        return self.documents[url]


class Scene(House):
    """An issuer in virtual time."""

    def __init__(self) -> None:
        super().__init__()
        self.net = Net()
        self.issuer = Issuer(URL, self.clock, self.net.fetch)
        self.changes = 0
        self.issuer.watch(self._changed)
        self.running = self.loop.create_task(self.issuer.run())

    def _changed(self) -> None:
        self.changes += 1

    def knows(self, key_id: str) -> bool:
        known = self.issuer.known()
        return known is not None and known.names(key_id)

    def ask_again(self) -> None:
        self.loop.run_until_complete(self.issuer.ask_again())

    def close(self) -> None:
        self.running.cancel()
        self.loop.run_until_complete(asyncio.gather(self.running, return_exceptions=True))
        super().close()


@pytest.fixture
def scene() -> Iterator[Scene]:
    scene = Scene()
    yield scene
    scene.close()


def test_the_keys_are_where_the_issuer_says(scene: Scene) -> None:
    scene.pass_s(1)

    assert scene.knows("one")
    assert scene.net.asked == [URL + DISCOVERY, WHERE]
    assert (scene.issuer.problems(), scene.changes) == ([], 0)


def test_a_key_that_is_withdrawn_is_gone_when_the_set_is_fetched_again(scene: Scene) -> None:
    scene.pass_s(1)
    scene.net.documents[WHERE] = key_set(TWO)

    scene.pass_s(REFRESH_MS / 1000 - 2)
    before = scene.knows("one")
    scene.pass_s(3)

    assert before
    assert (scene.knows("one"), scene.knows("two"), scene.changes) == (False, True, 1)


def test_strangers_make_the_bus_ask_once_in_a_while_and_no_more(scene: Scene) -> None:
    scene.pass_s(1)
    scene.net.documents[WHERE] = key_set(ONE, TWO)
    for _ in range(1000):
        scene.ask_again()
    asked_at_first = len(scene.net.asked)

    scene.pass_s(ASK_AGAIN_MS / 1000)
    for _ in range(1000):
        scene.ask_again()

    assert (asked_at_first, len(scene.net.asked)) == (2, 4)
    assert scene.knows("two")


def test_all_who_ask_meanwhile_wait_for_one_answer(scene: Scene) -> None:
    scene.pass_s(1)
    scene.pass_s(ASK_AGAIN_MS / 1000)
    scene.net.takes_s = 1

    waiting = [scene.loop.create_task(scene.issuer.ask_again()) for _ in range(100)]
    scene.pass_s(0.5)
    gone = waiting.pop()
    gone.cancel()
    scene.pass_s(0.5)
    are_waiting = not any(task.done() for task in waiting)
    scene.pass_s(2)

    assert are_waiting
    assert all(task.done() for task in waiting)
    assert len(scene.net.asked) == 4


def test_while_the_issuer_is_down_its_keys_are_kept_for_a_day(scene: Scene) -> None:
    scene.pass_s(1)
    scene.net.is_up = False

    scene.pass_s(KEYS_AGE_MS_MAX / 1000 - 10)
    is_kept, told = scene.knows("one"), scene.issuer.problems()
    scene.pass_s(20)

    assert is_kept
    assert told == [f"sign-in: {URL + DISCOVERY} cannot be reached: refused"]
    assert scene.issuer.known() is None
    with unavailability():
        scene.issuer.keys()

    scene.net.is_up = True
    scene.pass_s(ASK_AGAIN_MS / 1000 + 1)
    assert (scene.knows("one"), scene.issuer.problems()) == (True, [])


def test_an_issuer_that_does_not_answer_is_waited_for_ten_seconds(scene: Scene) -> None:
    scene.net.takes_s = 1_000_000

    scene.pass_s(FETCH_MS_MAX / 1000 - 1)
    before = scene.issuer.problems()
    scene.pass_s(2)

    assert before == []
    assert "has not answered" in scene.issuer.problems()[0]


BAD: Final = {
    "of another issuer": (URL + DISCOVERY, b'{"issuer": "https://x", "jwks_uri": "https://x"}'),
    "that is no object": (URL + DISCOVERY, b"[]"),
    "that is no JSON": (URL + DISCOVERY, b"<html>"),
    "without keys": (URL + DISCOVERY, json.dumps({"issuer": URL}).encode()),
    "whose keys are none": (WHERE, b'{"keys": []}'),
    "whose keys are no JSON": (WHERE, b"\xff"),
}


@pytest.mark.parametrize("made", BAD)
def test_a_document_is_refused_and_the_former_keys_are_kept(scene: Scene, made: str) -> None:
    scene.pass_s(1)
    url, content = BAD[made]
    scene.net.documents[url] = content

    scene.pass_s(REFRESH_MS / 1000 + 1)

    [problem] = scene.issuer.problems()
    assert url in problem
    assert scene.knows("one")


# Over a real connection.


@pytest.fixture
def local() -> Iterator[LocalIssuer]:
    with running_issuer(ONE) as issuer:
        yield issuer


def fetched(url: str) -> bytes:
    return asyncio.run(fetch_document(url))


def failure(url: str) -> str:
    with pytest.raises(FetchFailed) as caught:
        fetched(url)
    return str(caught.value)


def test_a_document_is_fetched(local: LocalIssuer) -> None:
    assert fetched(local.url + KEYS) == key_set(ONE)


@pytest.mark.parametrize("status", [204, 301, 302, 307, 404, 500])
def test_anything_but_200_is_refused_and_no_redirection_followed(
    local: LocalIssuer, status: int
) -> None:
    local.answers["/elsewhere"] = lambda handler: answer(handler, b"", status)

    assert f"answers {status}" in failure(local.url + "/elsewhere")
    assert local.asked == ["/elsewhere"]


@pytest.mark.parametrize("has_length", [True, False])
def test_a_document_that_is_too_large_is_not_read_to_its_end(
    local: LocalIssuer, has_length: bool
) -> None:
    def pour(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        if has_length:
            handler.send_header("Content-Length", str(100 * DOCUMENT_BYTES_MAX))
        handler.end_headers()
        try:
            for _ in range(100):
                handler.wfile.write(b"x" * DOCUMENT_BYTES_MAX)
        except OSError:
            hung_up.set()

    hung_up = threading.Event()
    local.answers["/much"] = pour

    assert "more than" in failure(local.url + "/much")
    assert hung_up.wait(30)


def test_what_ends_too_soon_is_no_document(local: LocalIssuer) -> None:
    def break_off(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "100")
        handler.end_headers()
        handler.wfile.write(b"{}")

    def greet(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(b"SSH-2.0\r\n\r\n")

    local.answers["/half"] = break_off
    local.answers["/none"] = lambda handler: handler.wfile.flush()
    local.answers["/other"] = greet

    for path in ("/half", "/none", "/other"):
        assert "does not answer as a web server does" in failure(local.url + path)


def test_nobody_listens() -> None:
    with running_issuer(ONE) as issuer:
        url = issuer.url
    assert "cannot be reached" in failure(url)


@pytest.mark.parametrize(
    "url",
    ["http://login.example/x", "ftp://127.0.0.1/x", "file:///etc/passwd", "https://", "x", "",
     "https://user:word@host/x", "https://host/x#y", "https://host:0/x", "https://ho st/x",
     "https://host:x/", "https://host/" + "x" * 3000, "https://[::1/x"],
)  # fmt: skip
def test_nothing_is_fetched_from(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(asyncio, "open_connection")

    assert failure(url)


def test_an_issuer_beyond_this_machine_must_prove_who_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its certificate is checked, by name and authority."""
    files = development_certificate(tmp_path, now_ms=SystemClock().now_ms(), hosts=("localhost",))
    issuer = LocalIssuer([ONE])
    secured: ssl.SSLContext = server_context(files.certificate, files.key)
    issuer.secure(secured)
    issuer.start()
    port = issuer.url.rpartition(":")[2]
    try:
        stranger = failure(f"https://localhost:{port}{KEYS}")
        monkeypatch.setenv("SSL_CERT_FILE", str(files.authority))
        known = fetched(f"https://localhost:{port}{KEYS}")
        other_name = failure(f"https://127.0.0.1:{port}{KEYS}")
    finally:
        issuer.stop()

    assert "CERTIFICATE_VERIFY_FAILED" in stranger
    assert "CERTIFICATE_VERIFY_FAILED" in other_name
    assert known == key_set(ONE)
