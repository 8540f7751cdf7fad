"""Files of the first schema, written row by row as the first version wrote them."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from struct import pack

from xxhash import xxh3_64_intdigest

from shardbus.stores.base import FragmentId
from shardbus.stores.database import APPLICATION_ID

SCHEMA = Path(__file__).resolve().parents[2] / "src/shardbus/stores/schema/0001_chunks.sql"
FRAGMENT = FragmentId(7, 3)
LOCAL = 5
ENQUEUED_AT_MS = 1_700_000_000_000
EXPIRES_AT_MS = 1_800_000_000_000
WAITING = (b"one", b"two", b"three")
LETTER = b"dead"


def checksummed(data: bytes, seed: int = 0) -> bytes:
    return data + pack("<Q", xxh3_64_intdigest(data, seed=seed))


def head(key: int, payloads: tuple[bytes, ...]) -> bytes:
    records = b"".join(
        pack("<qqIQ", ENQUEUED_AT_MS, EXPIRES_AT_MS, len(one), xxh3_64_intdigest(one))
        for one in payloads
    )
    return checksummed(pack("<HHq", 1, len(payloads), key) + records)


def letter_state(key: int) -> bytes:
    """A dead letter with reason, without description, with a modified property."""
    start = pack("<HqBBqqIIiiI", 1, key, 1, 0, ENQUEUED_AT_MS, EXPIRES_AT_MS, 4, 11, 3, -1, 2)
    return checksummed(start + b"why" + b"\x00\xff")


def counters() -> bytes:
    """Four messages so far, three on the main line and a dead letter."""
    return checksummed(pack("<H8q", 1, 4, 3, 11, 1, 4, 0, 0, 0), seed=LOCAL)


def make(path: Path) -> None:
    """Three waiting messages and a dead letter."""
    first = LOCAL << 43 | 1
    letter = LOCAL << 43 | 4
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA page_size = 8192")
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.executescript(SCHEMA.read_text("utf-8"))
    connection.execute("PRAGMA user_version = 1")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(
        "INSERT INTO fragment VALUES (?, ?, ?, ?, 0)", (LOCAL, *FRAGMENT, counters())
    )
    body = b"".join(WAITING)
    connection.execute("INSERT INTO chunk VALUES (1, ?, ?)", (head(first, WAITING), body))
    connection.execute("INSERT INTO place VALUES (?, 1, 3, 11, ?, 0)", (first, EXPIRES_AT_MS))
    connection.execute("INSERT INTO chunk VALUES (2, ?, ?)", (head(letter, (LETTER,)), LETTER))
    row = (letter, letter_state(letter))
    connection.execute("INSERT INTO entry VALUES (?, 1, 0, 4, 0, 2, ?)", row)
    connection.close()
