"""Processor time of process trees, read from /proc so that nothing has to be installed."""

import os
from pathlib import Path
from typing import Final

_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
# utime and stime are fields 14 and 15 of proc(5)'s stat; the name before them may hold spaces.
_UTIME_AFTER_NAME: Final = 11


def own_cpu_s() -> float:
    """User and system seconds of this process."""
    times = os.times()
    return times.user + times.system


def tree_cpu_s(pid: int) -> float:
    """User and system seconds of a process and all that are its children now; 0 when it is gone."""
    return sum(process_cpu_s(member) for member in tree(pid))


def process_cpu_s(pid: int) -> float:
    """User and system seconds of one process; 0 when it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0.0
    fields = stat.rpartition(")")[2].split()
    return (int(fields[_UTIME_AFTER_NAME]) + int(fields[_UTIME_AFTER_NAME + 1])) / _TICKS_PER_S


def resident_bytes(pid: int) -> int:
    """The memory of one process that is in use and in RAM; 0 when it is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    sizes = [line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:")]
    return int(sizes[0]) * 1024 if sizes else 0


def tree(pid: int) -> list[int]:
    """A process and all that are its children now, and theirs."""
    found = [pid]
    for member in found:
        for path in Path(f"/proc/{member}/task").glob("*/children"):
            try:
                found.extend(int(child) for child in path.read_text(encoding="ascii").split())
            except OSError:
                continue
    return found
