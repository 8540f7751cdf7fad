"""What a receiver gets: our header and annotations, the sender's everything else."""

import uuid

import pytest
from proton import Message as ProtonMessage
from proton import symbol

from shardbus.codec.types import (
    Described,
    Int,
    Short,
    Symbol,
    Timestamp,
    Ubyte,
    Uint,
    Ulong,
    Uuid,
    Value,
)
from shardbus.codec.value import decode, encode
from shardbus.message.sections import (
    Stamp,
    decode_message,
    drop_body,
    encode_delivery,
    scan_message,
)

DATA = bytes.fromhex("005375a003616263")


def section(code: int, value: Value) -> bytes:
    return bytes([0, 0x53, code]) + encode(value)


PROPERTIES = section(0x73, ["id", None, None, "label"])
APPLICATION = section(0x74, {"a": 1, "DeadLetterReason": "old"})
FOOTER = section(0x78, {Symbol("crc"): 1})


def delivered(
    payload: bytes, stamp: Stamp, overlay: dict[str, bytes] | None = None
) -> dict[int, Value]:
    """The sections of what a receiver gets, by descriptor, each decoded."""
    encoded = encode_delivery(payload, scan_message(payload), stamp, overlay)
    sections: dict[int, Value] = {}
    offset = 0
    while offset < len(encoded):
        value, offset = decode(encoded, offset)
        assert isinstance(value, Described)
        assert isinstance(value.descriptor, Ulong)
        sections[value.descriptor.value] = value.value
    return sections


def test_a_plain_message_gets_header_and_annotations_in_their_golden_form() -> None:
    encoded = encode_delivery(
        DATA, scan_message(DATA), Stamp(sequence_number=5, enqueued_time_ms=9)
    )

    golden = (
        bytes.fromhex("005370c006054040404043")
        + bytes.fromhex("005372c13f04")
        + b"\xa3\x15x-opt-sequence-number\x81"
        + (5).to_bytes(8, "big")
        + b"\xa3\x13x-opt-enqueued-time\x83"
        + (9).to_bytes(8, "big")
    )
    identifier = b"\x00\x53\x73\xc0\x23\x01\xa1\x20" + b"%016x%016x" % (9, 5)
    assert encoded == golden + identifier + DATA


TOKEN = bytes(range(16))


def stamped(lock_token: bytes | None) -> Stamp:
    return Stamp(sequence_number=5, enqueued_time_ms=9, lock_token=lock_token)


def test_a_locked_delivery_has_its_lock_token_in_the_delivery_annotations() -> None:
    """SDKs read the delivery tag as a GUID; the annotation is the same one as a uuid."""
    same = Uuid(uuid.UUID(bytes_le=TOKEN).bytes)

    assert delivered(DATA, stamped(TOKEN))[0x71] == {Symbol("x-opt-lock-token"): same}
    assert delivered(DATA, stamped(b""))[0x71] == {}
    assert 0x71 not in delivered(DATA, stamped(None))


def test_the_senders_delivery_annotations_arrive() -> None:
    sent = section(0x71, {Symbol("mine"): 1, Symbol("x-opt-lock-token"): "forged"}) + DATA
    same = Uuid(uuid.UUID(bytes_le=TOKEN).bytes)

    locked = delivered(sent, stamped(TOKEN))[0x71]

    assert locked == {Symbol("mine"): 1, Symbol("x-opt-lock-token"): same}
    assert delivered(sent, stamped(b""))[0x71] == {Symbol("mine"): 1}


@pytest.mark.parametrize("value", [True, False, None])
def test_the_header_comes_back_as_it_was_sent(value: bool | None) -> None:
    sent = section(0x70, [value, Ubyte(7), Uint(5), value, Uint(3)]) + DATA

    header = delivered(sent, Stamp(sequence_number=5, enqueued_time_ms=9, delivery_count=1))[0x70]

    assert header == [value, Ubyte(7), Uint(5), value, Uint(1)]


def test_an_empty_overlay_takes_a_property_away() -> None:
    stamp = Stamp(sequence_number=5, enqueued_time_ms=9)

    changed = delivered(APPLICATION + DATA, stamp, {"a": b"", "never": b"", "b": encode(2)})
    emptied = delivered(section(0x74, {"a": 1}) + DATA, stamp, {"a": b""})

    assert changed[0x74] == {"DeadLetterReason": "old", "b": 2}
    assert 0x74 not in emptied


def test_every_stamp_has_the_type_of_the_reference() -> None:
    stamp = Stamp(
        sequence_number=2**60,
        enqueued_time_ms=1,
        delivery_count=300,
        enqueue_sequence_number=2,
        locked_until_ms=3,
        partition_id=15,
        message_state=0,
        deadletter_source="queue",
    )

    sections = delivered(DATA, stamp)

    assert sections[0x72] == {
        Symbol("x-opt-sequence-number"): 2**60,
        Symbol("x-opt-enqueued-time"): Timestamp(1),
        Symbol("x-opt-locked-until"): Timestamp(3),
        Symbol("x-opt-enqueue-sequence-number"): 2,
        Symbol("x-opt-partition-id"): Short(15),
        Symbol("x-opt-message-state"): Int(0),
        Symbol("x-opt-deadletter-source"): "queue",
    }


def test_the_header_keeps_what_the_sender_said_and_counts_deliveries() -> None:
    message = ProtonMessage(body=b"x", durable=True, priority=7, ttl=60.0, delivery_count=99)
    stamp = Stamp(sequence_number=1, enqueued_time_ms=1, delivery_count=2)
    payload = bytes(message.encode())

    received = ProtonMessage()
    received.decode(encode_delivery(payload, scan_message(payload), stamp))

    assert (received.durable, received.priority, received.ttl) == (True, 7, 60.0)
    assert received.delivery_count == 2


def test_the_bare_message_is_untouched_byte_for_byte() -> None:
    bare = PROPERTIES + APPLICATION + DATA + FOOTER
    payload = section(0x70, [True]) + section(0x71, {Symbol("x"): 1}) + bare
    stamp = Stamp(sequence_number=1, enqueued_time_ms=1)

    encoded = encode_delivery(payload, scan_message(payload), stamp)

    assert encoded.endswith(bare)
    assert 0x71 not in delivered(payload, stamp)


@pytest.mark.parametrize("sent", [[None, None, None, "label"], []], ids=["others", "none"])
def test_a_message_without_an_id_gets_one_that_never_changes(sent: list[Value]) -> None:
    """The JavaScript SDK sends none, and cannot settle a message that has none."""
    payload = section(0x73, sent) + DATA
    stamp = Stamp(sequence_number=1 << 48 | 7, enqueued_time_ms=9)
    again = Stamp(sequence_number=1 << 48 | 7, enqueued_time_ms=9, delivery_count=3)

    properties = delivered(payload, stamp)[0x73]

    assert properties == [f"{9:016x}{1 << 48 | 7:016x}", *sent[1:]]
    assert delivered(payload, again)[0x73] == properties
    assert delivered(payload, again, {"reason": encode("x")})[0x73] == properties


def test_sections_out_of_order_are_put_in_order() -> None:
    bare = PROPERTIES + APPLICATION + DATA + FOOTER
    payload = FOOTER + DATA + section(0x72, {Symbol("mine"): 1}) + APPLICATION + PROPERTIES
    stamp = Stamp(sequence_number=1, enqueued_time_ms=1)

    assert encode_delivery(payload, scan_message(payload), stamp).endswith(bare)


def test_the_senders_own_annotations_are_kept_and_ours_replaced() -> None:
    """Broker-owned names from a sender are overwritten."""
    annotations: Value = {
        Symbol("x-opt-sequence-number"): 999,
        Symbol("x-opt-partition-key"): "key",
        Symbol("x-opt-locked-until"): Timestamp(1),
        Symbol("mine"): Uuid(bytes(16)),
        Symbol("x-opt-lock-token"): Uuid(bytes(16)),
        Symbol("x-opt-scheduled-enqueue-time"): Timestamp(4),
    }

    sections = delivered(
        section(0x72, annotations) + DATA, Stamp(sequence_number=5, enqueued_time_ms=6)
    )

    assert sections[0x72] == {
        Symbol("x-opt-sequence-number"): 5,
        Symbol("x-opt-enqueued-time"): Timestamp(6),
        Symbol("x-opt-partition-key"): "key",
        Symbol("mine"): Uuid(bytes(16)),
        Symbol("x-opt-scheduled-enqueue-time"): Timestamp(4),
    }


@pytest.mark.parametrize("size", [10, 183, 184, 185, 186, 187, 255, 256, 70_000])
def test_annotations_of_any_size_fit(size: int) -> None:
    payload = section(0x72, {Symbol("mine"): "x" * size}) + DATA

    sections = delivered(payload, Stamp(sequence_number=5, enqueued_time_ms=6))

    annotations = sections[0x72]
    assert isinstance(annotations, dict)
    assert annotations[Symbol("mine")] == "x" * size


def test_an_overlay_replaces_and_adds_application_properties() -> None:
    """Dead-letter reason and description are application properties."""
    overlay = {"DeadLetterReason": encode("new"), "DeadLetterErrorDescription": encode("text")}
    stamp = Stamp(sequence_number=1, enqueued_time_ms=1)

    sections = delivered(PROPERTIES + APPLICATION + DATA, stamp, overlay)

    assert sections[0x74] == {
        "a": 1,
        "DeadLetterReason": "new",
        "DeadLetterErrorDescription": "text",
    }
    assert sections[0x75] == b"abc"


def test_an_overlay_makes_the_section_when_there_is_none() -> None:
    stamp = Stamp(sequence_number=1, enqueued_time_ms=1)

    assert delivered(DATA, stamp, {"reason": encode("x")})[0x74] == {"reason": "x"}
    assert 0x74 not in delivered(DATA, stamp, {})


def test_an_overlay_keeps_the_type_of_a_value_also_of_null() -> None:
    stamp = Stamp(sequence_number=1, enqueued_time_ms=1)

    sections = delivered(APPLICATION + DATA, stamp, {"a": encode(None), "b": encode(Short(7))})

    assert sections[0x74] == {"a": None, "DeadLetterReason": "old", "b": Short(7)}


def test_the_time_to_live_of_the_stamp_replaces_the_senders() -> None:
    """Header.ttl keeps the effective TTL."""
    stamp = Stamp(sequence_number=1, enqueued_time_ms=1, ttl_ms=500)
    sent = section(0x70, [True, None, Uint(9000)]) + DATA

    assert delivered(sent, stamp)[0x70] == [True, None, Uint(500), None, Uint(0)]
    assert delivered(DATA, stamp)[0x70] == [None, None, Uint(500), None, Uint(0)]


def test_a_message_can_be_shown_without_its_body() -> None:
    bare = PROPERTIES + APPLICATION + DATA + FOOTER

    assert drop_body(bare) == PROPERTIES + APPLICATION + FOOTER
    assert decode_message(drop_body(DATA)).body is None
    assert drop_body(PROPERTIES) == PROPERTIES


def test_the_expiry_is_written_only_when_asked() -> None:
    """Absolute-expiry-time."""
    stamp = Stamp(sequence_number=1, enqueued_time_ms=1)
    assert delivered(PROPERTIES + DATA, stamp)[0x73] == ["id", None, None, "label"]

    stamp.absolute_expiry_ms = 77
    with_properties = delivered(PROPERTIES + DATA, stamp)
    assert with_properties[0x73] == ["id", *[None] * 2, "label", *[None] * 4, Timestamp(77)]
    assert delivered(DATA, stamp)[0x73] == [
        "0" * 15 + "1" + "0" * 15 + "1",
        *[None] * 7,
        Timestamp(77),
    ]


@pytest.mark.parametrize(
    ("expiry", "creation", "written"),
    [(50, 20, 7), (None, 20, 20), (50, None, None)],
)
def test_both_times_of_a_sender_stay_as_far_apart_as_the_message_lives(
    expiry: int | None, creation: int | None, written: int | None
) -> None:
    """The JavaScript SDK takes their difference for the time to live."""
    times: list[Value] = [None if time is None else Timestamp(time) for time in (expiry, creation)]
    sent = section(0x73, [*[None] * 8, *times]) + DATA
    stamp = Stamp(sequence_number=1, enqueued_time_ms=7, absolute_expiry_ms=37)

    properties = delivered(sent, stamp)[0x73]

    assert isinstance(properties, list)
    assert properties[8:] == [Timestamp(37), None if written is None else Timestamp(written)]


@pytest.mark.parametrize("creation", [None, 20])
def test_a_life_that_the_header_cannot_tell_is_told_by_two_times(creation: int | None) -> None:
    created = None if creation is None else Timestamp(creation)
    sent = section(0x73, [*[None] * 9, created]) + DATA
    stamp = Stamp(sequence_number=1, enqueued_time_ms=7, absolute_expiry_ms=37, is_long=True)

    properties = delivered(sent, stamp)[0x73]
    without = delivered(DATA, stamp)[0x73]

    assert isinstance(properties, list) and isinstance(without, list)
    assert properties[8:] == without[8:] == [Timestamp(37), Timestamp(7)]


def test_a_delivery_can_be_scanned_and_stamped_again() -> None:
    """A dead-lettered or forwarded message is stored as it was sent, but peeked as delivered."""
    first = encode_delivery(DATA, scan_message(DATA), Stamp(sequence_number=1, enqueued_time_ms=1))
    second = encode_delivery(
        first, scan_message(first), Stamp(sequence_number=2, enqueued_time_ms=3)
    )

    received = ProtonMessage()
    received.decode(second)

    assert received.annotations is not None
    assert received.annotations[symbol("x-opt-sequence-number")] == 2
    assert len(received.annotations) == 2
    assert decode_message(second).body == b"abc"
