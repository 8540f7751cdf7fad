"""The head of a stored chunk, which describes its messages."""
# Compiled by mypyc.

from __future__ import annotations

from typing import final

from shardbus.stores.base.record import HOLE, SIZE_BYTES
from shardbus.stores.chunked.chunk import is_shared, unpack_head, unpack_spots


@final
class Head:
    """The contents of a stored head; `records` is None when it is damaged."""

    def __init__(self, first: int, data: bytes) -> None:
        self.records = unpack_head(first, data)
        self._data = data

    def has(self, position: int) -> bool:
        records = self.records
        return records is not None and position < len(records) and records[position] != HOLE

    def place(self, position: int) -> tuple[int, int]:
        """The part (0: the chunk's own body) and where in it the payload of a message begins."""
        if is_shared(self._data):
            spots, parts = unpack_spots(self._data)
            for at, part, start in spots:
                if at == position and part < len(parts):
                    return parts[part], start
        offset = 0
        for record in (self.records or [])[:position]:
            offset += record[SIZE_BYTES]
        return 0, offset
