"""The bus of the demo: `shardbus serve` as a separate process, so that neither slows the other."""

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
    """One run of a bus, which ends with the demo in every case."""

    def __init__(self, arguments: Sequence[str], hear: Callable[[str], None]) -> None:
        """`hear` is called with every line of the bus except the ready line."""
        self._command = [*COMMAND, *arguments]
        self._hear = hear
        self._process: Process | None = None
        self._ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def run(self) -> int:
        """Run until it ends, or is cancelled and has ended; returns its exit code."""
        process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            # A Ctrl-C is for the demo, which has work to do before the bus ends.
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
        """The ready line; empty when the bus ended before."""
        return await asyncio.shield(self._ready)

    def _hear_output(self, line: str) -> None:
        if line.startswith("ready ") and not self._ready.done():
            self._ready.set_result(line)
        else:
            self._hear(line)
