"""What every process of the bus does alike: say what happens, and stop when told to."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Coroutine, Sequence

from shardbus.app.log_lines import LineFormatter

Work = Coroutine[object, object, None]


async def alongside(work: Work, chores: Sequence[Work]) -> None:
    """Do the work while the chores run beside it; they are cancelled when it ends.

    What the work raises passes through as it is, and not in a group: it may be for the user.
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
