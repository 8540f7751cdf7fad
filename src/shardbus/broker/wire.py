"""The frames between gateways and brokers as bytes: versioned, length-prefixed, bounded.

A frame is its length (4 bytes, of what follows), its kind (1 byte) and its fields. Integers are
big-endian, texts UTF-8; texts, bytes and lists carry their length in 4 bytes.
"""

from __future__ import annotations

import hmac
from struct import Struct
from typing import Final, final

from shardbus.broker.exchange import decode_answer, decode_page, encode_answer, encode_page
from shardbus.broker.fields import FRAGMENT, LENGTH, U16, Reader, WireError, Writer
from shardbus.broker.frames import (
    FRAGMENT_STATES,
    Answered,
    Ask,
    Beat,
    Browse,
    Browsed,
    Fence,
    Fenced,
    Frame,
    Hello,
    Listed,
    ListSessions,
    Open,
    Prove,
    Reject,
    Request,
    State,
    Told,
    Unwatch,
    Watch,
    Welcome,
    Woken,
)
from shardbus.broker.wire_commands import checked_line, decode_command, encode_command
from shardbus.core.command import Delivery, Received
from shardbus.core.message import SESSIONS
from shardbus.stores.base import FragmentId

# Before the other side has proved that it knows the secret it gets no memory to fill.
STRANGER_FRAME_BYTES_MAX: Final = 4096
# A `Received` is cut into frames of about this size; one delivery always fits.
RECEIVED_PART_BYTES: Final = 1024 * 1024

NONCE_BYTES: Final = 32
PROOF_BYTES: Final = 32

_REQUEST: Final = Struct(">qqHB")
_ANSWER: Final = Struct(">qBB")
_BROWSE: Final = Struct(">qqHBqII")
_LIST: Final = Struct(">qqHqqI")
_LINE: Final = Struct(">qHB")
_PAIR: Final = Struct(">qq")

_HELLO: Final = 1
_PROVE: Final = 2
_WELCOME: Final = 3
_REJECT: Final = 4
_BEAT: Final = 5
_OPEN: Final = 6
_REQUESTED: Final = 7
_ANSWERED: Final = 8
_BROWSE_KIND: Final = 9
_BROWSED: Final = 10
_WATCH: Final = 11
_UNWATCH: Final = 12
_WOKEN: Final = 13
_STATE: Final = 14
_ASK: Final = 15
_TOLD: Final = 16
_FENCE: Final = 17
_FENCED: Final = 18
_LIST_SESSIONS: Final = 19
_LISTED: Final = 20


def proof(secret: bytes, role: str, challenge: bytes, nonce: bytes) -> bytes:
    """Shows that `role` knows the secret, for the other side's challenge and its own nonce."""
    return hmac.digest(secret, role.encode() + b"\0" + challenge + nonce, "sha256")


@final
class FrameBuffer:
    """Cuts what arrives into frames, whatever pieces it arrives in."""

    def __init__(self, frame_bytes_max: int = STRANGER_FRAME_BYTES_MAX) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The frames that are whole now, each without its length; WireError for a bad length."""
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
            raise WireError(f"a frame of {length} bytes; 1 to {self.frame_bytes_max} are allowed")
        return position + LENGTH.size + length


def encode(frame: Frame) -> bytes:
    """The frame with its length; WireError when it is longer than FRAME_BYTES_MAX."""
    writer = Writer()
    kind = _encode_request(writer, frame)
    if kind == 0:
        kind = _encode_reply(writer, frame)
    if kind == 0:
        kind = _encode_rest(writer, frame)
    return writer.frame(kind)


def decode(data: bytes) -> Frame:
    """What a frame (without its length) says; WireError when it says nothing we know."""
    reader = Reader(data)
    frame = _decode(reader.u8(), reader)
    reader.end()
    return frame


def received_parts(request_id: int, received: Received) -> list[bytes]:
    """A `Received` as the frames that it takes, so that no frame is too long."""
    parts: list[bytes] = []
    share: list[Delivery] = []
    size_bytes = 0
    for delivery in received.deliveries:
        length = len(delivery.payload or b"")
        if share and size_bytes + length > RECEIVED_PART_BYTES:
            parts.append(encode(Answered(request_id, Received(share, True), is_last=False)))
            share = []
            size_bytes = 0
        share.append(delivery)
        size_bytes += length
    parts.append(encode(Answered(request_id, Received(share, received.has_more))))
    return parts


# From gateway to broker.


def _encode_request(writer: Writer, frame: Frame) -> int:
    """The kind of a frame that gateways send often; 0 for any other."""
    if isinstance(frame, Request):
        entity_id, number = frame.fragment
        head = writer.reserve()
        tag = encode_command(writer, frame.command)
        writer.parts[head] = _REQUEST.pack(frame.request_id, entity_id, number, tag)
        return _REQUESTED
    if isinstance(frame, Browse):
        entity_id, number = frame.fragment
        fields = (frame.line, frame.start, frame.count_max, frame.bytes_max)
        writer.parts.append(_BROWSE.pack(frame.request_id, entity_id, number, *fields))
        writer.maybe_text(frame.session_id)
        return _BROWSE_KIND
    if isinstance(frame, Watch):
        return _encode_line(writer, frame, _WATCH)
    if isinstance(frame, Unwatch):
        return _encode_line(writer, frame, _UNWATCH)
    if isinstance(frame, Open):
        writer.text(frame.entity)
        writer.count(len(frame.numbers))
        for number in frame.numbers:
            writer.parts.append(U16.pack(number))
        return _OPEN
    return 0


def _encode_line(writer: Writer, frame: Watch | Unwatch | Woken, kind: int) -> int:
    entity_id, number = frame.fragment
    writer.parts.append(_LINE.pack(entity_id, number, frame.line))
    writer.data(frame.session)
    return kind


def _decode_request(reader: Reader) -> Request:
    request_id: int
    entity_id: int
    number: int
    tag: int
    start = reader.step(_REQUEST.size)
    request_id, entity_id, number, tag = _REQUEST.unpack_from(reader.buffer, start)
    return Request(request_id, FragmentId(entity_id, number), decode_command(tag, reader))


# From broker to gateway.


def _encode_reply(writer: Writer, frame: Frame) -> int:
    """The kind of a frame that brokers send often; 0 for any other."""
    if isinstance(frame, Answered):
        head = writer.reserve()
        tag = encode_answer(writer, frame.answer)
        writer.parts[head] = _ANSWER.pack(frame.request_id, frame.is_last, tag)
        return _ANSWERED
    if isinstance(frame, Woken):
        return _encode_line(writer, frame, _WOKEN)
    if isinstance(frame, Browsed):
        writer.i64(frame.request_id)
        encode_page(writer, frame.page)
        return _BROWSED
    if isinstance(frame, State):
        entity_id, number = frame.fragment
        writer.parts.append(FRAGMENT.pack(entity_id, number))
        writer.u8(FRAGMENT_STATES.index(frame.state))
        writer.text(frame.reason)
        return _STATE
    return 0


def _decode_answered(reader: Reader) -> Answered:
    request_id, is_last, tag = reader.i64(), reader.flag(), reader.u8()
    return Answered(request_id, decode_answer(tag, reader), is_last)


# The rest, and finding out which frame it is.


def _encode_rest(writer: Writer, frame: Frame) -> int:
    if isinstance(frame, Beat):
        writer.i64(frame.catalogue_version)
        return _BEAT
    if isinstance(frame, Ask | Told):
        writer.i64(frame.request_id)
        writer.text(frame.document)
        return _ASK if isinstance(frame, Ask) else _TOLD
    if isinstance(frame, Fence):
        writer.i64(frame.number)
        return _FENCE
    if isinstance(frame, Fenced):
        writer.parts.append(_PAIR.pack(frame.number, frame.given_up_through))
        return _FENCED
    if isinstance(frame, ListSessions):
        entity_id, number = frame.fragment
        fields = (frame.updated_after_ms, frame.skip, frame.count_max)
        writer.parts.append(_LIST.pack(frame.request_id, entity_id, number, *fields))
        return _LIST_SESSIONS
    if isinstance(frame, Listed):
        writer.i64(frame.request_id)
        writer.texts(frame.session_ids)
        return _LISTED
    return _encode_greeting(writer, frame)


def _encode_greeting(writer: Writer, frame: Frame) -> int:
    if isinstance(frame, Hello | Prove):
        writer.parts.append(U16.pack(frame.version))
        writer.text(frame.name)
        writer.fixed(frame.nonce, NONCE_BYTES)
        if isinstance(frame, Hello):
            writer.text(frame.namespace_id)
            return _HELLO
        writer.fixed(frame.proof, PROOF_BYTES)
        return _PROVE
    if isinstance(frame, Welcome):
        writer.fixed(frame.proof, PROOF_BYTES)
        return _WELCOME
    assert isinstance(frame, Reject)
    writer.text(frame.reason)
    return _REJECT


def _decode(kind: int, reader: Reader) -> Frame:
    if kind == _REQUESTED:
        return _decode_request(reader)
    if kind == _ANSWERED:
        return _decode_answered(reader)
    if kind == _WATCH:
        return Watch(reader.fragment(), _checked_watch(reader.u8()), reader.data())
    if kind == _UNWATCH:
        return Unwatch(reader.fragment(), _checked_watch(reader.u8()), reader.data())
    if kind == _WOKEN:
        return Woken(reader.fragment(), _checked_watch(reader.u8()), reader.data())
    if kind == _BEAT:
        return Beat(reader.i64())
    if kind == _BROWSED:
        return Browsed(reader.i64(), decode_page(reader))
    return _decode_rare(kind, reader)


def _decode_rare(kind: int, reader: Reader) -> Frame:
    if kind == _BROWSE_KIND:
        return _decode_browse(reader)
    if kind == _OPEN:
        return Open(reader.text(), [reader.u16() for _ in range(reader.count(U16.size))])
    if kind == _STATE:
        fragment, state = reader.fragment(), reader.u8()
        if state >= len(FRAGMENT_STATES):
            raise WireError(f"there is no state {state}")
        return State(fragment, FRAGMENT_STATES[state], reader.text())
    if kind == _ASK:
        return Ask(reader.i64(), reader.text())
    if kind == _TOLD:
        return Told(reader.i64(), reader.text())
    if kind == _FENCE:
        return Fence(reader.i64())
    if kind == _FENCED:
        return Fenced(reader.i64(), reader.i64())
    if kind == _LIST_SESSIONS:
        return _decode_list(reader)
    if kind == _LISTED:
        return Listed(reader.i64(), reader.texts())
    return _decode_greeting(kind, reader)


def _decode_browse(reader: Reader) -> Browse:
    request_id, fragment, line = reader.i64(), reader.fragment(), checked_line(reader.u8())
    start, count_max, bytes_max = reader.i64(), reader.u32(), reader.u32()
    return Browse(
        request_id,
        fragment,
        line,
        start=start,
        count_max=count_max,
        bytes_max=bytes_max,
        session_id=reader.maybe_text(),
    )


def _decode_list(reader: Reader) -> ListSessions:
    request_id, fragment, updated_after_ms = reader.i64(), reader.fragment(), reader.i64()
    return ListSessions(
        request_id,
        fragment,
        updated_after_ms=updated_after_ms,
        skip=reader.i64(),
        count_max=reader.u32(),
    )


def _checked_watch(value: int) -> int:
    return value if value == SESSIONS else checked_line(value)


def _decode_greeting(kind: int, reader: Reader) -> Frame:
    if kind == _HELLO:
        return Hello(reader.u16(), reader.text(), reader.fixed(NONCE_BYTES), reader.text())
    if kind == _PROVE:
        version, name = reader.u16(), reader.text()
        return Prove(version, name, reader.fixed(NONCE_BYTES), reader.fixed(PROOF_BYTES))
    if kind == _WELCOME:
        return Welcome(reader.fixed(PROOF_BYTES))
    if kind == _REJECT:
        return Reject(reader.text())
    raise WireError(f"there is no frame of kind {kind}")
