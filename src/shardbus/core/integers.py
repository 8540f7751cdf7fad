"""Lists of integers as bytes, for the records that fragments keep."""

from __future__ import annotations

from typing import Final

_INTEGER_BYTES: Final = 8


def pack_integers(values: list[int]) -> bytes:
    return b"".join([value.to_bytes(_INTEGER_BYTES, "big", signed=True) for value in values])


def unpack_integers(data: bytes) -> list[int]:
    """Reads at least two integers; ValueError for damaged bytes."""
    if len(data) % _INTEGER_BYTES != 0 or len(data) < 2 * _INTEGER_BYTES:
        raise ValueError("the record of transfers is damaged")
    return [
        int.from_bytes(data[at : at + _INTEGER_BYTES], "big", signed=True)
        for at in range(0, len(data), _INTEGER_BYTES)
    ]
