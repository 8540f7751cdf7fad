"""Keeps broker processes running: starts them, restarts them, passes their output on.

A watched child beats: it writes a line every BEAT_MS. A child that stops beating hangs, and is
killed (docs/adr/0041-hung-processes.md).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, final

log = logging.getLogger(__name__)

_HUNG: Final = "was silent"

RESTART_MS_MAX: Final = 30_000
# A child that ran this long was well: the next restart is soon again.
WELL_MS: Final = 10_000
STOP_MS: Final = 10_000
BEAT_MS: Final = 500
TICK_MS: Final = 250
BEAT: Final = "beat"
"""The beat of a child; it is not passed on."""


@dataclass(frozen=True, slots=True)
class Child:
    """A process to keep running, and the prefix of its lines.

    A child that beats and is then silent for `silent_ms` is killed; 0: it is not watched.
    """

    name: str
    command: Sequence[str]
    silent_ms: int = 0


@final
class _Pulse:
    """How long a child has been silent, counted in our ticks: a pause of this process, or of the
    whole machine, is not silence.
    """

    def __init__(self, silent_ms: int) -> None:
        self._silent_ms = silent_ms
        self._ticks = 0
        # A start may take any time: a store may have to be recovered.
        self._has_begun = False

    def hear(self, line: str) -> bool:
        """Note a line; returns whether to pass it on."""
        self._ticks = 0
        is_beat = self._silent_ms > 0 and line == BEAT
        self._has_begun = self._has_begun or is_beat
        return not is_beat

    def is_gone(self) -> bool:
        """Count a tick; returns whether the child has been silent for too long."""
        self._ticks += self._has_begun
        return self._ticks * TICK_MS > self._silent_ms


@final
class Supervisor:
    """Runs children until cancelled; then they are stopped before `run` returns.

    The n-th restart in a row waits `restart_ms` times 2 to the n-1, at most RESTART_MS_MAX (or
    `restart_ms`). The standard input of a child ends when this process ends, in whatever way.
    """

    def __init__(
        self,
        children: Sequence[Child],
        *,
        restart_ms: int,
        say: Callable[[str], None],
        ended: Callable[[str], None] | None = None,
    ) -> None:
        """`say` is called with every line of a child, prefixed with its name, and `ended` with how
        each run of a child ended.
        """
        self._children = children
        self._restart_ms = restart_ms
        self._say = say
        self._ended = ended
        # Why a killed child is not back yet; a process that waits for a disk does not even die.
        self.undead: dict[str, str] = {}

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for child in self._children:
                tasks.create_task(self._keep(child))

    async def _keep(self, child: Child) -> None:
        loop = asyncio.get_running_loop()
        wait_ms = self._restart_ms
        while True:
            started_s = loop.time()
            end = await self._live(child)
            # A child that hung was not well: its next restart must not be hurried.
            if (loop.time() - started_s) * 1000 >= WELL_MS and not end.startswith(_HUNG):
                wait_ms = self._restart_ms
            if self._ended is not None:
                self._ended(end)
            log.error("%s %s; it is restarted in %d ms", child.name, end, wait_ms)
            await asyncio.sleep(wait_ms / 1000)
            wait_ms = max(self._restart_ms, min(wait_ms * 2, RESTART_MS_MAX))

    async def _live(self, child: Child) -> str:
        """One run of a child; returns how it ended."""
        try:
            process = await asyncio.create_subprocess_exec(
                *child.command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                # A Ctrl-C in the terminal is for this process, which stops the children in time.
                start_new_session=True,
            )
        except OSError as error:
            return f"could not be started: {error}"
        log.info("%s runs as process %d", child.name, process.pid)
        pulse = _Pulse(child.silent_ms)

        def heard(line: str) -> None:
            if pulse.hear(line):
                self._say(f"{child.name}: {line}")

        assert process.stdout is not None
        hearing = asyncio.ensure_future(pass_on(process.stdout, heard))
        try:
            if child.silent_ms and await _fell_silent(hearing, pulse):
                await self._kill(child, process)
                return f"{_HUNG} for {child.silent_ms} ms and was killed"
            await hearing
            code = await process.wait()
        finally:
            hearing.cancel()
            await stop_process(process)
        return f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"

    async def _kill(self, child: Child, process: asyncio.subprocess.Process) -> None:
        """Kill a child that hangs. Until it has died it cannot be replaced: it has files open, and
        its disk requests may still be executed.
        """
        log.error(
            "%s (process %d) was silent for %d ms and is killed",
            child.name,
            process.pid,
            child.silent_ms,
        )
        process.kill()
        try:
            async with asyncio.timeout(STOP_MS / 1000):
                await process.wait()
        except TimeoutError:
            why = f"process {process.pid} was killed but does not end: it probably waits for a disk"
            log.error("%s: %s; check the disk and the kernel's log", child.name, why)
            self.undead[child.name] = why
            await process.wait()
        finally:
            self.undead.pop(child.name, None)


async def _fell_silent(hearing: asyncio.Future[None], pulse: _Pulse) -> bool:
    """Wait until the output of a child ends, or the child is silent for too long."""
    while not hearing.done():
        await asyncio.wait([hearing], timeout=TICK_MS / 1000)
        if not hearing.done() and pulse.is_gone():
            return True
    return False


async def pass_on(stream: asyncio.StreamReader, say: Callable[[str], None]) -> None:
    """Pass on every line of a stream until it ends, without the line end."""
    while True:
        try:
            line = await stream.readline()
        except ValueError:
            # Longer than the reader's limit: the piece is dropped, and reading continues.
            continue
        if not line:
            return
        say(line.decode(errors="replace").rstrip())


async def stop_process(process: asyncio.subprocess.Process) -> None:
    """End a process, with force if it takes too long; does nothing for one that has ended."""
    if process.returncode is not None:
        return
    process.terminate()
    try:
        async with asyncio.timeout(STOP_MS / 1000):
            await process.wait()
    except TimeoutError:
        log.warning("process %d does not stop and is killed", process.pid)
        process.kill()
        await process.wait()
