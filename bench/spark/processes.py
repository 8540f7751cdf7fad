"""Processor time of everything that takes part, told apart by what it is."""

import os
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

from bench.processor import own_cpu_s, process_cpu_s, reaped_cpu_s, tree


class Part(StrEnum):
    """Who uses the processor. WORKERS are Spark's Python processes, DRIVER is this one."""

    BUS = "bus"
    LANE = "lane"
    JVM = "jvm"
    WORKERS = "workers"
    DRIVER = "driver"


def used_s(server_pid: int) -> dict[Part, float]:
    """User and system seconds so far of all processes that there are now."""
    found = dict.fromkeys(Part, 0.0)
    for pid in tree(server_pid):
        found[Part.LANE if "flight" in _arguments(pid) else Part.BUS] += process_cpu_s(pid)
    found[Part.DRIVER] = own_cpu_s()
    for java in tree(os.getpid()):
        if _arguments(java)[0].endswith("java"):
            # Whatever it has started is Python; Spark ends workers that were idle for a minute.
            _, *workers = tree(java)
            found[Part.JVM] += process_cpu_s(java)
            found[Part.WORKERS] += reaped_cpu_s(java)
            found[Part.WORKERS] += sum(process_cpu_s(pid) + reaped_cpu_s(pid) for pid in workers)
    return found


def since(before: Mapping[Part, float], after: Mapping[Part, float]) -> dict[Part, float]:
    return {part: max(after[part] - before[part], 0.0) for part in Part}


def _arguments(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text("utf-8", errors="replace").split("\0")
    except OSError:
        return [""]
