"""Installs what Spark needs while the bus already serves."""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from contextlib import suppress
from typing import final

from shardbus.app.server.supervisor import pass_on


@final
class Preparing:
    """A shell command that is run once; an empty one is done at once."""

    def __init__(self, command: str) -> None:
        self._command = command
        self._last_line = ""
        self._began_s = 0.0
        self.is_done = not command
        self.failure = ""

    async def run(self) -> None:
        """Run until it has ended; cancelling this ends the command and everything that it
        started.
        """
        if self.is_done:
            return
        self._began_s = asyncio.get_running_loop().time()
        starting = asyncio.ensure_future(
            asyncio.create_subprocess_exec(
                *("sh", "-c", self._command),
                stdin=DEVNULL,
                stdout=PIPE,
                stderr=STDOUT,
                start_new_session=True,
            )
        )
        try:
            # When this is cancelled at that moment, the command has begun and is to end, too.
            process = await asyncio.shield(starting)
            assert process.stdout is not None
            await pass_on(process.stdout, self._hear)
            code = await process.wait()
        finally:
            process = await starting
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGTERM)
            await process.wait()
        if code:
            self.failure = f"`{self._command}` ended with code {code}: {self._last_line}"
        self.is_done = True

    def note(self, now_s: float) -> str:
        """The progress, for the screen."""
        return self.failure or f"Spark is being installed, for {now_s - self._began_s:.0f} s now"

    def _hear(self, line: str) -> None:
        if line.strip():
            self._last_line = line.strip()
