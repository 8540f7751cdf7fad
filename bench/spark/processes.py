"""Processor time of everything that takes part, told apart by what it is."""

import os
from enum import StrEnum
from pathlib import Path

from bench.processor import own_cpu_s, process_cpu_s, tree


class Part(StrEnum):
    """Who uses the processor. WORKERS are Spark's Python processes, DRIVER is this one."""

    BUS = "bus"
    LANE = "lane"
    JVM = "jvm"
    WORKERS = "workers"
    DRIVER = "driver"


Used = dict[tuple[Part, int], float]
"""User and system seconds of each process so far."""


def used_s(server_pid: int) -> Used:
    """Of all processes that there are now."""
    found: Used = {(Part.DRIVER, os.getpid()): own_cpu_s()}
    for pid in tree(server_pid):
        part = Part.LANE if "flight" in _arguments(pid) else Part.BUS
        found[part, pid] = process_cpu_s(pid)
    for java in tree(os.getpid()):
        if _arguments(java)[0].endswith("java"):
            # Whatever it has started is Python.
            _, *workers = tree(java)
            found[Part.JVM, java] = process_cpu_s(java)
            found.update({(Part.WORKERS, pid): process_cpu_s(pid) for pid in workers})
    return found


def since(before: Used, after: Used) -> dict[Part, float]:
    """What each part used in between.

    Process by process: Spark ends workers that were idle for a minute, and nobody is told what
    they used, so that a sum over all of them may fall. What such a one did in between is missing.
    """
    found = dict.fromkeys(Part, 0.0)
    for (part, pid), seconds in after.items():
        found[part] += seconds - before.get((part, pid), 0.0)
    return found


def background(server_pid: int) -> list[int]:
    """The processes of Spark and of the bulk lane, but not this one, which starts the senders."""
    lanes = [pid for pid in tree(server_pid) if "flight" in _arguments(pid)]
    javas = [pid for pid in tree(os.getpid()) if _arguments(pid)[0].endswith("java")]
    return [*lanes, *(pid for java in javas for pid in tree(java))]


def _arguments(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text("utf-8", errors="replace").split("\0")
    except OSError:
        return [""]
