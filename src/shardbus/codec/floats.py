"""Floating point numbers as their IEEE 754 bytes, big end first."""

from struct import Struct
from typing import Final

_FLOAT: Final = Struct(">f")
_DOUBLE: Final = Struct(">d")


def read_float(content: bytes) -> float:
    """The number in four bytes."""
    return _first(_FLOAT.unpack(content))


def read_double(content: bytes) -> float:
    """The number in eight bytes."""
    return _first(_DOUBLE.unpack(content))


def write_float(value: float) -> bytes:
    """Four bytes; OverflowError when the number does not fit."""
    return _FLOAT.pack(value)


def write_double(value: float) -> bytes:
    """Eight bytes."""
    return _DOUBLE.pack(value)


def _first(fields: tuple[object, ...]) -> float:
    number = fields[0]
    assert isinstance(number, float)
    return number
