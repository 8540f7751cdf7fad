"""Standard output as a pipe: whether its reader has taken what was written."""

import array
import fcntl
import os
import select
import stat
import sys
import termios
import time
from collections.abc import Callable
from typing import Final

SLOW_S: Final = 2.0
"""A reader that takes longer is a person at a pager, or hangs."""
_LOOK_S: Final = 0.0002
_LOOK_S_MAX: Final = 0.02


def output_pipe() -> int | None:
    """The descriptor of standard output if it is a pipe."""
    try:
        descriptor = sys.stdout.fileno()
        is_pipe = stat.S_ISFIFO(os.fstat(descriptor).st_mode)
    except (OSError, ValueError):
        return None
    return descriptor if is_pipe else None


def wait_until_read(descriptor: int, slow: Callable[[], None]) -> None:
    """Return when the reader of the pipe has taken everything that was written.

    BrokenPipeError when it has gone and left something. `slow` is called once if it takes long.
    """
    until_s: float | None = time.monotonic() + SLOW_S
    pause_s = _LOOK_S
    while _unread(descriptor):
        if _is_abandoned(descriptor):
            if _unread(descriptor):
                raise BrokenPipeError
            return
        if until_s is not None and time.monotonic() > until_s:
            until_s = None
            slow()
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.5, _LOOK_S_MAX)


def forget_output() -> None:
    """Discard what nobody will read, so that the end of the process does not fail on it."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def _unread(descriptor: int) -> int:
    """How many bytes are in the pipe; 0 where the system cannot tell."""
    count = array.array("i", [0])
    try:
        fcntl.ioctl(descriptor, termios.FIONREAD, count)
    except OSError:
        return 0
    return count[0]


def _is_abandoned(descriptor: int) -> bool:
    watch = select.poll()
    watch.register(descriptor, 0)
    return any(events & select.POLLERR for _, events in watch.poll(0))
