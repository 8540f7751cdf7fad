"""The pipeline of the demo: started when Spark is installed, stopped when it has written enough."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import Final, final

from shardbus.app.cli.api_client import ApiClient
from shardbus.app.cli.failures import CommandError, NotFound
from shardbus.demo.picture import Capturing
from shardbus.demo.preparing import Preparing
from shardbus.demo.turns import pause
from shardbus.demo.watching import PIPELINE, pipeline_seen

BYTES_MAX: Final = 1_000_000_000
"""The maximum that is captured: a demo that nobody stops must not fill a disk."""
LOOK_S: Final = 0.5
RETRY_S: Final = 30.0
"""How often to try again: somebody may install missing libraries by hand."""

_OVER: Final = ("stopped", "finished")
_PATH: Final = f"pipelines/{PIPELINE}"


@final
class DemoCapture:
    """Starts and stops the pipeline, and knows why it does not run."""

    def __init__(self, api: ApiClient, entity: str, preparing: Preparing) -> None:
        self._api = api
        self._entity = entity
        self._preparing = preparing
        self._is_started = False
        self._is_full = False
        self._refusal = ""
        self._next_s = 0.0

    async def turn(self, seen: Capturing | None, now_s: float) -> None:
        """Act on the present state of the pipeline."""
        if seen is not None and seen.size_bytes > BYTES_MAX:
            if not self._is_full:
                await asyncio.to_thread(self._api.post, f"{_PATH}/stop", {})
            self._is_full = True
        elif not self._is_started and self._preparing.is_done and now_s >= self._next_s:
            self._next_s = now_s + RETRY_S
            await self._start()

    def shown(self, seen: Capturing | None, now_s: float) -> Capturing:
        """The state of the pipeline; with the reason if it does not run."""
        if seen is not None and self._is_full:
            return replace(seen, note=f"{BYTES_MAX // 1_000_000:,} MB are enough for a demo")
        if seen is not None and seen.state not in _OVER:
            return seen
        if not self._preparing.is_done:
            return Capturing(PIPELINE, "waiting", self._preparing.note(now_s))
        why = self._refusal and (self._preparing.failure or self._refusal)
        if why:
            return Capturing(PIPELINE, "unavailable", why)
        return seen or Capturing(PIPELINE, "waiting")

    async def stop(self, wait_s: float, enough: asyncio.Event) -> Capturing | None:
        """Let the pipeline end its batch, so that no claim is left on the bus.

        Returns the pipeline's last state. A pipeline that has not begun has no batch to end, and
        `enough` ends the waiting: then it ends with the bus, and continues when started again.
        """
        seen: Capturing | None = None
        with suppress(CommandError, TimeoutError):
            async with asyncio.timeout(wait_s):
                seen = await asyncio.to_thread(pipeline_seen, self._api)
                if seen is None:
                    return None
                await asyncio.to_thread(self._api.post, f"{_PATH}/stop", {})
                has_batch = seen.state == "running"
                while has_batch and not enough.is_set():
                    seen = await asyncio.to_thread(pipeline_seen, self._api)
                    if seen is None or seen.state in _OVER:
                        break
                    await pause(LOOK_S, enough)
        return seen

    async def _start(self) -> None:
        try:
            await asyncio.to_thread(self._put)
            await asyncio.to_thread(self._api.post, f"{_PATH}/start", {})
        except CommandError as error:
            self._refusal = str(error)
        else:
            self._refusal, self._is_started = "", True

    def _put(self) -> None:
        # An existing pipeline stays as it is, even if its definition was changed.
        try:
            self._api.get(_PATH)
        except NotFound:
            self._api.put(_PATH, {"entity": self._entity, "path": PIPELINE})
