"""A request and a response, complete and in memory, without a connection."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Final, final
from urllib.parse import parse_qsl, unquote, urlsplit

from shardbus.broker.access.auth import Grant
from shardbus.core.errors import INVALID_ARGUMENT, Refused
from shardbus.core.namespace.address import host_of

QUERY_FIELDS_MAX: Final = 32
# The longest names, with every character escaped, and separators: parsing a path takes time in
# proportion to its length, and comes before the token is checked.
PATH_CHARACTERS_MAX: Final = 4_096
PATH_SEGMENTS_MAX: Final = 160
TARGETS_KEPT_MAX: Final = 256
"""Targets whose parts are remembered: a page asks for the same ones every two seconds."""
KEPT_CHARACTERS_MAX: Final = 512
"""Longer targets are read each time."""

XML: Final = "application/atom+xml; charset=utf-8"
ERROR_XML: Final = "application/xml; charset=utf-8"
JSON: Final = "application/json; charset=utf-8"
TEXT: Final = "text/plain; charset=utf-8"


@final
class Departure:
    """Whether the client of a request has gone; waiting operations are told, once."""

    def __init__(self) -> None:
        self.has_happened = False
        self._callbacks: list[Callable[[], None]] = []

    def then(self, callback: Callable[[], None]) -> None:
        """Call back when the client goes; at once when it has gone."""
        if self.has_happened:
            callback()
        else:
            self._callbacks.append(callback)

    def happen(self) -> None:
        self.has_happened = True
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()


@final
class HttpRequest:
    """A client's request. `headers` are keyed in lower case; of repeated ones the last counts.

    `path` is percent-decoded and has no slash at either end; `raw_segments` are its parts as they
    were sent. `query` keys are in lower case. `header_names` maps a name to its original spelling.
    `peer` is the address that the client counts for (see `peer_of`), "" when unknown. Call
    `vouched` when its token is good: an authorised client keeps its place longer. `grant` is what
    that token gives.
    """

    def __init__(
        self,
        method: str,
        target: str,
        headers: dict[str, str],
        body: bytes,
        *,
        is_secure: bool,
        peer: str = "",
    ) -> None:
        """Refused when the target is not a path or URL with a readable query, or is too long."""
        self.method = method
        self.headers = headers
        self.header_names: dict[str, str] = {}
        self.body = body
        self.is_secure = is_secure
        self.peer = peer
        self.departure = Departure()
        self.grant: Grant | None = None
        self.vouched: Callable[[], None] = _nobody_hears
        is_short = len(target) <= KEPT_CHARACTERS_MAX
        read = _known_target(target) if is_short else _Target(target)
        self.path = read.path
        self.raw_segments = read.raw_segments
        self.query = read.query

    def base_url(self, default_host: str) -> str:
        """Scheme and authority by which the client addresses the server."""
        return f"{'https' if self.is_secure else 'http'}://{self.host(default_host)}"

    def host(self, default_host: str) -> str:
        """The host by which the client addresses the server, with the port if it gives one."""
        return host_of(self.headers.get("host", ""), default_host)


@final
class _Target:
    """The parts of a request target; nobody changes them, because requests share them."""

    def __init__(self, target: str) -> None:
        try:
            parts = urlsplit(target)
            fields = parse_qsl(parts.query, keep_blank_values=True, max_num_fields=QUERY_FIELDS_MAX)
        except ValueError as error:
            raise Refused(
                INVALID_ARGUMENT,
                "The request target cannot be read: use a path, or a URL, with a valid query.",
            ) from error
        if len(parts.path) > PATH_CHARACTERS_MAX or parts.path.count("/") > PATH_SEGMENTS_MAX:
            raise Refused(INVALID_ARGUMENT, "The path is longer than that of any entity.")
        self.path = unquote(parts.path).strip("/")
        self.raw_segments: Sequence[str] = tuple(parts.path.strip("/").split("/"))
        self.query: Mapping[str, str] = {name.lower(): value for name, value in fields}


_known_target = lru_cache(maxsize=TARGETS_KEPT_MAX)(_Target)


def _nobody_hears() -> None:
    """Ignored: the request came without a connection."""


@final
class HttpResponse:
    """The answer; the connection adds length, date and connection headers."""

    def __init__(self, status: int, content_type: str, body: str | bytes = b"") -> None:
        self.status = status
        self.content_type = content_type
        self.body = body.encode() if isinstance(body, str) else body
        self.headers: list[tuple[str, str]] = []
