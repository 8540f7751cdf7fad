"""AMQP values to bytes and back."""

from shardbus.amqp.decoder import Reader
from shardbus.amqp.encoder import encode
from shardbus.amqp.types import Value

__all__ = ["decode", "encode", "skip"]


def decode(buffer: bytes, offset: int = 0) -> tuple[Value, int]:
    """The value at `offset` and the offset after it. Raises DecodeError."""
    reader = Reader(buffer, offset, len(buffer))
    value = reader.value()
    return value, reader.position


def skip(buffer: bytes, offset: int = 0) -> int:
    """The offset after the value at `offset`; contents of containers are not looked at."""
    reader = Reader(buffer, offset, len(buffer))
    reader.skip()
    return reader.position
