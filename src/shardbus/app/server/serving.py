"""What every process of the bus shares: logging, and stopping on a signal."""

from __future__ import annotations

import asyncio
import logging
import os
import select
import signal
import sys
import threading
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Final

from shardbus.app.server.log_lines import LineFormatter
from shardbus.app.server.supervisor import BEAT, BEAT_MS

_STDOUT: Final = 1

Work = Coroutine[object, object, None]


async def alongside(work: Work, chores: Sequence[Work]) -> None:
    """Run the work with the chores beside it; they are cancelled when it ends.

    Exceptions of the work are raised as they are, and not in a group: they may be for the user.
    """
    failure: Exception | None = None
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(chore) for chore in chores]
        try:
            await work
        except Exception as error:  # noqa: BLE001 - raised again when the chores have ended
            failure = error
        finally:
            for chore in running:
                chore.cancel()
    if failure is not None:
        raise failure


def log_to_stderr(level: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler])


def stop_on_signals() -> asyncio.Event:
    """Set by SIGINT and SIGTERM."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    return stopping


def beat() -> None:
    """Tell the supervisor that this process is alive; does nothing while nobody reads it."""
    with suppress(OSError):
        # A pipe that nobody reads fills up, and must not block this process.
        _, writable, _ = select.select([], [_STDOUT], [], 0)
        if writable:
            os.write(_STDOUT, f"{BEAT}\n".encode())


async def beat_on() -> None:
    """Beat for as long as the event loop runs, until cancelled."""
    while True:
        beat()
        await asyncio.sleep(BEAT_MS / 1000)


def end_with_stdin() -> None:
    """End this process as SIGTERM would when its standard input ends: its supervisor has gone."""

    def wait() -> None:
        while os.read(sys.stdin.fileno(), 4096):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="stdin", daemon=True).start()
