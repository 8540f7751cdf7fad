"""The bus of the demo: `shardbus serve` as a process beside it, so that neither slows the other."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Sequence
from typing import Final, final

from shardbus.app.server.supervisor import pass_on, stop_process

COMMAND: Final = (sys.executable, "-m", "shardbus", "serve", "--ends-with-stdin")


@final
class BusProcess:
    """One life of a bus, which ends with the demo however that ends."""

    def __init__(self, arguments: Sequence[str], hear: Callable[[str], None]) -> None:
        """`hear` gets every line that the bus writes, but for the one that says it is ready."""
        self._command = [*COMMAND, *arguments]
        self._hear = hear
        self._process: Process | None = None
        self._ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def run(self) -> int:
        """Until it ends, or is cancelled and has ended then; its exit code."""
        process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            # A Ctrl-C is for the demo, which has something to do before the bus goes.
            start_new_session=True,
        )
        try:
            assert process.stdout is not None and process.stderr is not None
            await asyncio.gather(
                pass_on(process.stdout, self._hear_output), pass_on(process.stderr, self._hear)
            )
            return await process.wait()
        finally:
            await stop_process(process)
            if not self._ready.done():
                self._ready.set_result("")

    async def ready(self) -> str:
        """The line that says it is; empty when it ended before it was."""
        return await asyncio.shield(self._ready)

    def _hear_output(self, line: str) -> None:
        if line.startswith("ready ") and not self._ready.done():
            self._ready.set_result(line)
        else:
            self._hear(line)
