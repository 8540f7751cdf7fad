"""WebSocket frames against the simplest model, and whatever else a client may send."""

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from shardbus.gateway.listening.websocket import CLOSE_MS_MAX, WebSocket
from shardbus.gateway.listening.websocket_frames import End, FrameReader
from tests.simulation.world import VirtualLoop
from tests.support.websocket_frames import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    PONG,
    TEXT,
    client_frame,
    server_frames,
)
from tests.unit.gateway.transport import FakeTransport

MASKS = st.binary(min_size=4, max_size=4)
PAYLOADS = st.one_of(
    st.binary(max_size=20),
    st.integers(0, 1500).map(lambda size: bytes(index * 7 & 0xFF for index in range(size))),
)
CUTS = st.lists(st.integers(0, 5000), max_size=20)
CONTROLS = st.lists(st.tuples(st.sampled_from([PING, PONG]), st.binary(max_size=125)), max_size=2)
Message = tuple[list[bytes], list[tuple[int, bytes]], bytes]
MESSAGES: st.SearchStrategy[Message] = st.tuples(
    st.lists(PAYLOADS, min_size=1, max_size=4), CONTROLS, MASKS
)
FRAMES = st.builds(
    client_frame,
    st.sampled_from([CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG, 0x3, 0xF, BINARY | 0x40]),
    PAYLOADS,
    mask=MASKS,
    is_final=st.booleans(),
)
HOSTILE = st.lists(st.one_of(FRAMES, st.binary(max_size=30)), max_size=12).map(b"".join)


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    ends = sorted({min(cut, len(data)) for cut in cuts} | {len(data)})
    starts = [0, *ends[:-1]]
    return [data[start:end] for start, end in zip(starts, ends, strict=True)]


def encoded(message: Message) -> bytes:
    """A message in its frames, with control frames after the first of them."""
    payloads, controls, mask = message
    frames = [
        client_frame(
            CONTINUATION if index else BINARY,
            payload,
            mask=mask,
            is_final=index == len(payloads) - 1,
        )
        for index, payload in enumerate(payloads)
    ]
    between = [client_frame(opcode, payload, mask=mask) for opcode, payload in controls]
    return b"".join([frames[0], *between, *frames[1:]])


@given(st.lists(MESSAGES, max_size=6), CUTS)
def test_the_stream_is_what_the_frames_hold_however_it_is_cut(
    messages: list[Message], cuts: list[int]
) -> None:
    """R32: an AMQP frame may span WebSocket frames and the other way round."""
    data = b"".join(map(encoded, messages))
    pings = [
        payload for _, controls, _ in messages for opcode, payload in controls if opcode == PING
    ]
    reader = FrameReader()

    stream = b"".join(map(reader.read, pieces(data, cuts)))

    assert stream == b"".join(payload for payloads, _, _ in messages for payload in payloads)
    assert reader.take_ping() == (pings[-1] if pings else None)
    assert reader.end is None


def outcome(data: bytes, cuts: list[int]) -> tuple[bytes, End | None, bytes | None]:
    reader = FrameReader(message_bytes_max=3000)
    stream = b"".join(map(reader.read, pieces(data, cuts)))
    return stream, reader.end, reader.take_ping()


@settings(max_examples=400)
@given(HOSTILE, CUTS)
def test_hostile_frames_end_the_same_way_however_they_are_cut(data: bytes, cuts: list[int]) -> None:
    assert outcome(data, cuts) == outcome(data, [])
    assert len(outcome(data, cuts)[0]) <= len(data)


@settings(max_examples=200)
@given(HOSTILE, CUTS, st.booleans(), st.booleans())
def test_whatever_a_client_sends_the_answer_is_frames_and_the_end_comes_once(
    data: bytes, cuts: list[int], is_closing: bool, is_secure: bool
) -> None:
    loop = VirtualLoop()
    inner = _Inner()

    async def main() -> FakeTransport:
        transport = FakeTransport(is_secure=is_secure)
        websocket = WebSocket(inner)
        transport.connect(websocket)
        for number, piece in enumerate(pieces(data, cuts)):
            if number == 1 and is_closing:
                inner.close()
            if not transport.is_closed:
                websocket.data_received(piece)
            await asyncio.sleep(0)
        inner.close()
        await asyncio.sleep(CLOSE_MS_MAX / 1000 + 1)
        return transport

    transport = loop.finish(loop.create_task(main()))

    frames, rest = server_frames(transport.written)
    assert rest == b""
    assert [frame.opcode for frame in frames].count(CLOSE) == 1
    assert frames[-1].opcode == CLOSE
    assert transport.is_closed
    assert inner.losses == 1


class _Inner(asyncio.Protocol):
    """Answers everything, as long as it is listened to."""

    def __init__(self) -> None:
        self.losses = 0
        self._transport: asyncio.BaseTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        assert isinstance(self._transport, asyncio.WriteTransport)
        self._transport.write(data)

    def connection_lost(self, error: Exception | None) -> None:
        self.losses += 1

    def close(self) -> None:
        assert self._transport is not None
        self._transport.close()
