"""A server of objects that others made, behind a relay that fails when told to.

The relay changes nothing: what clients sign is what the server checks.
"""

from __future__ import annotations

import http.client
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, final

from spark.tests.fated_server import FatedHandler, FatedServer

_OWN: Final = ("connection", "transfer-encoding", "content-length", "keep-alive")


@final
@dataclass(frozen=True, slots=True)
class Upstream:
    """A server at a port of this machine. `root` is the URL of a bucket there, and `variables` the
    environment of its users, with `{url}` for the address.
    """

    port: int
    root: str
    variables: Mapping[str, str]

    def environment(self, port: int) -> dict[str, str]:
        """That of a process which reaches the server by this port."""
        url = f"http://127.0.0.1:{port}"
        return {name: value.replace("{url}", url) for name, value in self.variables.items()}


@final
class Relay(FatedServer):
    def __init__(self, upstream: Upstream) -> None:
        super().__init__(_Handler)
        self.upstream = upstream
        self.root = upstream.root

    def environment(self) -> dict[str, str]:
        return self.upstream.environment(self.port)


class _Handler(FatedHandler[Relay]):
    def do(self, bucket: str, key: str, body: bytes) -> None:
        there = http.client.HTTPConnection("127.0.0.1", self.store.upstream.port, timeout=60)
        try:
            there.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in _OWN[:2]:
                    there.putheader(name, value)
            there.endheaders(body)
            answer = there.getresponse()
            content = answer.read()
            headers = {
                name: value for name, value in answer.getheaders() if name.lower() not in _OWN
            }
            if self.command == "HEAD":
                headers["Content-Length"] = answer.headers.get("content-length", "0")
            self.answer(answer.status, content, headers)
        finally:
            there.close()

    def refusal(self, code: str, message: str) -> bytes:
        return f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()
