"""Frames: eight bytes of header, then a performative and its payload."""

from typing import Final

from mypy_extensions import i64

from shardbus.codec.encoder import u32

AMQP_HEADER: Final = b"AMQP\x00\x01\x00\x00"
SASL_HEADER: Final = b"AMQP\x03\x01\x00\x00"
HEADER_SIZE: Final = 8
AMQP_TYPE: Final = 0
SASL_TYPE: Final = 1
# A frame without a body only shows that the sender is alive (part 2, 2.4.5).
HEARTBEAT: Final = b"\x00\x00\x00\x08\x02\x00\x00\x00"


def amqp_frame(channel: i64, body: bytes) -> bytes:
    """The frame around a performative (and payload) on a channel."""
    return u32(len(body) + 8) + channel_prefix(channel) + body


def sasl_frame(body: bytes) -> bytes:
    """The frame around a SASL performative."""
    return u32(len(body) + 8) + b"\x02\x01\x00\x00" + body


def channel_prefix(channel: i64) -> bytes:
    """What follows a frame's size: doff 2, type AMQP, channel."""
    return b"\x02\x00" + int(channel).to_bytes(2, "big")
