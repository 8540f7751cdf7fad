"""Holds processes to a share of a processor each, by stopping those that have used theirs.

It needs no privileges and no control groups. What a process may use grows with time; whoever has
used more is stopped until it has not. On average that is exact, however late a look is.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.synchronize import Event
from typing import Final

LOOK_S: Final = 0.002
# What a process may use at once after it was idle, in seconds of a whole processor.
SAVED_S: Final = 0.02


def cpu_s(pid: int) -> float:
    """Processor time of all threads of a process."""
    # The clock of another process, as clock_getcpuclockid(3) makes its number.
    return time.clock_gettime((~pid << 3) | 2)


@contextmanager
def held(pids: Sequence[int], share: float) -> Iterator[None]:
    """Each process gets this share of a processor; afterwards all of them run freely."""
    ending = multiprocessing.Event()
    governor = multiprocessing.Process(target=_govern, args=(list(pids), share, ending))
    governor.start()
    try:
        yield
    finally:
        ending.set()
        governor.join()
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def _govern(pids: list[int], share: float, ending: Event) -> None:
    with suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, -10)
    may_use = {pid: cpu_s(pid) for pid in pids}
    stopped: set[int] = set()
    last_s = time.monotonic()
    while not ending.wait(LOOK_S):
        now_s = time.monotonic()
        gained_s, last_s = (now_s - last_s) * share, now_s
        for pid in pids:
            used_s = cpu_s(pid)
            may_use[pid] = min(may_use[pid] + gained_s, used_s + SAVED_S)
            if used_s > may_use[pid] and pid not in stopped:
                os.kill(pid, signal.SIGSTOP)
                stopped.add(pid)
            elif used_s <= may_use[pid] and pid in stopped:
                os.kill(pid, signal.SIGCONT)
                stopped.discard(pid)
