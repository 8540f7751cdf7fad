"""Counts what a SQLite store does, in steps of SQLite's machine."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

from shardbus.stores.sqlite.database import open_reader, open_writer

STEP = 10


class StepMeter:
    """Counts the steps of the connections that it opens, and keeps the statements of readers."""

    def __init__(self) -> None:
        self.ticks = 0
        self.statements: list[str] = []

    def open_reader(self, path: Path) -> sqlite3.Connection:
        connection = self._metered(open_reader(path))
        connection.set_trace_callback(self.statements.append)
        return connection

    def open_writer(self, path: Path, durability: str, reserve_bytes: int) -> sqlite3.Connection:
        return self._metered(open_writer(path, durability, reserve_bytes))

    def steps(self, action: Callable[[], object]) -> int:
        before = self.ticks
        action()
        return (self.ticks - before) * STEP

    def _metered(self, connection: sqlite3.Connection) -> sqlite3.Connection:
        connection.set_progress_handler(self._tick, STEP)
        return connection

    def _tick(self) -> int:
        self.ticks += 1
        return 0
