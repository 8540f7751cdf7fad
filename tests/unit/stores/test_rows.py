"""The rows of a commit, and the view that takes them."""

import re
import sqlite3
from contextlib import closing
from importlib import resources
from pathlib import Path

from shardbus.core.message import DEFERRED, Entry
from shardbus.stores.chunked.directory import Chunk
from shardbus.stores.chunked.rows import COLUMNS, KINDS, Rows
from shardbus.stores.sqlite.database import prepare

SCHEMA = resources.files("shardbus.stores.sqlite").joinpath("schema/store.sql").read_text("utf-8")


def columns_of(path: Path) -> list[str]:
    prepare(path)
    with closing(sqlite3.connect(path)) as connection:
        return [row[1] for row in connection.execute("PRAGMA table_info(work)")]


def test_every_kind_of_row_has_a_name_of_its_own_and_a_trigger() -> None:
    assert len(set(KINDS.values())) == len(KINDS)
    assert set(re.findall(r"\$(\w+)", SCHEMA)) == set(KINDS)


def test_cells_are_in_the_columns_that_are_called_so(tmp_path: Path) -> None:
    columns = columns_of(tmp_path / "store.db")
    assert len(columns) == COLUMNS
    chunk = Chunk(7, 70, 3, 30, 300, True)
    entry = Entry(5, None, 4, enqueued_at_ms=1, expires_at_ms=9, line=0, state=DEFERRED)
    rows = Rows()
    rows.append(chunk, b"head", b"body")
    rows.move(71, entry, number=8, size_bytes=4, head=b"h", chunk=7, part=0, start=26)
    rows.move(71, entry, number=8, size_bytes=4, head=b"h", chunk=7, part=17, start=26)

    found = [
        {
            name: cell
            for name, cell in zip(columns, rows.cells[at : at + COLUMNS], strict=True)
            if cell is not None and name != "data"
        }
        for at in range(0, len(rows.cells), COLUMNS)
    ]

    assert rows.count() == 3
    appended, moved, from_part = found
    assert appended == {
        "kind": KINDS["APPEND"],
        "key": 70,
        "number": 7,
        "count": 3,
        "size": 30,
        "due_at": 300,
        "flag": 1,
        "head": b"head",
        "body": b"body",
    }
    assert moved == {
        "kind": KINDS["MOVE"],
        "key": 71,
        "number": 8,
        "source": 7,
        "start": 26,
        "size": 4,
        "due_at": 9,
        "line": 0,
        "state": DEFERRED,
        "head": b"h",
    }
    assert from_part == {**moved, "kind": KINDS["MOVE_PART"], "source": 17}
