"""Encodes AMQP values to bytes and decodes them."""

from shardbus.codec.decoder import ValueReader
from shardbus.codec.encoder import encode
from shardbus.codec.types import Value

__all__ = ["decode", "encode", "skip"]


def decode(buffer: bytes, offset: int = 0) -> tuple[Value, int]:
    """The value at `offset` and the offset after it. Raises DecodeError."""
    reader = ValueReader(buffer, offset, len(buffer))
    value = reader.value()
    return value, reader.position


def skip(buffer: bytes, offset: int = 0) -> int:
    """The offset after the value at `offset`; the contents of containers are not examined."""
    reader = ValueReader(buffer, offset, len(buffer))
    reader.skip()
    return reader.position
