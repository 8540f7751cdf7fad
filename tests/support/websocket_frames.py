"""The client's side of RFC 6455, written for tests in the plainest way: a byte at a time."""

from __future__ import annotations

from typing import Final, NamedTuple

CONTINUATION: Final = 0x0
TEXT: Final = 0x1
BINARY: Final = 0x2
CLOSE: Final = 0x8
PING: Final = 0x9
PONG: Final = 0xA

MASK: Final = bytes([0x37, 0xFA, 0x21, 0x3D])
KEY: Final = "dGhlIHNhbXBsZSBub25jZQ=="
ACCEPT: Final = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
"""The key and its answer from section 1.3 of the standard."""


class Frame(NamedTuple):
    """What a server sent."""

    opcode: int
    payload: bytes
    is_final: bool = True


def client_frame(
    opcode: int, payload: bytes = b"", *, mask: bytes = MASK, is_final: bool = True
) -> bytes:
    """A masked frame as a client sends it."""
    first = bytes([opcode | (0x80 if is_final else 0)])
    masked = bytes(byte ^ mask[index % 4] for index, byte in enumerate(payload))
    return first + _length(len(payload), 0x80) + mask + masked


def close_payload(code: int, reason: str = "") -> bytes:
    return code.to_bytes(2, "big") + reason.encode()


def server_frames(data: bytes) -> tuple[list[Frame], bytes]:
    """The whole frames at the start of what a server sent, and the rest."""
    frames: list[Frame] = []
    rest = data
    while len(rest) >= 2:
        assert not rest[1] & 0x80, "a server must not mask"
        length, size = rest[1] & 0x7F, 2
        if length >= 126:
            size = 4 if length == 126 else 10
            length = int.from_bytes(rest[2:size], "big")
        if len(rest) < size + length:
            break
        payload = rest[size : size + length]
        frames.append(Frame(rest[0] & 0x0F, payload, bool(rest[0] & 0x80)))
        rest = rest[size + length :]
    return frames, rest


def upgrade_request(
    path: str = "/$servicebus/websocket", *, without: str = "", **changed: str
) -> bytes:
    """The request that opens a WebSocket; headers are named with underscores."""
    headers = {
        "Host": "localhost",
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Key": KEY,
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Protocol": "AMQPWSB10",
    }
    headers.update({name.replace("_", "-"): value for name, value in changed.items()})
    headers.pop(without, None)
    lines = [f"GET {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode()


def _length(size: int, flag: int) -> bytes:
    if size < 126:
        return bytes([flag | size])
    if size < 1 << 16:
        return bytes([flag | 126]) + size.to_bytes(2, "big")
    return bytes([flag | 127]) + size.to_bytes(8, "big")
