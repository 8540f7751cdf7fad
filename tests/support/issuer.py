"""An OpenID issuer of the tests: keys of its own, tokens, and the documents that a bus fetches."""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

AUDIENCE: Final = "https://servicebus.azure.net/"
DISCOVERY: Final = "/.well-known/openid-configuration"
KEYS: Final = "/keys"
OWNER: Final = "Azure Service Bus Data Owner"
SENDER: Final = "Azure Service Bus Data Sender"
RECEIVER: Final = "Azure Service Bus Data Receiver"

Private = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey


@dataclass(frozen=True)
class TestKey:
    """A key of an issuer with its name and its algorithm."""

    __test__ = False

    key_id: str
    private: Private
    algorithm: str = "RS256"

    def published(self) -> dict[str, object]:
        """As it stands in the issuer's set."""
        if isinstance(self.private, rsa.RSAPrivateKey):
            told = RSAAlgorithm.to_jwk(self.private.public_key(), as_dict=True)
        else:
            told = ECAlgorithm.to_jwk(self.private.public_key(), as_dict=True)
        return {**told, "kid": self.key_id, "use": "sig"}

    def sign(self, claims: dict[str, object], **headers: object) -> str:
        return jwt.encode(
            claims, self.private, self.algorithm, headers={"kid": self.key_id, **headers}
        )


def rsa_key(key_id: str = "one", algorithm: str = "RS256", bits: int = 2048) -> TestKey:
    return TestKey(key_id, rsa.generate_private_key(65_537, bits), algorithm)


def key_set(*keys: TestKey) -> bytes:
    return json.dumps({"keys": [key.published() for key in keys]}).encode()


def claims_of(issuer: str, now_s: float, *roles: str, **others: object) -> dict[str, object]:
    """What a token says; a claim that is given as None is left out."""
    claims: dict[str, object] = {
        "iss": issuer,
        "aud": AUDIENCE,
        "exp": int(now_s) + 3600,
        "nbf": int(now_s) - 10,
        "oid": "00000000-0000-0000-0000-000000000001",
        "roles": list(roles),
        **others,
    }
    return {name: value for name, value in claims.items() if value is not None}


def part(value: object) -> str:
    """A part of a token that is put together by hand."""
    content = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


class LocalIssuer:
    """An issuer on a port of this machine; `keys` are those that it publishes now."""

    def __init__(self, keys: list[TestKey]) -> None:
        self.keys = keys
        self.asked: list[str] = []
        self.answers: dict[str, Callable[[BaseHTTPRequestHandler], None]] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    def token(self, *roles: str, **others: object) -> str:
        return self.keys[0].sign(claims_of(self.url, time.time(), *roles, **others))

    def secure(self, context: ssl.SSLContext) -> None:
        """Speak TLS."""
        self._server.socket = context.wrap_socket(
            self._server.socket, server_side=True, do_handshake_on_connect=False
        )

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def discovery(self) -> bytes:
        return json.dumps({"issuer": self.url, "jwks_uri": self.url + KEYS}).encode()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                issuer.asked.append(self.path)
                own = issuer.answers.get(self.path)
                if own is not None:
                    own(self)
                elif self.path == DISCOVERY:
                    answer(self, issuer.discovery())
                else:
                    answer(self, key_set(*issuer.keys))

            def log_message(self, format: str, *args: object) -> None:
                """The tests say what they want to know."""

        return Handler


def answer(handler: BaseHTTPRequestHandler, content: bytes, status: int = 200) -> None:
    handler.send_response(status)
    handler.send_header("Content-Length", str(len(content)))
    if 300 <= status < 400:
        handler.send_header("Location", KEYS)
    handler.end_headers()
    handler.wfile.write(content)


@contextmanager
def running_issuer(*keys: TestKey) -> Iterator[LocalIssuer]:
    issuer = LocalIssuer(list(keys) or [rsa_key()])
    issuer.start()
    try:
        yield issuer
    finally:
        issuer.stop()
