"""What every process of the bus does alike: say what happens, and stop when told to."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys


def log_to_stderr(level: str) -> None:
    logging.basicConfig(
        level=level.upper(),
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )


def stop_on_signals() -> asyncio.Event:
    """Set by SIGINT and SIGTERM."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    return stopping
