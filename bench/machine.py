"""The machine and the versions a result belongs to; never a host name or a path."""

import os
import platform
import sqlite3
import subprocess
from pathlib import Path

import shardbus
from bench.peers import rabbitmq
from shardbus.amqp import connection


def describe(directory: Path) -> dict[str, str | int | bool]:
    """What a reader needs to judge the numbers; the servers keep their data in `directory`."""
    return {
        "processor": _field(Path("/proc/cpuinfo"), "model name"),
        "cores": os.cpu_count() or 0,
        "memory": _field(Path("/proc/meminfo"), "MemTotal"),
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
        "file_system": _file_system(directory),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "shardbus": shardbus.__version__,
        "commit": _commit(),
        "is_compiled": not str(connection.__file__).endswith(".py"),
        "rabbitmq": rabbitmq.version() if rabbitmq.is_installed() else "not installed",
    }


def _field(path: Path, name: str) -> str:
    for line in path.read_text(encoding="utf-8").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return "unknown"


def _file_system(directory: Path) -> str:
    """The type of the file system that holds the directory: that of the longest mount above it."""
    best, kind = "", "unknown"
    path = str(directory.resolve())
    for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines():
        _, point, name, *_ = line.split()
        if len(point) >= len(best) and (path + "/").startswith(point.rstrip("/") + "/"):
            best, kind = point, name
    return kind


def _commit() -> str:
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, timeout=10
        )
    except OSError:
        return "unknown"
    return done.stdout.strip() or "unknown"
