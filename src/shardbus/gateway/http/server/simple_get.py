"""Reads the requests that portals and scripts poll with, at a third of the cost of h11.

A *simple GET* is a request for the JSON API that came in one piece: without a body, without any
header that changes how the connection is read, and with each header once. Everything else, also
whatever is wrong with a request, is left to h11.
"""

from __future__ import annotations

import re
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import Final, final

SIMPLE_BYTES_MAX: Final = 8 * 1024
"""h11 reads longer heads, up to its own limit."""
HEADS_KEPT_MAX: Final = 64
"""Heads of answers that are remembered: pages that poll get the same ones within a second."""

_NAME: Final = rb"[-!#$%&'*+.^_`|~0-9A-Za-z]+"
_VALUE: Final = rb"[\t\x20-\x7e\x80-\xff]*"
_HEAD: Final = re.compile(
    rb"GET (?P<target>/api/[\x21-\x7e]*) HTTP/1\.1\r\n"
    rb"(?P<fields>(?:" + _NAME + rb":" + _VALUE + rb"\r\n)+)\r\n"
)
_KEEP_ALIVE: Final = "keep-alive"
# Of a body, another protocol, or another end of the connection.
_NOT_SIMPLE: Final = frozenset({"content-length", "transfer-encoding", "expect", "upgrade"})
_LINE: Final = re.compile(_NAME.decode() + r": [\x20-\x7e]*")


@final
class SimpleGet:
    """The target and the headers of a request, as in `HttpRequest`."""

    def __init__(self, target: str, headers: dict[str, str], header_names: dict[str, str]) -> None:
        self.target = target
        self.headers = headers
        self.header_names = header_names


def read_simple_get(data: bytes) -> SimpleGet | None:
    """The simple GET that `data` consists of, and of nothing else; None for anything else."""
    if not data.startswith(b"GET /api/") or len(data) > SIMPLE_BYTES_MAX:
        return None
    head = _HEAD.fullmatch(data)
    if head is None:
        return None
    headers: dict[str, str] = {}
    header_names: dict[str, str] = {}
    lines = head["fields"].decode("latin-1").split("\r\n")
    lines.pop()
    for line in lines:
        written, _, value = line.partition(":")
        name = written.lower()
        headers[name] = value.strip(" \t")
        header_names[name] = written
    is_kept = headers.get("connection", _KEEP_ALIVE).lower() == _KEEP_ALIVE
    if len(headers) != len(lines) or "host" not in headers or not is_kept:
        return None
    if not _NOT_SIMPLE.isdisjoint(headers):
        return None
    return SimpleGet(head["target"].decode("ascii"), headers, header_names)


@lru_cache(maxsize=HEADS_KEPT_MAX)
def head_of_answer(status: int, headers: tuple[tuple[str, str], ...]) -> bytes:
    """The head of an answer; ValueError for a header that would be more than one line."""
    lines = [f"{name}: {value}" for name, value in headers]
    for line in lines:
        if _LINE.fullmatch(line) is None:
            raise ValueError(f"{line!r} is not a header")
    start = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"
    return "\r\n".join([start, *lines, "", ""]).encode("ascii")


@lru_cache(maxsize=1)
def http_date(second: int) -> str:
    """A moment in Unix seconds, as the header Date has it."""
    return formatdate(second, usegmt=True)
