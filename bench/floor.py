"""What no durable server can beat on this machine: one fsync, and SQLite's own insert rate."""

import os
import sqlite3
import time
from pathlib import Path
from typing import Final

_APPEND_BYTES: Final = 4096
_ROW_BYTES: Final = 1024
_ROWS_PER_COMMIT: Final = 100


def fsync_latencies_us(directory: Path, count: int) -> list[float]:
    """The time of each of `count` appends of 4 KB with their fdatasync."""
    block = b"x" * _APPEND_BYTES
    latencies_us: list[float] = []
    descriptor = os.open(directory / "fsync.probe", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    try:
        for _ in range(count):
            start_ns = time.perf_counter_ns()
            os.write(descriptor, block)
            os.fdatasync(descriptor)
            latencies_us.append((time.perf_counter_ns() - start_ns) / 1000)
    finally:
        os.close(descriptor)
    return latencies_us


def sqlite_rate(directory: Path, rows: int) -> float:
    """Rows of 1 KB per second, 100 to a commit, each commit fsynced (WAL, synchronous=FULL)."""
    path = directory / "floor.db"
    path.unlink(missing_ok=True)
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("CREATE TABLE message (id INTEGER PRIMARY KEY, body BLOB)")
        start_s = time.perf_counter()
        for first in range(0, rows, _ROWS_PER_COMMIT):
            _insert(connection, first)
        return rows / (time.perf_counter() - start_s)
    finally:
        connection.close()


def _insert(connection: sqlite3.Connection, first: int) -> None:
    body = b"x" * _ROW_BYTES
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany(
        "INSERT INTO message VALUES (?, ?)",
        [(number, body) for number in range(first, first + _ROWS_PER_COMMIT)],
    )
    connection.execute("COMMIT")
