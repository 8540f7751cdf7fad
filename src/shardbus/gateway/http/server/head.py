"""The head of a request, as h11 reads it, and what is refused of it."""

from __future__ import annotations

from typing import Final

import h11

from shardbus.core.errors import INVALID_ARGUMENT, TOO_LARGE, ErrorKind, Refused

HEADER_BYTES_MAX: Final = 32 * 1024
BODY_BYTES_MAX: Final = 1024 * 1024

_VERSION: Final = ErrorKind("http-version", "amqp:not-implemented", 505, 50500)


def new_reader() -> h11.Connection:
    """Reads the requests of one connection, one after the other."""
    return h11.Connection(h11.SERVER, max_incomplete_event_size=HEADER_BYTES_MAX)


def check_head(head: h11.Request) -> int:
    """The length of the body; 0 if there is none, or if it comes in chunks."""
    if head.http_version not in (b"1.0", b"1.1"):
        raise Refused(
            _VERSION, f"HTTP/{head.http_version.decode()} is not supported: use HTTP/1.1."
        )
    length = 0
    is_chunked = False
    for name, value in head.headers:
        is_chunked = is_chunked or name == b"transfer-encoding"
        if name == b"content-length":
            length = int(value)
            if length > BODY_BYTES_MAX:
                raise too_large()
    return 0 if is_chunked else length


def too_large() -> Refused:
    """The refusal of a body that is too long."""
    return Refused(TOO_LARGE, f"The body has more than {BODY_BYTES_MAX} bytes.")


def kind_of(error: h11.RemoteProtocolError) -> ErrorKind:
    """How to answer what h11 cannot read."""
    if error.error_status_hint == INVALID_ARGUMENT.status:
        return INVALID_ARGUMENT
    return ErrorKind("unreadable", "amqp:decode-error", error.error_status_hint, 40000)
