"""The frames between gateways and brokers as bytes: versioned, length-prefixed, bounded.

A frame is its length (4 bytes, of what follows), its kind (1 byte) and its fields. Integers are
big-endian, texts UTF-8; texts, bytes and lists carry their length in 4 bytes.
"""
# Compiled by mypyc.

from __future__ import annotations

import hmac
from struct import Struct
from typing import Final, final, get_args

from shardbus.broker.wire.commands import COMMANDS
from shardbus.broker.wire.derived import Codec, Codecs, Tagged
from shardbus.broker.wire.exchange import BY_HAND as ANSWERS_BY_HAND
from shardbus.broker.wire.exchange import decode_answer, encode_answer
from shardbus.broker.wire.fields import FRAGMENT, LENGTH, FieldReader, FieldWriter, WireError
from shardbus.broker.wire.frames import PROTOCOL_VERSION, Answered, Frame, Request
from shardbus.core.messages.command import Delivery, Received
from shardbus.stores.base.store import FragmentId

# The other side gets little memory before it has proved that it knows the secret.
STRANGER_FRAME_BYTES_MAX: Final = 4096
# A `Received` is split into frames of about this size; one delivery always fits.
RECEIVED_PART_BYTES: Final = 1024 * 1024

_REQUEST: Final = Struct(">qqHB")
_ANSWER: Final = Struct(">qBB")


def proof(secret: bytes, role: str, challenge: bytes, nonce: bytes) -> bytes:
    """Proves that `role` knows the secret, for the other side's challenge and its own nonce."""
    return hmac.digest(secret, role.encode() + b"\0" + challenge + nonce, "sha256")


@final
class FrameBuffer:
    """Splits the received bytes into frames, whatever pieces they arrive in."""

    def __init__(self, frame_bytes_max: int = STRANGER_FRAME_BYTES_MAX) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The complete frames, each without its length; WireError for an invalid length."""
        if not self._rest:
            return self._cut(data)
        self._rest += data
        if len(self._rest) < LENGTH.size or len(self._rest) < self._end_of(self._rest, 0):
            return []
        whole = bytes(self._rest)
        self._rest = bytearray()
        return self._cut(whole)

    def _cut(self, data: bytes) -> list[bytes]:
        frames: list[bytes] = []
        position, end = 0, len(data)
        while end - position >= LENGTH.size:
            frame_end = self._end_of(data, position)
            if frame_end > end:
                break
            frames.append(data[position + LENGTH.size : frame_end])
            position = frame_end
        if position < end:
            self._rest += data[position:]
        return frames

    def _end_of(self, data: bytes | bytearray, position: int) -> int:
        length: int = LENGTH.unpack_from(data, position)[0]
        if not 0 < length <= self.frame_bytes_max:
            raise WireError(f"a frame has {length} bytes; 1 to {self.frame_bytes_max} are allowed")
        return position + LENGTH.size + length


@final
class _RequestCodec(Codec):
    def put(self, writer: FieldWriter, value: object) -> None:
        assert isinstance(value, Request)
        entity_id, number = value.fragment
        head = writer.reserve()
        tag = COMMANDS.put(writer, value.command)
        writer.parts[head] = _REQUEST.pack(value.request_id, entity_id, number, tag)

    def take(self, reader: FieldReader) -> Request:
        request_id: int
        entity_id: int
        number: int
        tag: int
        start = reader.step(_REQUEST.size)
        request_id, entity_id, number, tag = _REQUEST.unpack_from(reader.buffer, start)
        return Request(request_id, FragmentId(entity_id, number), COMMANDS.take(tag, reader))


@final
class _AnswerCodec(Codec):
    def put(self, writer: FieldWriter, value: object) -> None:
        assert isinstance(value, Answered)
        head = writer.reserve()
        tag = encode_answer(writer, value.answer)
        writer.parts[head] = _ANSWER.pack(value.request_id, value.is_last, tag)

    def take(self, reader: FieldReader) -> Answered:
        request_id, is_last, tag = reader.i64(), reader.flag(), reader.u8()
        return Answered(request_id, decode_answer(tag, reader), is_last)


@final
class _FragmentCodec(Codec):
    def put(self, writer: FieldWriter, value: object) -> None:
        assert isinstance(value, FragmentId)
        writer.parts.append(FRAGMENT.pack(value.entity_id, value.number))

    def take(self, reader: FieldReader) -> FragmentId:
        return reader.fragment()


_REQUESTS: Final = _RequestCodec()
_ANSWERS: Final = _AnswerCodec()
BY_HAND: Final[dict[type[object], Codec]] = {
    **ANSWERS_BY_HAND,
    Request: _REQUESTS,
    Answered: _ANSWERS,
    FragmentId: _FragmentCodec(FRAGMENT.size),
}
FRAMES: Final = Tagged[Frame]("frame of kind", get_args(Frame), Codecs(BY_HAND))
_REQUESTED: Final = FRAMES.tags[Request]
_ANSWERED: Final = FRAMES.tags[Answered]


def encode(frame: Frame, version: int = PROTOCOL_VERSION) -> bytes:
    """The frame with its length; WireError when it is longer than FRAME_BYTES_MAX, and TooNew when
    this version of the protocol cannot say it.
    """
    writer = FieldWriter(version)
    if isinstance(frame, Request):
        _REQUESTS.put(writer, frame)
        return writer.frame(_REQUESTED)
    if isinstance(frame, Answered):
        _ANSWERS.put(writer, frame)
        return writer.frame(_ANSWERED)
    return writer.frame(FRAMES.put(writer, frame))


def decode(data: bytes, version: int = PROTOCOL_VERSION) -> Frame:
    """Decode a frame (without its length); WireError when it is invalid in this version."""
    reader = FieldReader(data, version)
    frame = FRAMES.take(reader.u8(), reader)
    reader.end()
    return frame


def received_parts(
    request_id: int, received: Received, version: int = PROTOCOL_VERSION
) -> list[bytes]:
    """A `Received` as several frames, so that no frame is too long."""
    parts: list[bytes] = []
    share: list[Delivery] = []
    size_bytes = 0
    for delivery in received.deliveries:
        length = len(delivery.payload or b"")
        if share and size_bytes + length > RECEIVED_PART_BYTES:
            part = Answered(request_id, Received(share, True), is_last=False)
            parts.append(encode(part, version))
            share = []
            size_bytes = 0
        share.append(delivery)
        size_bytes += length
    parts.append(encode(Answered(request_id, Received(share, received.has_more)), version))
    return parts
