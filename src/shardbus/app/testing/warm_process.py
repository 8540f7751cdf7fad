"""A warm process: it has loaded everything, and forks a private bus whenever it is asked for one.

Requests are lines of JSON on standard input: `{"start": {"id": 1, …}}` and `{"stop": 1}`. Answers
are lines on standard output: `{"id": 1, "ready": {…}}`, `{"id": 1, "error": "…"}` when a bus cannot
start, and `{"id": 1, "ended": 0}` with its exit code, or minus the signal. The process ends with
standard input, and every bus ends with the process, however that ends.
"""

from __future__ import annotations

import gc
import json
import os
import select
import shutil
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Final, NoReturn, final

import msgspec
from msgspec import Meta, Struct

from shardbus.app.cli.console import Json
from shardbus.app.cli.failures import CommandError
from shardbus.app.server.serving import end_with_stdin, log_to_stderr
from shardbus.app.testing.serving import TestBus, new_directory, serve_test

BUSES_MAX: Final = 1_000
LINE_BYTES_MAX: Final = 1024 * 1024

Texts = Annotated[tuple[str, ...], Meta(max_length=100)]


class Start(Struct, forbid_unknown_fields=True, rename="camel"):
    """A bus to start. Its log is written to the file `log`, if that is given."""

    id: int
    config: Texts = ()
    settings: dict[str, str] = {}
    now: str = ""
    is_frozen: bool = False
    is_in_memory: bool = True
    log: str = ""


class Request(Struct, forbid_unknown_fields=True):
    start: Start | None = None
    stop: int | None = None


def run_warm() -> int:
    """Serve until standard input ends."""
    log_to_stderr("warning")
    # What is loaded by now is not looked at again, so that its memory stays shared.
    gc.collect()
    gc.freeze()
    directory = new_directory()
    warm = _Warm(directory)
    try:
        _say({"warm": os.getpid(), "directory": str(directory)})
        warm.run()
    finally:
        warm.stop_all()
        shutil.rmtree(directory, ignore_errors=True)
    return 0


@final
class _Warm:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._pids: dict[int, int] = {}
        # Held by this process alone: every bus reads the other end, and notices its end.
        self._life, self._held = os.pipe()
        self._woken, wake = os.pipe()
        os.set_blocking(wake, False)
        os.set_blocking(self._woken, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, _exit)

    def run(self) -> None:
        stdin, unread = sys.stdin.fileno(), b""
        while True:
            readable, _, _ = select.select([stdin, self._woken], [], [])
            if self._woken in readable:
                with suppress(BlockingIOError):
                    os.read(self._woken, 4096)
                self._bury()
            if stdin in readable:
                read = os.read(stdin, 65_536)
                if not read:
                    return
                *lines, unread = (unread + read).split(b"\n")
                for line in lines:
                    self._serve(line)
                if len(unread) > LINE_BYTES_MAX:
                    raise CommandError(f"a request is longer than {LINE_BYTES_MAX} bytes")

    def stop_all(self) -> None:
        for pid in self._pids.values():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        for pid in self._pids.values():
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)

    def _serve(self, line: bytes) -> None:
        try:
            request = msgspec.json.decode(line, type=Request)
        except msgspec.DecodeError as error:
            raise CommandError(f"the request {line[:200]!r} is invalid: {error}") from error
        if request.start is not None:
            self._start(request.start)
        if request.stop is not None and request.stop in self._pids:
            os.kill(self._pids[request.stop], signal.SIGTERM)

    def _start(self, start: Start) -> None:
        if start.id in self._pids or len(self._pids) >= BUSES_MAX:
            _say({"id": start.id, "error": f"the id is used, or {BUSES_MAX} buses are running"})
            return
        pid = os.fork()
        if not pid:
            self._become(start)
        self._pids[start.id] = pid

    def _become(self, start: Start) -> NoReturn:
        """In the child: serve, and never return."""
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            os.close(self._held)
            os.dup2(self._life, sys.stdin.fileno())
            if start.log:
                _write_log_to(start.log)
            end_with_stdin()
            code = _serve_start(start, self._directory / str(start.id))
        finally:
            os._exit(code)

    def _bury(self) -> None:
        for identity, pid in list(self._pids.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                del self._pids[identity]
                _say({"id": identity, "ended": os.waitstatus_to_exitcode(status)})


def _serve_start(start: Start, directory: Path) -> int:
    asked = TestBus(start.config, start.settings, start.now, start.is_frozen, start.is_in_memory)
    try:
        serve_test(asked, directory, lambda document: _say({"id": start.id, "ready": document}))
    except CommandError as error:
        _say({"id": start.id, "error": str(error)})
        return error.exit_code
    return 0


def _write_log_to(path: str) -> None:
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    os.dup2(descriptor, sys.stderr.fileno())
    os.close(descriptor)


def _exit(*_: object) -> NoReturn:
    raise SystemExit(0)


def _say(document: Mapping[str, Json]) -> None:
    # In one piece: the buses write to the same pipe.
    os.write(sys.stdout.fileno(), f"{json.dumps(document)}\n".encode())
