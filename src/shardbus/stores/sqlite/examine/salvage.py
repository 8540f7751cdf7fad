"""Reads a database that may be damaged: everything readable, and where something is not."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final, final

KEY_MAX: Final = (1 << 63) - 1
# The number of gaps at which a table is given up; each may be a page with many rows.
GAPS_MAX: Final = 1_000

Cell = int | str | bytes | float | None
Row = tuple[Cell, ...]


def open_unchanged(path: Path) -> sqlite3.Connection:
    """A connection that changes neither the file nor its log, even when it is closed."""
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)


class Unreadable(Exception):
    """SQLite cannot read a page on the way to a row."""


@final
class Salvage:
    """Reads tables row by row and skips pages that SQLite cannot read.

    `unreadable` says where: a table, and the keys between which rows may be missing. `is_torn` is
    true as soon as anything could not be read.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.unreadable: list[str] = []
        self.is_torn = False

    def rows(self, table: str, key: str, columns: str) -> Iterator[Row]:
        """The readable rows of a table in the order of its integer key, which comes first."""
        sql = f"SELECT {key}, {columns} FROM {table} WHERE {key} >= ? ORDER BY {key}"
        start = -KEY_MAX
        for _ in range(GAPS_MAX):
            try:
                for row in self._connection.execute(sql, (start,)):
                    yield row
                    start = integer(row[0]) + 1
                return
            except sqlite3.Error as error:
                self.is_torn = True
                resumed = self._after_damage(table, key, start)
                self.unreadable.append(
                    f"table {table} from {key} {max(start, 0)} "
                    + ("on" if resumed is None else f"to {resumed - 1}")
                    + f" ({error})"
                )
                if resumed is None:
                    return
                start = resumed

    def row(self, table: str, key: str, columns: str, value: int) -> Row | None:
        """One row by its key, None when there is none; Unreadable when that cannot be
        determined.
        """
        try:
            sql = f"SELECT {columns} FROM {table} WHERE {key} = ?"
            found: Row | None = self._connection.execute(sql, (value,)).fetchone()
        except sqlite3.Error as error:
            self.is_torn = True
            raise Unreadable(str(error)) from error
        return found

    def _after_damage(self, table: str, key: str, start: int) -> int | None:
        """The first key from which reading works again; None when it does not."""
        base, step = max(start, 0), 1
        while not self._is_readable(table, key, base + step):
            step *= 2
            if base + step > KEY_MAX:
                return None
        low, high = base + step // 2, base + step
        while high - low > 1:
            middle = (low + high) // 2
            if self._is_readable(table, key, middle):
                high = middle
            else:
                low = middle
        return high

    def _is_readable(self, table: str, key: str, start: int) -> bool:
        try:
            sql = f"SELECT {key} FROM {table} WHERE {key} >= ? ORDER BY {key} LIMIT 1"
            return self._connection.execute(sql, (start,)).fetchone() is not None
        except sqlite3.Error:
            return False


def integer(cell: Cell) -> int:
    """The integer in a cell; -1 for any other type."""
    return cell if isinstance(cell, int) else -1


def blob(cell: Cell) -> bytes:
    """The bytes in a cell; empty for any other type."""
    return cell if isinstance(cell, bytes) else b""
