"""Repeats a turn until the demo ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from shardbus.app.cli.failures import CommandError

RETRY_S: Final = 2.0
"""The minimum pause between two turns after a failure."""


async def turns(
    turn: Callable[[], Awaitable[None]],
    turn_s: float,
    over: asyncio.Event,
    fail: Callable[[str], None],
) -> None:
    """A turn every `turn_s`; a failure of a command is reported, and the next turn is tried."""
    loop = asyncio.get_running_loop()
    while not over.is_set():
        began_s, wait_s = loop.time(), turn_s
        try:
            await turn()
        except CommandError as error:
            fail(str(error))
            wait_s = max(turn_s, RETRY_S)
        await pause(wait_s - (loop.time() - began_s), over)


async def pause(wait_s: float, over: asyncio.Event) -> None:
    """Wait, but not after the end."""
    with suppress(TimeoutError):
        async with asyncio.timeout(max(0.0, wait_s)):
            await over.wait()
