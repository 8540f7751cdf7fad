"""One document from an HTTP server: bounded in size, by whoever waits in time, never redirected."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from typing import Final
from urllib.parse import SplitResult, urlsplit

import h11

from shardbus.app.server.settings import URL_CHARACTERS_MAX, url_problem

DOCUMENT_BYTES_MAX: Final = 256 * 1024

_READ_BYTES: Final = 16 * 1024


class FetchFailed(Exception):
    """The document cannot be had; the text says why, and from where."""


async def fetch_document(url: str) -> bytes:
    """The body of a plain 200; FetchFailed for anything else. Whoever waits sets the time."""
    problem = url_problem(url)
    if problem:
        raise FetchFailed(f"{url[:URL_CHARACTERS_MAX]!r} {problem}")
    parts = urlsplit(url)
    # Certificates are checked against the authorities of this machine, or SSL_CERT_FILE.
    is_secure = parts.scheme == "https"
    secured = await asyncio.to_thread(ssl.create_default_context) if is_secure else None
    try:
        reader, writer = await asyncio.open_connection(
            parts.hostname, parts.port or (443 if is_secure else 80), ssl=secured
        )
    except (OSError, ssl.SSLError) as error:
        raise FetchFailed(f"{url} cannot be reached: {error}") from error
    try:
        return await _exchange(url, parts, reader, writer)
    except (OSError, ssl.SSLError, h11.ProtocolError) as error:
        raise FetchFailed(f"{url} does not answer as a web server does: {error}") from error
    finally:
        with suppress(OSError, ssl.SSLError):
            writer.close()


async def _exchange(
    url: str, parts: SplitResult, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> bytes:
    client = h11.Connection(h11.CLIENT)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    headers = [
        ("Host", parts.netloc),
        ("Accept", "application/json"),
        ("User-Agent", "shardbus"),
        ("Connection", "close"),
    ]
    request = h11.Request(method="GET", target=target, headers=headers)
    writer.write((client.send(request) or b"") + (client.send(h11.EndOfMessage()) or b""))
    await writer.drain()
    body = bytearray()
    while True:
        event = client.next_event()
        if event is h11.NEED_DATA:
            client.receive_data(await reader.read(_READ_BYTES))
        elif isinstance(event, h11.Response) and event.status_code != 200:
            raise FetchFailed(f"{url} answers {event.status_code}; only 200 is taken")
        elif isinstance(event, h11.Data):
            body += event.data
            if len(body) > DOCUMENT_BYTES_MAX:
                raise FetchFailed(f"{url} answers with more than {DOCUMENT_BYTES_MAX} bytes")
        elif isinstance(event, h11.EndOfMessage):
            return bytes(body)
        elif not isinstance(event, h11.Response | h11.InformationalResponse):
            raise FetchFailed(f"{url} ends before its answer does")
