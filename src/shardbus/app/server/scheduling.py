"""Who waits for a processor: a server with real-time scheduling, and what it starts without."""

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from shardbus.app.cli.failures import CommandError

_PRIORITY: Final = 1
"""The lowest: above all ordinary work, below what an operator placed above it."""


def take_real_time() -> None:
    """Schedule this process, and what it starts, before all ordinary work; CommandError when the
    system does not allow that.
    """
    if sys.platform != "linux":
        raise CommandError("--real-time needs Linux: start the server without it")
    try:
        _schedule(os.SCHED_RR, _PRIORITY)
    except OSError as error:
        raise CommandError(
            f"the system does not allow this process real-time scheduling ({error.strerror}): "
            "allow it with LimitRTPRIO=1 in the unit, --ulimit rtprio=1 of the container or "
            "`ulimit -r 1` in the shell, or start the server without --real-time"
        ) from error


def give_up_real_time() -> None:
    """Schedule this process as ordinary work, whatever has started it."""
    if sys.platform == "linux" and os.sched_getscheduler(0) in (os.SCHED_FIFO, os.SCHED_RR):
        _schedule(os.SCHED_OTHER, 0)


def _schedule(policy: int, priority: int) -> None:
    """For each thread that there is; later ones have what the thread has that starts them."""
    for task in Path("/proc/self/task").iterdir():
        # A thread may end meanwhile.
        with suppress(ProcessLookupError):
            os.sched_setscheduler(int(task.name), policy, os.sched_param(priority))
