"""RFC 6455 frames, the server's side, without I/O: a client's frames in, its byte stream out.

AMQP over WebSocket is one continuous stream, in which frame and message boundaries mean nothing. So
nothing is collected here. Each piece of a payload is unmasked and passed on as it comes, and a
client can make the server hold only an incomplete header and the payload of one control frame.
"""
# Compiled by mypyc.

from __future__ import annotations

from typing import Final, NamedTuple, final

MESSAGE_BYTES_MAX: Final = 16 * 1024 * 1024
"""The largest message, over all its frames; clients send one or a few AMQP frames in one."""
SENT_BYTES_MAX: Final = 65_535
"""The largest payload that we send, which needs no long header. aiohttp refuses messages over 4
MiB.
"""
CONTROL_BYTES_MAX: Final = 125

NORMAL: Final = 1000
PROTOCOL_ERROR: Final = 1002
UNSUPPORTED: Final = 1003
NO_CODE: Final = 1005
"""Never on the wire: stands for a Close frame without a code."""
NOT_UTF8: Final = 1007
TOO_BIG: Final = 1009

_CONTINUATION: Final = 0x0
_TEXT: Final = 0x1
_BINARY: Final = 0x2
_CLOSE: Final = 0x8
_PING: Final = 0x9
_PONG: Final = 0xA
_OPCODES: Final = frozenset({_CONTINUATION, _TEXT, _BINARY, _CLOSE, _PING, _PONG})
_FINAL: Final = 0x80
_RESERVED: Final = 0x70
_OPCODE: Final = 0x0F
_MASKED: Final = 0x80
_LENGTH: Final = 0x7F
_LENGTH_IN_2: Final = 126
_LENGTH_IN_8: Final = 127
_EXTENDED_BYTES: Final = {_LENGTH_IN_2: 2, _LENGTH_IN_8: 8}
_MASK_BYTES: Final = 4

# Measured: below this size one XOR of two large integers is faster, above it four translations.
_INTEGER_BYTES_MAX: Final = 512
_EVERY_BYTE: Final = int.from_bytes(bytes(range(256)), "little")
_XOR: Final = tuple(
    (_EVERY_BYTE ^ int.from_bytes(bytes([key]) * 256, "little")).to_bytes(256, "little")
    for key in range(256)
)


class End(NamedTuple):
    """How a client's stream ended: with its Close frame, or with a rule that it broke."""

    code: int
    reason: str
    is_failure: bool


@final
class FrameReader:
    """Reads the frames of one client. After `end` is set, the rest is ignored."""

    def __init__(self, *, message_bytes_max: int = MESSAGE_BYTES_MAX) -> None:
        self.end: End | None = None
        self._message_bytes_max = message_bytes_max
        self._header = b""
        self._is_in_frame = False
        self._opcode = _CONTINUATION
        self._is_final = True
        self._mask = b""
        self._left_bytes = 0
        self._is_in_message = False
        self._message_bytes = 0
        self._control = bytearray()
        self._ping: bytes | None = None

    def read(self, data: bytes) -> bytes:
        """The bytes that this input adds to the stream, however it is divided into pieces."""
        parts: list[bytes] = []
        piece = self._header + data if self._header else data
        self._header = b""
        position, size = 0, len(piece)
        while position < size and self.end is None:
            if not self._is_in_frame:
                header_bytes = self._start_frame(piece, position)
                if not header_bytes:
                    self._header = piece[position:]
                    break
                position += header_bytes
            payload = piece[position : position + self._left_bytes]
            position += len(payload)
            self._take(payload, parts)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def take_ping(self) -> bytes | None:
        """The payload of the last ping, once.

        "MAY elect to send a Pong frame for only the most recently processed Ping" (5.5.3): so a
        client that pings without reading cannot make the server hold more than one answer.
        """
        ping, self._ping = self._ping, None
        return ping

    def _start_frame(self, piece: bytes, start: int) -> int:
        """Read a frame's header; returns its size, or 0 when it is incomplete or invalid."""
        available = len(piece) - start
        if available < 2 or not self._is_allowed(piece[start], piece[start + 1]):
            return 0
        length = piece[start + 1] & _LENGTH
        extended_bytes = _EXTENDED_BYTES.get(length, 0)
        size = 2 + extended_bytes + _MASK_BYTES
        if available < size:
            return 0
        if extended_bytes:
            extended = int.from_bytes(piece[start + 2 : start + 2 + extended_bytes], "big")
            if extended < _LENGTH_IN_2 or (extended_bytes == 8 and extended < 1 << 16):
                return self._fail(
                    PROTOCOL_ERROR, "The length of a frame must have its shortest form."
                )
            length = extended
        if not self._is_affordable(length):
            return 0
        self._mask = piece[start + size - _MASK_BYTES : start + size]
        self._left_bytes = length
        self._is_in_frame = True
        return size

    def _is_allowed(self, first: int, second: int) -> bool:
        opcode = first & _OPCODE
        is_control = opcode >= _CLOSE
        if first & _RESERVED or opcode not in _OPCODES:
            self._fail(PROTOCOL_ERROR, "No extension was negotiated.")
        elif not second & _MASKED:
            self._fail(PROTOCOL_ERROR, "A client must mask its frames.")
        elif is_control and (not first & _FINAL or second & _LENGTH > CONTROL_BYTES_MAX):
            self._fail(PROTOCOL_ERROR, "A control frame must be short and in one piece.")
        elif opcode == _TEXT:
            self._fail(UNSUPPORTED, "AMQP needs binary messages.")
        elif not is_control and self._is_in_message != (opcode == _CONTINUATION):
            self._fail(PROTOCOL_ERROR, "A continuation frame must belong to an unfinished message.")
        else:
            self._opcode = opcode
            self._is_final = bool(first & _FINAL)
            return True
        return False

    def _is_affordable(self, length: int) -> bool:
        """Count a frame of a message; control frames between them do not count."""
        if self._opcode >= _CLOSE:
            self._control.clear()
            return True
        self._message_bytes = length + (self._message_bytes if self._is_in_message else 0)
        if self._message_bytes > self._message_bytes_max:
            self._fail(TOO_BIG, f"A message may have at most {self._message_bytes_max} bytes.")
            return False
        self._is_in_message = not self._is_final
        return True

    def _take(self, payload: bytes, parts: list[bytes]) -> None:
        if payload:
            plain = unmask(payload, self._mask)
            if self._opcode >= _CLOSE:
                self._control += plain
            else:
                parts.append(plain)
        self._left_bytes -= len(payload)
        if self._left_bytes:
            turn = len(payload) % _MASK_BYTES
            self._mask = self._mask[turn:] + self._mask[:turn]
            return
        self._is_in_frame = False
        if self._opcode == _PING:
            self._ping = bytes(self._control)
        elif self._opcode == _CLOSE:
            self.end = _end_of(bytes(self._control))

    def _fail(self, code: int, reason: str) -> int:
        self.end = End(code, reason, is_failure=True)
        return 0


def unmask(payload: bytes, mask: bytes) -> bytes:
    """Mask or unmask: XOR with four bytes over and over (5.3)."""
    size = len(payload)
    if size < _INTEGER_BYTES_MAX:
        key = int.from_bytes((mask * (size // _MASK_BYTES + 1))[:size], "little")
        return (int.from_bytes(payload, "little") ^ key).to_bytes(size, "little")
    plain = bytearray(payload)
    for turn in range(_MASK_BYTES):
        plain[turn::_MASK_BYTES] = plain[turn::_MASK_BYTES].translate(_XOR[mask[turn]])
    return bytes(plain)


def binary_frames(data: bytes | bytearray | memoryview) -> bytes:
    """A part of the stream, as messages of one frame each."""
    size = len(data)
    if size <= SENT_BYTES_MAX:
        return _header_of(_BINARY, size) + data
    parts: list[bytes | bytearray | memoryview] = []
    view = memoryview(data)
    for start in range(0, size, SENT_BYTES_MAX):
        part = view[start : start + SENT_BYTES_MAX]
        parts += (_header_of(_BINARY, len(part)), part)
    return b"".join(parts)


def pong_frame(payload: bytes) -> bytes:
    """The answer to a ping, which has the same payload."""
    return _header_of(_PONG, len(payload)) + payload


def close_frame(code: int, reason: str = "") -> bytes:
    """Our last frame."""
    payload = b"" if code == NO_CODE else code.to_bytes(2, "big") + reason.encode()
    assert len(payload) <= CONTROL_BYTES_MAX
    return _header_of(_CLOSE, len(payload)) + payload


def _header_of(opcode: int, size: int) -> bytes:
    if size < _LENGTH_IN_2:
        return bytes((_FINAL | opcode, size))
    assert size <= SENT_BYTES_MAX
    return bytes((_FINAL | opcode, _LENGTH_IN_2, size >> 8, size & 0xFF))


def _end_of(payload: bytes) -> End:
    """The contents of a Close frame (5.5.1, 7.4)."""
    if not payload:
        return End(NO_CODE, "", is_failure=False)
    code = int.from_bytes(payload[:2], "big")
    if len(payload) == 1 or not _may_be_sent(code):
        return End(PROTOCOL_ERROR, "The Close frame has an invalid status code.", is_failure=True)
    try:
        return End(code, payload[2:].decode(), is_failure=False)
    except UnicodeDecodeError:
        return End(NOT_UTF8, "The reason of the Close frame is not UTF-8.", is_failure=True)


def _may_be_sent(code: int) -> bool:
    return 1000 <= code <= 1003 or 1007 <= code <= 1014 or 3000 <= code <= 4999
