"""Application properties as HTTP headers and in JSON.

A text is in double quotes, as in JSON; numbers and booleans are bare; a moment is an RFC 1123 date
in quotes. Any other bare value is a text too, as in the service.
"""

from __future__ import annotations

import json
import math
import re
from base64 import b64encode
from typing import Final, final
from uuid import UUID

from shardbus.codec.encoder import encode, encode_text
from shardbus.codec.types import (
    Array,
    Char,
    Described,
    Float,
    Int,
    Integer,
    Map,
    Opaque,
    Symbol,
    Timestamp,
    Ulong,
    Uuid,
    Value,
)
from shardbus.gateway.http.messaging.broker_properties import checked_text, members_of
from shardbus.gateway.http.moment import format_http_date, parse_http_date
from shardbus.gateway.http.server.message import HttpRequest
from shardbus.gateway.http.server.refusal import invalid, shown

# "message headers/properties: single <= 32 KB, total <= 64 KB".
PROPERTY_BYTES_MAX: Final = 32 * 1024
PROPERTIES_BYTES_MAX: Final = 64 * 1024
# The limits of clients: Python's fails after 100 header lines, or with one of 64 KB.
HEADER_LINES_MAX: Final = 60
HEADERS_BYTES_MAX: Final = 48 * 1024

OTHERS_HEADER: Final = "Shardbus-Properties"
OMITTED_HEADER: Final = "Shardbus-Properties-Omitted"

_INT: Final = re.compile(r"[+-]?\d{1,20}", re.ASCII)
_FLOAT: Final = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,256}", re.ASCII)
_INT_MAX: Final = (1 << 31) - 1
_LONG_MAX: Final = (1 << 63) - 1
_ULONG_MAX: Final = (1 << 64) - 1

# Headers of HTTP itself or of proxies, which are not properties of the message.
_HTTP_NAMES: Final = frozenset(
    {
        "accept", "age", "allow", "alt-svc", "authorization", "brokerproperties", "cache-control",
        "connection", "cookie", "date", "dnt", "etag", "expect", "expires", "forwarded", "from",
        "host", "keep-alive", "last-modified", "link", "location", "max-forwards", "origin",
        "pragma", "range", "referer", "refresh", "retry-after", "server", "servicebusauthorization",
        "servicebusdlqsupplementaryauthorization", "servicebussupplementaryauthorization",
        "set-cookie", "strict-transport-security", "te", "trailer", "transfer-encoding", "upgrade",
        "upgrade-insecure-requests", "user-agent", "vary", "via", "warning", "www-authenticate",
    }
)  # fmt: skip
_HTTP_PREFIXES: Final = (
    "accept-", "access-control-", "content-", "if-", "proxy-", "sec-", "shardbus-", "x-forwarded-",
    "x-ms-", "x-real-",
)  # fmt: skip


def properties_of_headers(request: HttpRequest) -> dict[str, Value]:
    """The application properties in the headers of a request, by their names as written."""
    return {
        request.header_names.get(name, name): _header_value(name, header_text(value))
        for name, value in request.headers.items()
        if not _is_http(name)
    }


def properties_of_json(value: object) -> dict[str, Value]:
    """The UserProperties of one message of a batch."""
    if value is None:
        return {}
    return {
        checked_text(name, "A name in UserProperties"): _json_value(name, member)
        for name, member in members_of(value, "UserProperties").items()
    }


def encode_properties(properties: dict[str, Value]) -> list[bytes]:
    """Names and values in turn, encoded; Refused when they are too large for a message."""
    parts: list[bytes] = []
    for name, value in properties.items():
        key, content = encode_text(name), encode(value)
        if len(key) + len(content) > PROPERTY_BYTES_MAX:
            raise invalid(
                f"The property {shown(name)} has {len(key) + len(content)} bytes; at most "
                f"{PROPERTY_BYTES_MAX} are allowed."
            )
        parts += (key, content)
    size_bytes = sum(len(part) for part in parts)
    if size_bytes > PROPERTIES_BYTES_MAX:
        raise invalid(
            f"The properties of the message have {size_bytes} bytes; at most "
            f"{PROPERTIES_BYTES_MAX} are allowed."
        )
    return parts


def headers_of_properties(properties: dict[str, Value]) -> list[tuple[str, str]]:
    """A header for each property that can be one; the others share one header, as JSON.

    Names that are not valid header names, or that HTTP itself uses, cannot be headers. Properties
    beyond the limits of clients are left out and counted.
    """
    page = _Page()
    others: dict[str, object] = {}
    for name, value in properties.items():
        text = _header_text(value)
        is_header = text is not None and _TOKEN.fullmatch(name) and not _is_http(name.lower())
        if not is_header or text is None or not page.add(name, text):
            others[name] = plain(value)
    page.add_others(others)
    return page.headers


def plain(value: Value) -> object:
    """A value in the types of JSON."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float | Float):
        number = value.value if isinstance(value, Float) else value
        return number if math.isfinite(number) else str(number)
    if isinstance(value, Timestamp):
        return format_http_date(value.value) or value.value
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {_member_name(key): plain(item) for key, item in value.items()}
    return _plain_of_wrapper(value)


def header_text(value: str) -> str:
    """The text of a header: valid UTF-8 is decoded as such, although HTTP does not specify it."""
    try:
        return value.encode("latin-1").decode()
    except UnicodeError:
        return value


@final
class _Page:
    """The headers of one answer, within the limits of clients."""

    def __init__(self) -> None:
        self.headers: list[tuple[str, str]] = []
        self._left_bytes = HEADERS_BYTES_MAX
        self._names: set[str] = set()

    def add(self, name: str, text: str) -> bool:
        """Add a header; returns whether there was room. HTTP does not distinguish the case of
        names.
        """
        size_bytes = len(name) + len(text) + 4
        is_taken = name.lower() in self._names
        if is_taken or size_bytes > self._left_bytes or len(self.headers) >= HEADER_LINES_MAX:
            return False
        self._names.add(name.lower())
        self._left_bytes -= size_bytes
        self.headers.append((name, text))
        return True

    def add_others(self, others: dict[str, object]) -> None:
        shown_ones: dict[str, object] = {}
        left_bytes = self._left_bytes
        for name, value in others.items():
            left_bytes -= len(json.dumps({name: value}))
            if left_bytes < 0:
                break
            shown_ones[name] = value
        if shown_ones:
            self.headers.append((OTHERS_HEADER, json.dumps(shown_ones)))
        if len(shown_ones) < len(others):
            self.headers.append((OMITTED_HEADER, str(len(others) - len(shown_ones))))


def _is_http(name: str) -> bool:
    return name in _HTTP_NAMES or name.startswith(_HTTP_PREFIXES)


def _header_value(name: str, text: str) -> Value:
    if text.startswith('"'):
        return _quoted(name, text)
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if _INT.fullmatch(text):
        return _integer(int(text))
    if _FLOAT.fullmatch(text):
        return _finite(name, float(text))
    moment_ms = parse_http_date(text)
    return text if moment_ms is None else Timestamp(moment_ms)


def _quoted(name: str, text: str) -> Value:
    if len(text) < 2 or not text.endswith('"'):
        raise invalid(f"The header {name} is {shown(text)}: the quotes of a text do not close.")
    try:
        content: object = json.loads(text)
    except ValueError:
        # Not valid JSON, for example a path with backslashes: the text between the quotes counts.
        content = text[1:-1]
    assert isinstance(content, str)
    moment_ms = parse_http_date(content)
    return (
        checked_text(content, f"The header {name}") if moment_ms is None else Timestamp(moment_ms)
    )


def _json_value(name: str, value: object) -> Value:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return checked_text(value, f"UserProperties: {shown(name)}")
    if isinstance(value, int):
        return _integer(value)
    if isinstance(value, float):
        return _finite(name, value)
    raise invalid(f"UserProperties: {shown(name)} must be a text, a number or a boolean.")


def _integer(number: int) -> Value:
    if -_INT_MAX <= number <= _INT_MAX:
        return Int(number)
    if -_LONG_MAX <= number <= _LONG_MAX:
        return number
    if 0 < number <= _ULONG_MAX:
        return Ulong(number)
    try:
        return float(number)
    except OverflowError as error:
        raise invalid("A property is a number that is too large.") from error


def _finite(name: str, number: float) -> float:
    if not math.isfinite(number):
        raise invalid(f"The property {shown(name)} is a number that is too large.")
    return number


def _header_text(value: Value) -> str | None:
    """A value as header text; None for values that only JSON can represent."""
    if value is None:
        return None
    if isinstance(value, Timestamp):
        date = format_http_date(value.value)
        return str(value.value) if date is None else f'"{date}"'
    said = plain(value)
    return None if isinstance(said, list | dict) else json.dumps(said)


def _plain_of_wrapper(value: Value) -> object:
    if isinstance(value, Char):
        return chr(value.value)
    if isinstance(value, Integer | Symbol):
        return value.value
    if isinstance(value, Uuid):
        return str(UUID(bytes=value.value))
    if isinstance(value, Opaque):
        return value.value.hex()
    if isinstance(value, Described):
        return plain(value.value)
    if isinstance(value, Array):
        return [plain(item) for item in value.values]
    if isinstance(value, Map):
        return {_member_name(key): plain(item) for key, item in value.pairs}
    raise AssertionError(f"{type(value).__name__} is not an AMQP value")


def _member_name(key: Value) -> str:
    said = plain(key)
    return said if isinstance(said, str) else json.dumps(said)
