"""A server of objects that fails when told to: of each request somebody decides what happens to it.

What it serves, and in which dialect, is the business of the modules that make one.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final, Generic, Self, TypeVar
from urllib.parse import unquote, urlsplit

ANSWERED, KILLED, LOST, REFUSED, FORBIDDEN, PAUSED = (
    *("answered", "killed", "lost", "refused"),
    *("forbidden", "paused"),
)
"""What happens to a request. A lost one takes effect, but its answer never arrives; a paused one
takes effect when the process that made it, which is stopped, may go on.
"""
PAUSE_S_MAX: Final = 120.0
_NOT_SET: Final = ("AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_DEFAULT_REGION")


class FatedServer:
    """`fate` decides about each request by its method and key; `victim` is the process that makes
    them, if it is to be killed or stopped.
    """

    def __init__(self, handler: type[FatedHandler[Self]]) -> None:
        self.requests: list[tuple[str, str]] = []
        self.fate: Callable[[str, str], str] = lambda method, key: ANSWERED
        self.victim = 0
        self.turn = threading.Lock()
        self.is_paused = threading.Event()
        self._goes_on = threading.Event()
        self._server = _Server(("127.0.0.1", 0), type("Handler", (handler,), {"store": self}))
        self.port: int = self._server.server_port
        self.url = f"http://127.0.0.1:{self.port}"

    @contextmanager
    def running(self) -> Iterator[Self]:
        thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()

    def kill(self) -> None:
        """End the process whose requests are served, as by a power failure."""
        if self.victim:
            os.kill(self.victim, signal.SIGKILL)

    def pause(self) -> None:
        """Stop that process until `go_on`; its request waits here."""
        os.kill(self.victim, signal.SIGSTOP)
        self._goes_on.clear()
        self.is_paused.set()
        assert self._goes_on.wait(PAUSE_S_MAX), "nobody lets it go on"

    def go_on(self) -> None:
        self.is_paused.clear()
        os.kill(self.victim, signal.SIGCONT)
        self._goes_on.set()


Store = TypeVar("Store", bound=FatedServer)


class FatedHandler(BaseHTTPRequestHandler, Generic[Store]):
    protocol_version = "HTTP/1.1"
    # Otherwise the body of each answer waits 40 ms for the acknowledgement of its head.
    wbufsize = 1 << 16
    disable_nagle_algorithm = True
    store: Store

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing is printed."""

    def do_GET(self) -> None:
        self._serve()

    do_HEAD = do_PUT = do_DELETE = do_POST = do_GET

    @abstractmethod
    def do(self, bucket: str, key: str, body: bytes) -> None:
        """What is asked for."""

    @abstractmethod
    def refusal(self, code: str, message: str) -> bytes:
        """The body of an error, as the dialect has it."""

    def _serve(self) -> None:
        bucket, _, key = unquote(urlsplit(self.path).path).lstrip("/").partition("/")
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        with self.store.turn:
            self.store.requests.append((self.command, key))
            fate = self.store.fate(self.command, key)
        if fate == PAUSED:
            self.store.pause()
        with self.store.turn:
            self._is_silent = fate == LOST
            if fate == KILLED:
                self.store.kill()
                self.close_connection = True
            elif fate == REFUSED:
                self.answer(500, self.refusal("InternalError", "The store is not well."))
            elif fate == FORBIDDEN:
                self.answer(403, self.refusal("AccessDenied", "This is not allowed any more."))
            else:
                self.do(bucket, key, body)

    def answer(
        self, status: int, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> None:
        if self._is_silent:
            self.close_connection = True
            return
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if "Content-Length" not in (headers or {}):
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


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
