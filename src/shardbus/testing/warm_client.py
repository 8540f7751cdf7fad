"""Asks the warm process for private buses, on behalf of a test run."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, final

from shardbus.testing.bus import PrivateBus
from shardbus.testing.failures import BusFailed

START_S_MAX: Final = 60.0
STOP_S_MAX: Final = 20.0
_COMMAND: Final = (sys.executable, "-m", "shardbus", "test-server", "--warm")

Answer = Mapping[str, object]


@dataclass(frozen=True)
class BusOptions:
    """How a bus starts; `settings` are those of `shardbus.toml`, by name."""

    config: Sequence[str] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    now: str = ""
    is_frozen: bool = False
    is_in_memory: bool = True


@final
class WarmProcess:
    """Starts and stops private buses; one for each process that runs tests.

    It is started by the first bus, and ends with `close` or with this process.
    """

    def __init__(self, command: Sequence[str] = _COMMAND) -> None:
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._directory: Path | None = None
        self._unread = b""
        self._answers: list[Answer] = []
        self._started = 0

    def start(self, options: BusOptions | None = None) -> PrivateBus:
        """A new, empty bus that nobody else uses; BusFailed when it does not start."""
        options = options or BusOptions()
        self._begin()
        self._started += 1
        number = self._started
        directory = self._directory
        assert directory is not None
        log = directory / f"{number}.log"
        request = {
            "id": number,
            "config": list(options.config),
            "settings": dict(options.settings),
            "now": options.now,
            "isFrozen": options.is_frozen,
            "isInMemory": options.is_in_memory,
            "log": str(log),
        }
        self._ask({"start": request})
        deadline_s = time.monotonic() + START_S_MAX
        while True:
            answer = self._take(number, deadline_s)
            ready = answer.get("ready")
            if isinstance(ready, dict):
                return PrivateBus(ready, log, lambda: self._stop(number, log))
            reason = answer.get("error") or f"it ended with code {answer.get('ended')}"
            raise BusFailed(f"the private bus did not start: {reason}\n{_tail(log)}".rstrip())

    def close(self) -> None:
        """End all buses and the process; nothing of them is left."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None and process.stdout is not None
        with suppress(BrokenPipeError):
            process.stdin.close()
        try:
            process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            # Its buses end with it.
            process.kill()
            process.wait()
        process.stdout.close()
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)

    def _begin(self) -> None:
        if self._process is not None:
            return
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # Signals of the terminal are for the test run, which then closes what it has started.
            start_new_session=True,
        )
        answer = self._next(time.monotonic() + START_S_MAX)
        self._directory = Path(str(answer["directory"]))

    def _ask(self, document: Answer) -> None:
        process = self._process
        assert process is not None and process.stdin is not None
        try:
            process.stdin.write(json.dumps(document).encode() + b"\n")
            process.stdin.flush()
        except BrokenPipeError as error:
            raise BusFailed("the process that starts private buses has ended") from error

    def _stop(self, number: int, log: Path) -> None:
        if self._process is None:
            return
        self._ask({"stop": number})
        deadline_s = time.monotonic() + STOP_S_MAX
        while "ended" not in self._take(number, deadline_s):
            """The next answer says it."""
        log.unlink(missing_ok=True)

    def _take(self, number: int, deadline_s: float) -> Answer:
        """The next answer about a bus."""
        while True:
            for answer in self._answers:
                if answer.get("id") == number:
                    self._answers.remove(answer)
                    return answer
            self._answers.append(self._next(deadline_s))

    def _next(self, deadline_s: float) -> Answer:
        process = self._process
        assert process is not None and process.stdout is not None
        while b"\n" not in self._unread:
            left_s = max(0.0, deadline_s - time.monotonic())
            if not select.select([process.stdout], [], [], left_s)[0]:
                raise BusFailed("the process that starts private buses does not answer")
            read = os.read(process.stdout.fileno(), 65_536)
            if not read:
                code = process.wait()
                raise BusFailed(f"the process that starts private buses ended with code {code}")
            self._unread += read
        line, _, self._unread = self._unread.partition(b"\n")
        answer: Answer = json.loads(line)
        return answer


def _tail(log: Path) -> str:
    try:
        return log.read_text(encoding="utf-8", errors="replace")[-4000:]
    except OSError:
        return ""
