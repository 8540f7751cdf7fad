"""The description of one message in chunks and in bulk reads.

A plain tuple, because one is made for every message that is read, many thousands at a time. Its
fields are named by the constants.
"""
# Compiled by mypyc.

from __future__ import annotations

from typing import Final

from xxhash import xxh3_64_intdigest

Record = tuple[int, int, int, int]
ENQUEUED_AT_MS: Final = 0
EXPIRES_AT_MS: Final = 1
SIZE_BYTES: Final = 2
DIGEST: Final = 3

HOLE: Final[Record] = (0, 0, 0, 0)
"""Stands for a number that no message of a chunk has. No payload has this size and checksum."""


def is_whole(payload: bytes, record: Record) -> bool:
    """Whether the payload matches the checksum of its record."""
    return len(payload) == record[SIZE_BYTES] and (
        int(xxh3_64_intdigest(payload)) == record[DIGEST]
    )
