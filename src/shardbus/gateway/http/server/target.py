"""The URLs of messages, for sending, receiving and settling."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, final
from urllib.parse import unquote
from uuid import UUID

from shardbus.core.namespace.address import Address, parse_address
from shardbus.gateway.http.server.message import HttpRequest

SEND: Final = "send"
HEAD: Final = "head"
LOCK: Final = "lock"

_GUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII | re.IGNORECASE)
_METHODS: Final = {SEND: ("POST",), HEAD: ("POST", "DELETE"), LOCK: ("PUT", "POST", "DELETE")}


@final
class MessageUrl:
    """What a request is about: `entity_path` is the entity as the client wrote it.

    `token` is the lock in the URL, in the form of deliveries. The part before it, a message id or a
    sequence number, is ignored: the lock alone identifies the message. `tail` is the part after the
    entity.
    """

    def __init__(
        self, kind: str, entity_path: str, tail: Sequence[str], token: bytes = b""
    ) -> None:
        self.kind = kind
        self.entity_path = entity_path
        self.tail = "/".join(tail)
        self.token = token

    def address(self) -> Address:
        """The node; Refused for an invalid path."""
        return parse_address(self.entity_path)


def names_messages(request: HttpRequest) -> bool:
    """Whether the path is one of messages, whatever the method."""
    raw = request.raw_segments
    return _read(raw, [unquote(segment) for segment in raw]) is not None


def read_target(request: HttpRequest) -> MessageUrl | None:
    """What a request for messages is about; None when it is for something else."""
    raw = request.raw_segments
    segments = [unquote(segment) for segment in raw]
    target = _read(raw, segments)
    if target is None or request.method not in _METHODS[target.kind]:
        return None
    return target


def _read(raw: Sequence[str], segments: Sequence[str]) -> MessageUrl | None:
    if len(segments) >= 2 and _is_messages(segments[-1]):
        return MessageUrl(SEND, "/".join(raw[:-1]), segments[-1:])
    if len(segments) >= 3 and _is_messages(segments[-2]) and segments[-1].lower() == "head":
        return MessageUrl(HEAD, "/".join(raw[:-2]), segments[-2:])
    if len(segments) >= 4 and _is_messages(segments[-3]) and _GUID.fullmatch(segments[-1]):
        return MessageUrl(LOCK, "/".join(raw[:-3]), segments[-3:], UUID(segments[-1]).bytes_le)
    return None


def _is_messages(segment: str) -> bool:
    return segment.lower() == "messages"
