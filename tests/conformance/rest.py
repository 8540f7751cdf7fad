"""HTTP messaging as curl would do it: one kept connection that asks with a token."""

from __future__ import annotations

import asyncio
import http.client
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final
from urllib.parse import urlsplit

from shardbus.app.cli.sas import Credential
from tests.conformance.variants import Each, Variant
from tests.support.server import Server

BATCH_TYPE: Final = "application/vnd.microsoft.servicebus.json"
NO_HEADERS: Final[Mapping[str, str]] = {}


class Answer:
    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.headers = response.headers
        self.body = response.read()

    def broker(self) -> dict[str, object]:
        value: dict[str, object] = json.loads(self.headers["BrokerProperties"])
        return value

    def path(self) -> str:
        return urlsplit(self.headers["Location"]).path


class Rest:
    """One kept connection, with every right unless told otherwise."""

    def __init__(self, connection: http.client.HTTPConnection, token: str) -> None:
        self.connection = connection
        self._token = token

    def ask(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] = NO_HEADERS
    ) -> Answer:
        given = {"Authorization": self._token, **headers}
        self.connection.request(method, path, body=body or None, headers=given)
        return Answer(self.connection.getresponse())

    async def later(self, method: str, path: str, body: bytes = b"") -> Answer:
        return await asyncio.to_thread(self.ask, method, path, body)

    def send_each(self, entity: str, messages: Sequence[Mapping[str, object]]) -> None:
        """Send messages one by one, each a member of a batch of its own."""
        for message in messages:
            body = json.dumps([message]).encode()
            answer = self.ask("POST", f"/{entity}/messages", body, {"Content-Type": BATCH_TYPE})
            assert answer.status == 201, answer.body


@contextmanager
def each_rest(server: Server, credential: Credential) -> Iterator[Each[Rest]]:
    """A connection for every variant of a test, closed at its end."""
    made: list[Rest] = []

    def make(_: Variant) -> Rest:
        made.append(connect(server, credential))
        return made[-1]

    yield Each(make)
    for one in made:
        one.connection.close()


def connect(server: Server, credential: Credential) -> Rest:
    authority = f"{server.host}:{server.http_port}"
    connection = http.client.HTTPConnection(authority, timeout=60)
    return Rest(connection, token_for(server, credential))


def token_for(server: Server, credential: Credential, path: str = "") -> str:
    resource = f"http://{server.host}:{server.http_port}/{path}"
    return credential.token_for(resource, expires_at_s=int(time.time()) + 600)
