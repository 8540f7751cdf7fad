"""Frames of a client in, its byte stream out; ours in one frame each."""

import pytest

from shardbus.gateway.listening.websocket_frames import (
    MESSAGE_BYTES_MAX,
    NO_CODE,
    NORMAL,
    NOT_UTF8,
    PROTOCOL_ERROR,
    SENT_BYTES_MAX,
    TOO_BIG,
    UNSUPPORTED,
    End,
    FrameReader,
    binary_frames,
    close_frame,
    pong_frame,
    unmask,
)
from tests.support.websocket_frames import (
    BINARY,
    CLOSE,
    CONTINUATION,
    MASK,
    PING,
    PONG,
    TEXT,
    Frame,
    client_frame,
    close_payload,
    server_frames,
)


def test_the_example_of_the_standard_is_understood() -> None:
    """Section 5.7: a masked "Hello", here as binary."""
    reader = FrameReader()

    assert reader.read(bytes.fromhex("8285 37fa213d 7f9f4d5158")) == b"Hello"
    assert reader.end is None


@pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 511, 512, 513, 65_535, 65_536, 300_000])
def test_a_payload_of_any_size_comes_out_as_it_was(size: int) -> None:
    payload = bytes(index * 7 & 0xFF for index in range(size))
    reader = FrameReader()

    assert reader.read(client_frame(BINARY, payload)) == payload
    assert reader.read(client_frame(BINARY, b"next")) == b"next"


def test_a_stream_in_single_bytes_is_the_same_stream() -> None:
    data = client_frame(BINARY, b"a" * 700) + client_frame(PING, b"?") + client_frame(BINARY, b"b")
    reader = FrameReader()

    received = b"".join(reader.read(bytes([byte])) for byte in data)

    assert received == b"a" * 700 + b"b"
    assert reader.take_ping() == b"?"


def test_several_frames_in_one_piece_are_one_part_of_the_stream() -> None:
    reader = FrameReader()

    assert reader.read(client_frame(BINARY, b"one") + client_frame(BINARY, b"two")) == b"onetwo"


def test_the_frames_of_a_message_are_joined_around_control_frames() -> None:
    data = [
        client_frame(BINARY, b"one ", is_final=False),
        client_frame(PING, b"still there?"),
        client_frame(CONTINUATION, b"two ", is_final=False),
        client_frame(PONG, b"unasked"),
        client_frame(CONTINUATION, b"three"),
        client_frame(BINARY, b"; next"),
    ]
    reader = FrameReader()

    assert reader.read(b"".join(data)) == b"one two three; next"
    assert reader.take_ping() == b"still there?"
    assert reader.end is None


def test_only_the_last_ping_is_kept_and_it_is_given_once() -> None:
    reader = FrameReader()

    for number in range(1000):
        reader.read(client_frame(PING, b"%d" % number))

    assert reader.take_ping() == b"999"
    assert reader.take_ping() is None


BROKEN = [
    (bytes([0x82, 0x05]) + b"Hello", PROTOCOL_ERROR, "mask"),
    (client_frame(BINARY | 0x40, b"x"), PROTOCOL_ERROR, "extension"),
    (client_frame(BINARY | 0x10, b"x"), PROTOCOL_ERROR, "extension"),
    (client_frame(0x3, b"x"), PROTOCOL_ERROR, "extension"),
    (client_frame(0xB, b"x"), PROTOCOL_ERROR, "extension"),
    (client_frame(TEXT, b"x"), UNSUPPORTED, "binary"),
    (client_frame(CONTINUATION, b"x"), PROTOCOL_ERROR, "continuation"),
    (client_frame(PING, b"x", is_final=False), PROTOCOL_ERROR, "control"),
    (client_frame(PING, b"x" * 126), PROTOCOL_ERROR, "control"),
    (bytes([0x82, 0xFE, 0, 125]) + MASK, PROTOCOL_ERROR, "short"),
    (bytes([0x82, 0xFF]) + (65_535).to_bytes(8, "big") + MASK, PROTOCOL_ERROR, "short"),
    (bytes([0x82, 0xFF]) + (1 << 63).to_bytes(8, "big") + MASK, TOO_BIG, "bytes"),
    (
        bytes([0x82, 0xFF]) + (MESSAGE_BYTES_MAX + 1).to_bytes(8, "big") + MASK,
        TOO_BIG,
        f"{MESSAGE_BYTES_MAX} bytes",
    ),
    (client_frame(CLOSE, b"x"), PROTOCOL_ERROR, "status code"),
    (client_frame(CLOSE, close_payload(999)), PROTOCOL_ERROR, "status code"),
    (client_frame(CLOSE, close_payload(1005)), PROTOCOL_ERROR, "status code"),
    (client_frame(CLOSE, close_payload(1006)), PROTOCOL_ERROR, "status code"),
    (client_frame(CLOSE, close_payload(1015)), PROTOCOL_ERROR, "status code"),
    (client_frame(CLOSE, close_payload(2999)), PROTOCOL_ERROR, "status code"),
    (client_frame(CLOSE, close_payload(5000)), PROTOCOL_ERROR, "status code"),
    (client_frame(CLOSE, close_payload(1000) + b"\xff"), NOT_UTF8, "UTF-8"),
]


@pytest.mark.parametrize(("data", "code", "word"), BROKEN)
@pytest.mark.parametrize("piece_bytes", [1, 1_000_000])
def test_a_broken_rule_ends_the_stream_and_keeps_what_came_before(
    data: bytes, code: int, word: str, piece_bytes: int
) -> None:
    reader = FrameReader()
    whole = client_frame(BINARY, b"before") + data + client_frame(BINARY, b"after")

    received = b"".join(
        reader.read(whole[start : start + piece_bytes])
        for start in range(0, len(whole), piece_bytes)
    )

    assert received == b"before"
    assert reader.end is not None
    assert reader.end.is_failure
    assert reader.end.code == code
    assert word in reader.end.reason
    assert len(reader.end.reason) <= 123


def test_a_new_message_before_the_last_one_ended_breaks_a_rule() -> None:
    reader = FrameReader()

    reader.read(client_frame(BINARY, b"x", is_final=False) + client_frame(BINARY, b"y"))

    assert reader.end is not None
    assert reader.end.code == PROTOCOL_ERROR


def test_the_size_of_a_message_counts_over_all_its_frames() -> None:
    reader = FrameReader(message_bytes_max=10)

    whole = client_frame(BINARY, b"x" * 10)
    halves = client_frame(BINARY, b"y" * 5, is_final=False) + client_frame(CONTINUATION, b"y" * 5)
    assert reader.read(whole + halves) == b"x" * 10 + b"y" * 10
    reader.read(client_frame(BINARY, b"z" * 10, is_final=False))
    reader.read(client_frame(CONTINUATION, b"z"))

    assert reader.end is not None
    assert reader.end.code == TOO_BIG


@pytest.mark.parametrize(
    ("payload", "end"),
    [
        (b"", End(NO_CODE, "", is_failure=False)),
        (close_payload(1000), End(NORMAL, "", is_failure=False)),
        (close_payload(1014), End(1014, "", is_failure=False)),
        (close_payload(3000, "so long"), End(3000, "so long", is_failure=False)),
        (close_payload(4999, "é" * 61), End(4999, "é" * 61, is_failure=False)),
    ],
)
def test_a_close_frame_ends_the_stream_with_its_reason(payload: bytes, end: End) -> None:
    reader = FrameReader()

    received = reader.read(client_frame(CLOSE, payload) + client_frame(BINARY, b"late"))

    assert received == b""
    assert reader.end == end
    assert reader.read(client_frame(BINARY, b"later")) == b""


@pytest.mark.parametrize("size", [*range(10), 511, 512, 513, 514, 515, 4096])
def test_unmasking_is_an_exclusive_or_of_every_byte(size: int) -> None:
    payload = bytes(index * 11 & 0xFF for index in range(size))

    assert unmask(payload, MASK) == bytes(b ^ MASK[i % 4] for i, b in enumerate(payload))


@pytest.mark.parametrize("size", [1, 125, 126, SENT_BYTES_MAX])
def test_what_we_send_is_one_whole_frame(size: int) -> None:
    data = b"x" * size

    assert server_frames(binary_frames(data)) == ([Frame(BINARY, data)], b"")


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_what_is_too_large_for_a_client_is_sent_as_several_messages(
    kind: type[bytes | bytearray | memoryview],
) -> None:
    """aiohttp, under the Python SDK, closes when a message has more than 4 MiB."""
    data = bytes(index & 0xFF for index in range(SENT_BYTES_MAX * 2 + 1))

    frames, rest = server_frames(binary_frames(kind(data)))

    assert rest == b""
    assert [len(frame.payload) for frame in frames] == [SENT_BYTES_MAX, SENT_BYTES_MAX, 1]
    assert all(frame.opcode == BINARY and frame.is_final for frame in frames)
    assert b"".join(frame.payload for frame in frames) == data


def test_control_frames_of_ours_are_as_the_standard_has_them() -> None:
    sent = pong_frame(b"echo") + close_frame(NORMAL, "bye") + close_frame(NO_CODE)

    assert server_frames(sent) == (
        [Frame(PONG, b"echo"), Frame(CLOSE, close_payload(1000, "bye")), Frame(CLOSE, b"")],
        b"",
    )
