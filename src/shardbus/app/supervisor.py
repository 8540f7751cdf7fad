"""Keeps broker processes running: starts them, starts them again, passes on what they say."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, final

log = logging.getLogger(__name__)

RESTART_MS_MAX: Final = 30_000
# Whoever ran this long was well: the next restart is soon again.
WELL_MS: Final = 10_000
STOP_MS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Child:
    """A process to keep, and the name that its lines get."""

    name: str
    command: Sequence[str]


@final
class Supervisor:
    """Runs children until cancelled; then they are stopped before `run` returns.

    The n-th restart in a row waits `restart_ms` times 2 to the n-1, at most RESTART_MS_MAX
    (or `restart_ms`). A child that reads its standard input sees it end when this process ends,
    however that ends.
    """

    def __init__(
        self,
        children: Sequence[Child],
        *,
        restart_ms: int,
        say: Callable[[str], None],
        ended: Callable[[str], None] | None = None,
    ) -> None:
        """`say` gets every line that a child writes, with the child's name before it, and `ended`
        how each life of a child ended.
        """
        self._children = children
        self._restart_ms = restart_ms
        self._say = say
        self._ended = ended

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
            if (loop.time() - started_s) * 1000 >= WELL_MS:
                wait_ms = self._restart_ms
            if self._ended is not None:
                self._ended(end)
            log.error("%s %s; it is started again in %d ms", child.name, end, wait_ms)
            await asyncio.sleep(wait_ms / 1000)
            wait_ms = max(self._restart_ms, min(wait_ms * 2, RESTART_MS_MAX))

    async def _live(self, child: Child) -> str:
        """One life of a child; how it ended."""
        try:
            process = await asyncio.create_subprocess_exec(
                *child.command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                # A Ctrl-C in the terminal is for us; we tell the children when it is their turn.
                start_new_session=True,
            )
        except OSError as error:
            return f"could not be started: {error}"
        log.info("%s runs as process %d", child.name, process.pid)
        try:
            assert process.stdout is not None
            await pass_on(process.stdout, lambda line: self._say(f"{child.name}: {line}"))
            code = await process.wait()
        finally:
            await stop_process(process)
        return f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"


async def pass_on(stream: asyncio.StreamReader, say: Callable[[str], None]) -> None:
    """Every line of a stream until it ends, without the end of the line."""
    while True:
        try:
            line = await stream.readline()
        except ValueError:
            # Longer than the reader's limit: the piece is gone, and the rest goes on.
            continue
        if not line:
            return
        say(line.decode(errors="replace").rstrip())


async def stop_process(process: asyncio.subprocess.Process) -> None:
    """End a process, with force if it takes too long; nothing to do for one that has ended."""
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
