"""A request and a response, whole and in memory, without a connection."""

from __future__ import annotations

import re
from typing import Final, final
from urllib.parse import parse_qsl, unquote, urlsplit

from shardbus.core.errors import INVALID_ARGUMENT, Refused

QUERY_FIELDS_MAX: Final = 32

XML: Final = "application/atom+xml; charset=utf-8"
ERROR_XML: Final = "application/xml; charset=utf-8"
JSON: Final = "application/json; charset=utf-8"
TEXT: Final = "text/plain; charset=utf-8"

_HOST: Final = re.compile(r"[A-Za-z0-9.\-:\[\]]{1,255}", re.ASCII)


@final
class Request:
    """What a client asked for. `headers` are keyed in lower case; of repeated ones the last counts.

    `path` is percent-decoded and has no slash at either end; `query` keys are in lower case.
    """

    def __init__(
        self, method: str, target: str, headers: dict[str, str], body: bytes, *, is_secure: bool
    ) -> None:
        """Refused when the target is not a path, or a URL, with a readable query."""
        self.method = method
        self.headers = headers
        self.body = body
        self.is_secure = is_secure
        try:
            parts = urlsplit(target)
            fields = parse_qsl(parts.query, keep_blank_values=True, max_num_fields=QUERY_FIELDS_MAX)
        except ValueError as error:
            raise Refused(INVALID_ARGUMENT, "The request target cannot be read.") from error
        self.path = unquote(parts.path).strip("/")
        self.query = {name.lower(): value for name, value in fields}

    def base_url(self, default_host: str) -> str:
        """Scheme and authority under which the client knows us."""
        host = self.headers.get("host", "")
        authority = host if _HOST.fullmatch(host) else default_host
        return f"{'https' if self.is_secure else 'http'}://{authority}"


@final
class Response:
    """What is answered; length, date and connection headers are the connection's business."""

    def __init__(self, status: int, content_type: str, body: str = "") -> None:
        self.status = status
        self.content_type = content_type
        self.body = body.encode()
        self.headers: list[tuple[str, str]] = []
