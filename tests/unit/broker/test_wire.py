"""The internal protocol in bytes: whole round trips, and a clean error for anything else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardbus.broker.wire.codec import (
    RECEIVED_PART_BYTES,
    STRANGER_FRAME_BYTES_MAX,
    FrameBuffer,
    decode,
    encode,
    proof,
    received_parts,
)
from shardbus.broker.wire.fields import FRAME_BYTES_MAX, WireError
from shardbus.broker.wire.frames import Answered, Beat, Frame, Request
from shardbus.core.message import Entry, Message
from shardbus.core.messages.command import Delivery, Received, Send
from shardbus.stores.base.store import FragmentId
from tests.unit.broker.wire_values import facts, frames

LENGTH_BYTES = 4


def body(frame: Frame) -> bytes:
    return encode(frame)[LENGTH_BYTES:]


def delivery(number: int, size_bytes: int) -> Delivery:
    payload = bytes(size_bytes)
    return Delivery(Entry(number, payload, size_bytes, enqueued_at_ms=1), payload, 1, b"t" * 16, 2)


@given(frames)
def test_every_frame_says_the_same_after_the_wire(frame: Frame) -> None:
    assert facts(decode(body(frame))) == facts(frame)


@given(st.lists(frames, max_size=5), st.data())
def test_frames_are_found_whatever_pieces_they_arrive_in(
    sent: list[Frame], data: st.DataObject
) -> None:
    stream = b"".join(encode(frame) for frame in sent)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    buffer = FrameBuffer()

    found: list[bytes] = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found += buffer.feed(stream[start:end])

    assert found == [body(frame) for frame in sent]


@given(st.binary(max_size=300))
def test_any_bytes_are_a_frame_or_a_clean_error(data: bytes) -> None:
    try:
        frame = decode(data)
    except WireError:
        return

    assert decode(body(frame)) is not None


@given(frames, st.data())
def test_a_damaged_frame_is_a_frame_or_a_clean_error(frame: Frame, data: st.DataObject) -> None:
    damaged = bytearray(body(frame))
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))

    try:
        decode(bytes(damaged))
    except WireError:
        return


@given(frames, st.data())
def test_a_frame_cut_short_is_never_taken_for_a_whole_one(
    frame: Frame, data: st.DataObject
) -> None:
    whole = body(frame)

    with pytest.raises(WireError):
        decode(whole[: data.draw(st.integers(0, len(whole) - 1))])


@given(frames)
def test_bytes_after_the_last_field_are_an_error(frame: Frame) -> None:
    with pytest.raises(WireError):
        decode(body(frame) + b"\0")


@pytest.mark.parametrize("length", [0, STRANGER_FRAME_BYTES_MAX + 1, 2**32 - 1])
def test_a_length_beyond_the_bound_is_refused_before_anything_is_kept(length: int) -> None:
    buffer = FrameBuffer()

    with pytest.raises(WireError):
        buffer.feed(length.to_bytes(4, "big"))


def test_a_count_is_not_believed_beyond_the_bytes_that_are_there() -> None:
    sent = body(Request(1, FragmentId(1, 0), Send([Message(b"x")])))
    at = sent.index(b"\0\0\0\1", 20)
    lying = sent[:at] + b"\xff\xff\xff\xff" + sent[at + 4 :]

    with pytest.raises(WireError, match="do not fit"):
        decode(lying)


def test_a_frame_longer_than_the_bound_is_not_written() -> None:
    half = Message(bytes(FRAME_BYTES_MAX // 2))

    with pytest.raises(WireError, match="more than"):
        encode(Request(1, FragmentId(1, 0), Send([half, half])))


def test_many_large_deliveries_come_in_several_frames_of_which_only_the_last_says_so() -> None:
    received = Received([delivery(n, RECEIVED_PART_BYTES // 2) for n in range(5)], True)

    parts = [decode(part[LENGTH_BYTES:]) for part in received_parts(7, received)]

    answers = [part for part in parts if isinstance(part, Answered)]
    assert [part.is_last for part in answers] == [False, False, True]
    numbers = [
        item.entry.sequence_number
        for part in answers
        if isinstance(part.answer, Received)
        for item in part.answer.deliveries
    ]
    assert numbers == [0, 1, 2, 3, 4]


def test_nothing_received_is_still_one_answer() -> None:
    assert len(received_parts(7, Received([], False))) == 1


def test_a_proof_depends_on_secret_role_challenge_and_nonce() -> None:
    first, second = b"a" * 32, b"b" * 32
    proofs = {
        proof(secret, role, challenge, nonce)
        for secret in (b"s", b"t")
        for role in ("broker", "gateway")
        for challenge in (first, second)
        for nonce in (first, second)
    }

    assert len(proofs) == 16


def test_a_beat_is_small() -> None:
    assert len(encode(Beat(0))) <= 16
