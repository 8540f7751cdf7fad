"""The JSON API as the tests use it to prepare what the portal shows."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final
from urllib.parse import quote

from shardbus.app.cli.sas import Credential
from tests.support.server import Server

WAIT_S: Final = 30.0
Document = dict[str, object]


class Api:
    """A client with all rights."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def call(self, method: str, path: str, body: object = None) -> Document:
        status, document = self.ask(method, path, body)
        assert status < 300, (method, path, status, document)
        return document

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Document]:
        connection = http.client.HTTPConnection(
            self._server.host, self._server.http_port, timeout=WAIT_S
        )
        token = Credential().token_for(
            f"sb://{self._server.host}/", expires_at_s=int(time.time()) + 600
        )
        try:
            connection.request(
                method,
                f"/api/v1/{path}",
                body=None if body is None else json.dumps(body).encode(),
                headers={"Authorization": token, "Content-Type": "application/json"},
            )
            response = connection.getresponse()
            document: Document = json.loads(response.read() or b"{}")
            return response.status, document
        finally:
            connection.close()

    def create(self, name: str, **properties: object) -> None:
        self.call("PUT", f"queues/{path_of(name)}", properties)

    def send(self, name: str, messages: Sequence[Mapping[str, object]]) -> None:
        answer = self.call("POST", f"entities/{path_of(name)}/messages", {"messages": messages})
        assert answer["sent"] == len(messages), answer

    def receive(self, name: str, count: int) -> list[str]:
        """Lock messages; their tokens."""
        answer = self.call(
            "POST",
            f"entities/{path_of(name)}/messages/receive",
            {"count": count, "wait_ms": 5_000},
        )
        messages = answer["messages"]
        assert isinstance(messages, list)
        return [str(message["lock_token"]) for message in messages]

    def bury(self, name: str, count: int, reason: str, description: str) -> None:
        """Make dead letters of messages that wait."""
        for number, token in enumerate(self.receive(name, count)):
            self.settle(
                name, token, "dead_letter", reason=reason, description=f"{description} {number}"
            )

    def settle(self, name: str, token: str, action: str, **more: str) -> None:
        body = {"action": action, "lock_tokens": [token], **more}
        self.call("POST", f"entities/{path_of(name)}/messages/settle", body)

    def runtime(self, name: str) -> Document:
        runtime = self.call("GET", f"entities/{path_of(name)}")["runtime"]
        assert isinstance(runtime, dict)
        return runtime

    def count(self, name: str, member: str) -> int:
        value = self.runtime(name)[member]
        assert isinstance(value, int)
        return value


def path_of(name: str) -> str:
    return quote(name, safe="")


def until(condition: Callable[[], bool], wait_s: float = WAIT_S) -> None:
    """Wait for what the bus does by itself."""
    deadline = time.monotonic() + wait_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)
