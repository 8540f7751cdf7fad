"""The request that turns HTTP into a WebSocket, and the answer to it (RFC 6455, section 4)."""

from __future__ import annotations

import binascii
import hashlib
import ipaddress
from base64 import b64decode, b64encode
from collections.abc import Iterable
from typing import Final, final
from urllib.parse import urlsplit

from shardbus.core.errors import INVALID_ARGUMENT, ErrorKind, Refused

PATH: Final = "$servicebus/websocket"
SUBPROTOCOLS: Final = frozenset({"amqpwsb10", "amqp"})
"""The subprotocol of the SDKs, and that of the AMQP standard; in lower case."""
VERSION: Final = "13"

_KEY_BYTES: Final = 16
_GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_UPGRADE_REQUIRED: Final = ErrorKind("upgrade-required", "amqp:not-implemented", 426, 42600)
_FOREIGN_ORIGIN: Final = ErrorKind("foreign-origin", "amqp:unauthorized-access", 403, 40300)

RawHeaders = Iterable[tuple[bytes, bytes]]
"""Names in lower case, in order, including repeated ones."""
Headers = list[tuple[str, str]]


def is_websocket_path(path: str) -> bool:
    """Whether a path without its outer slashes is that of WebSockets, in any case."""
    return path.lower() == PATH


def switch(method: str, headers: RawHeaders, *, is_any_origin_welcome: bool) -> Headers:
    """The headers of the answer that switches protocols; Refused when the request is invalid."""
    fields = _Fields(headers)
    is_asked = "websocket" in fields.words("upgrade") and "upgrade" in fields.words("connection")
    if method != "GET" or not is_asked:
        raise Refused(_UPGRADE_REQUIRED, "This path accepts only WebSocket requests.")
    if fields.text("sec-websocket-version") != VERSION:
        raise Refused(_UPGRADE_REQUIRED, f"Only version {VERSION} of WebSocket is supported.")
    if not is_any_origin_welcome:
        _check_origin(fields.text("origin"))
    return [
        ("Upgrade", "websocket"),
        ("Connection", "Upgrade"),
        ("Sec-WebSocket-Accept", _accept(fields.text("sec-websocket-key"))),
        ("Sec-WebSocket-Protocol", _chosen(fields.items("sec-websocket-protocol"))),
    ]


def hints() -> Headers:
    """The headers that tell a refused client how to ask (RFC 6455 4.4, RFC 9110 15.5.22)."""
    return [
        ("Upgrade", "websocket"),
        ("Connection", "Upgrade"),
        ("Sec-WebSocket-Version", VERSION),
    ]


@final
class _Fields:
    """Header fields by name; repeated ones are one list, as HTTP defines."""

    def __init__(self, headers: RawHeaders) -> None:
        self._values: dict[str, list[str]] = {}
        for name, value in headers:
            self._values.setdefault(name.decode("latin-1"), []).append(value.decode("latin-1"))

    def text(self, name: str) -> str:
        return ",".join(self._values.get(name, ())).strip()

    def items(self, name: str) -> list[str]:
        words = (word.strip() for word in self.text(name).split(","))
        return [word for word in words if word]

    def words(self, name: str) -> set[str]:
        return {word.lower() for word in self.items(name)}


def _accept(key: str) -> str:
    try:
        nonce = b64decode(key, validate=True)
    except (binascii.Error, ValueError):
        nonce = b""
    if len(nonce) != _KEY_BYTES:
        raise Refused(INVALID_ARGUMENT, "Sec-WebSocket-Key is not 16 bytes in base64.")
    # The standard's own digest: it proves that the request was understood and protects nothing.
    digest = hashlib.sha1(key.encode() + _GUID, usedforsecurity=False)
    return b64encode(digest.digest()).decode()


def _chosen(offered: list[str]) -> str:
    """The first subprotocol that we know, in the client's spelling, which clients compare
    exactly.
    """
    for name in offered:
        if name.lower() in SUBPROTOCOLS:
            return name
    raise Refused(INVALID_ARGUMENT, "Sec-WebSocket-Protocol does not offer AMQPWSB10 or amqp.")


def _check_origin(origin: str) -> None:
    """Keep web pages of other machines out.

    Browsers let any page open a WebSocket to this machine, and the development key is public.
    Programs send no origin, or their own address for this machine.
    """
    if origin and not _is_of_this_machine(origin):
        raise Refused(
            _FOREIGN_ORIGIN,
            "Only pages of this machine may open a WebSocket to a bus with the development key.",
        )


def _is_of_this_machine(origin: str) -> bool:
    try:
        host = urlsplit(origin).hostname or ""
    except ValueError:
        return False
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
