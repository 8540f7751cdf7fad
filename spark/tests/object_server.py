"""A store of objects in memory that speaks as much of S3 as tables need, and fails when told to.

Like the real ones it has no renames, no locks and no appends: an object appears as a whole, is
replaced on conditions, and is found by listing. It does not check signatures, only who signs.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final, final
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

BUCKET: Final = "tables"
KEY_NAME: Final = "AKIATESTSTORE"
SECRET: Final = "wJalr-the-secret-of-the-store"
LISTED_MAX: Final = 100
_WHEN: Final = 1_769_842_800
_NOT_SET: Final = ("AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_DEFAULT_REGION")

ANSWERED, KILLED, LOST, REFUSED = "answered", "killed", "lost", "refused"
"""What happens to a request; a lost one takes effect, but its answer never arrives."""


@final
class ObjectServer:
    """`fate` decides about each request by its method and key."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.requests: list[tuple[str, str]] = []
        self.fate: Callable[[str, str], str] = lambda method, key: ANSWERED
        self.victim = 0
        self.turn = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"store": self}))
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    @contextmanager
    def running(self) -> Iterator[ObjectServer]:
        thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()

    def environment(self, secret: str = SECRET, key_name: str = KEY_NAME) -> dict[str, str]:
        """The environment of a process that uses the store."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": key_name,
            "AWS_SECRET_ACCESS_KEY": secret,
            "AWS_REGION": "us-east-1",
        }

    def kill(self) -> None:
        """End the process whose requests are served, as by a power failure."""
        if self.victim:
            os.kill(self.victim, signal.SIGKILL)

    def keys(self, prefix: str) -> list[str]:
        return sorted(key for key in self.objects if key.startswith(prefix))


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """A client that was killed does not take its answer."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]  # the base names more than it uses


@contextmanager
def environment(added: Mapping[str, str]) -> Iterator[None]:
    """This process with these variables."""
    before = dict(os.environ)
    for name in _NOT_SET:
        os.environ.pop(name, None)
    os.environ.update(added)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def etag(content: bytes) -> str:
    return f'"{hashlib.md5(content, usedforsecurity=False).hexdigest()}"'


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    store: ObjectServer

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing is printed."""

    def do_GET(self) -> None:
        self._serve()

    do_HEAD = do_PUT = do_DELETE = do_POST = do_GET

    def _serve(self) -> None:
        parts = urlsplit(self.path)
        bucket, _, key = unquote(parts.path).lstrip("/").partition("/")
        self._asked = parse_qs(parts.query, keep_blank_values=True)
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        with self.store.turn:
            self.store.requests.append((self.command, key))
            fate = self.store.fate(self.command, key)
            if fate == KILLED:
                self.store.kill()
                self.close_connection = True
            elif fate == REFUSED:
                self._answer(500, _error("InternalError", "The store is not well."))
            else:
                self._is_silent = fate == LOST
                self._do(bucket, key, body)

    def _do(self, bucket: str, key: str, body: bytes) -> None:
        if f"Credential={KEY_NAME}/" not in self.headers.get("authorization", ""):
            self._answer(403, _error("InvalidAccessKeyId", "The key id does not exist."))
        elif bucket != BUCKET:
            self._answer(404, _error("NoSuchBucket", "The bucket does not exist."))
        elif self.command == "PUT":
            self._put(key, body)
        elif self.command == "DELETE":
            self.store.objects.pop(key, None)
            self._answer(204)
        elif self.command == "POST" and "delete" in self._asked:
            self._delete_some(body.decode())
        elif "list-type" in self._asked:
            self._answer(200, self._listing())
        else:
            self._get(key)

    def _put(self, key: str, body: bytes) -> None:
        there = self.store.objects.get(key)
        wanted = self.headers.get("if-match")
        if (self.headers.get("if-none-match") == "*" and there is not None) or (
            wanted is not None and (there is None or etag(there) != wanted)
        ):
            self._answer(412, _error("PreconditionFailed", "A condition did not hold."))
            return
        source = self.headers.get("x-amz-copy-source")
        if source is None:
            self.store.objects[key] = body
            self._answer(200, headers={"ETag": etag(body)})
            return
        copied = self.store.objects.get(unquote(source).lstrip("/").partition("/")[2])
        if copied is None:
            self._answer(404, _error("NoSuchKey", "The object does not exist."))
            return
        self.store.objects[key] = copied
        result = f"<CopyObjectResult><ETag>{escape(etag(copied))}</ETag></CopyObjectResult>"
        self._answer(200, result.encode())

    def _get(self, key: str) -> None:
        content = self.store.objects.get(key)
        if content is None:
            self._answer(404, _error("NoSuchKey", "The object does not exist."))
            return
        headers = {"ETag": etag(content), "Last-Modified": formatdate(_WHEN, usegmt=True)}
        asked = self.headers.get("range", "")
        if not asked:
            self._answer(200, content, headers)
            return
        low, _, high = asked.removeprefix("bytes=").partition("-")
        first = int(low) if low else max(len(content) - int(high), 0)
        last = min(int(high) if low and high else len(content) - 1, len(content) - 1)
        headers["Content-Range"] = f"bytes {first}-{last}/{len(content)}"
        self._answer(206, content[first : last + 1], headers)

    def _delete_some(self, body: str) -> None:
        keys = [part.partition("</Key>")[0] for part in body.split("<Key>")[1:]]
        for key in keys:
            self.store.objects.pop(key, None)
        deleted = "".join(f"<Deleted><Key>{key}</Key></Deleted>" for key in keys)
        self._answer(200, f"<DeleteResult>{deleted}</DeleteResult>".encode())

    def _listing(self) -> bytes:
        prefix = self._one("prefix")
        after = self._one("continuation-token") or self._one("start-after")
        slash = self._one("delimiter")
        folded: dict[str, str] = {}
        for key in self.store.keys(prefix):
            rest = key[len(prefix) :]
            is_below = bool(slash) and slash in rest
            shown = prefix + rest.partition(slash)[0] + slash if is_below else key
            if shown > after:
                folded[shown] = "" if is_below else key
        some = dict(list(folded.items())[: int(self._one("max-keys") or LISTED_MAX)])
        more = len(some) < len(folded)
        last = next(reversed(some), "")
        token = f"<NextContinuationToken>{escape(last)}</NextContinuationToken>"
        parts = [_listed(shown, key, self.store) for shown, key in some.items()]
        told = f"<IsTruncated>{str(more).lower()}</IsTruncated>{token if more else ''}"
        return f"<ListBucketResult>{told}{''.join(parts)}</ListBucketResult>".encode()

    def _one(self, name: str) -> str:
        return self._asked.get(name, [""])[0]

    def _answer(
        self, status: int, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> None:
        if getattr(self, "_is_silent", False):
            self.close_connection = True
            return
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _listed(shown: str, key: str, store: ObjectServer) -> str:
    if not key:
        return f"<CommonPrefixes><Prefix>{escape(shown)}</Prefix></CommonPrefixes>"
    content = store.objects[key]
    return (
        f"<Contents><Key>{escape(key)}</Key><Size>{len(content)}</Size>"
        f"<LastModified>2026-01-31T07:00:00.000Z</LastModified>"
        f"<ETag>{escape(etag(content))}</ETag></Contents>"
    )


def _error(code: str, message: str) -> bytes:
    return f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()
