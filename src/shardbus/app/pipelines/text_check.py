"""Lets the connector read the texts of a definition before the bus stores it (P9).

Conditions, queries and schemas are read by the code of the driver, which the bus does not import.
"""

from __future__ import annotations

import asyncio
import json
import logging
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, final

from shardbus.app.pipelines.definition import Definition
from shardbus.core.errors import INVALID_ARGUMENT, Refused

log = logging.getLogger(__name__)

CHECK_S: Final = 30.0
"""After this time the driver itself is left to find mistakes."""
INVALID: Final = 2
"""The exit code for an invalid definition."""
ERROR_CHARACTERS_MAX: Final = 1_000


@final
class TextCheck:
    """Runs the driver, which then checks a definition and does nothing else; one at a time."""

    def __init__(
        self,
        command: Sequence[str],
        environment: Callable[[], Mapping[str, str]],
        job: Callable[[Definition], Mapping[str, object]],
        *,
        wait_s: float = CHECK_S,
    ) -> None:
        """`job` makes the document that the driver reads."""
        self._command = command
        self._environment = environment
        self._job = job
        self._wait_s = wait_s
        # A check is a process of a second.
        self._turn = asyncio.Lock()

    async def __call__(self, definition: Definition) -> None:
        """Refused for a mistake that can be found without Spark."""
        if not definition.task.has_texts:
            return
        document = json.dumps(self._job(definition)).encode()
        try:
            async with self._turn, asyncio.timeout(self._wait_s):
                code, said = await self._asked(document)
        except (OSError, TimeoutError) as error:
            log.warning("pipeline %s could not be checked: %r", definition.name, error)
            return
        told = _error_in(said) if code == INVALID else ""
        if told:
            raise Refused(INVALID_ARGUMENT, f"pipeline {definition.name}: {told}")
        if code:
            log.warning("pipeline %s could not be checked: code %d", definition.name, code)

    async def _asked(self, document: bytes) -> tuple[int, bytes]:
        """The exit code and the standard output of the driver."""
        process = await asyncio.create_subprocess_exec(
            *self._command, env=self._environment(), stdin=PIPE, stdout=PIPE, stderr=DEVNULL
        )
        try:
            said, _ = await process.communicate(document)
            return await process.wait(), said
        finally:
            await _ended(process)


async def _ended(process: Process) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def _error_in(said: bytes) -> str:
    """The error of the driver's last event; empty without one."""
    for line in reversed(said.splitlines()):
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict) and event.get("event") == "failed":
            return str(event.get("error"))[:ERROR_CHARACTERS_MAX]
    return ""
