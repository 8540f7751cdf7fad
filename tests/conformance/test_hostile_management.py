"""XML made to hurt, over real connections: refused, while others are served."""

from __future__ import annotations

import ssl
import time
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection, HTTPSConnection
from typing import Final

import pytest

from shardbus.app.cli.sas import Credential
from tests.conformance.sdk import WAIT_S
from tests.support.hostile_xml import LARGE
from tests.support.server import Server

MEMORY_KB_MAX: Final = 64 * 1024
"""What all of it together may leave behind; one document that expands would be gigabytes."""
CLIENTS: Final = 4


def connect(server: Server, *, is_secure: bool) -> HTTPConnection:
    if not is_secure:
        return HTTPConnection(server.host, server.http_port, timeout=WAIT_S)
    trust = ssl.create_default_context(cafile=str(server.ca_file))
    return HTTPSConnection(server.host, server.http_port, timeout=WAIT_S, context=trust)


def attack(server: Server, credential: Credential, *, is_secure: bool) -> list[tuple[str, int]]:
    """Every document on one connection, which must survive them; names and answers."""
    token = credential.token_for(f"http://{server.host}", expires_at_s=int(time.time()) + 600)
    connection = connect(server, is_secure=is_secure)
    answers = []
    for name, document in LARGE.items():
        target = "/hostile/subscriptions/s?api-version=2021-05"
        connection.request("PUT", target, document, {"Authorization": token})
        response = connection.getresponse()
        assert len(response.read()) < 4096
        answers.append((name, response.status))
    connection.close()
    return answers


@pytest.mark.parametrize("is_secure", [False, True], ids=["http", "https"])
def test_no_document_exhausts_the_server(
    server: Server, credential: Credential, is_secure: bool
) -> None:
    """Bombs of entities, namespaces, depth and number: 400 each, memory and others unharmed."""
    honest = HTTPConnection(server.host, server.http_port, timeout=WAIT_S)
    before_kb = server.memory_kb()
    with ThreadPoolExecutor(CLIENTS) as pool:
        attacks = [
            pool.submit(attack, server, credential, is_secure=is_secure) for _ in range(CLIENTS)
        ]
        served = 0
        while not all(one.done() for one in attacks) or not served:
            honest.request("GET", "/health")
            response = honest.getresponse()
            assert (response.status, bool(response.read())) == (200, True)
            served += 1
    honest.close()

    for one in attacks:
        assert one.result() == [(name, 400) for name in LARGE]
    assert server.memory_kb() - before_kb < MEMORY_KB_MAX


def test_nothing_is_parsed_for_strangers(server: Server) -> None:
    """R34: who shows no token learns nothing of what was wrong with the document."""
    connection = HTTPConnection(server.host, server.http_port, timeout=WAIT_S)
    for token in ("", "SharedAccessSignature sr=a&sig=b&se=9999999999&skn=c"):
        headers = {"Authorization": token} if token else {}
        connection.request("PUT", "/hostile", LARGE["nested laughs"], headers)
        response = connection.getresponse()
        body = response.read()
        assert response.status == 401
        assert b"document" not in body
    connection.close()
