"""Scanning, batches, and the messages of request/response nodes."""

import uuid

import pytest
from proton import Message as ProtonMessage
from proton import symbol, timestamp

from shardbus.codec.errors import DecodeError
from shardbus.codec.types import Array, Int, Symbol, Timestamp, Ulong, Uuid, Value
from shardbus.codec.value import encode
from shardbus.message.sections import (
    build_message,
    decode_message,
    encode_batch,
    encode_data_message,
    scan_message,
    split_batch,
)

DATA = bytes.fromhex("005375a003616263")
HEADER = bytes.fromhex("005370c0020141")


def section(code: int, value: Value) -> bytes:
    return bytes([0, 0x53, code]) + encode(value)


ANNOTATIONS = section(0x72, {Symbol("x-opt-partition-key"): "k", Symbol("mine"): 1})
PROPERTIES = section(0x73, ["id", b"user", "to", "subject", "reply", "correlation"])
APPLICATION = section(0x74, {"a": 1, "b": "text"})
FOOTER = section(0x78, {Symbol("crc"): 1})


def test_a_message_of_qpid_proton_is_read_in_full() -> None:
    message = ProtonMessage(
        id=uuid.UUID(int=5),
        user_id=b"someone",
        address="to",
        subject="label",
        reply_to="answers",
        correlation_id="correlated",
        content_type=symbol("text/plain"),
        content_encoding=symbol("gzip"),
        expiry_time=2.0,
        creation_time=1.0,
        group_id="session",
        group_sequence=4,
        reply_to_group_id="other session",
        ttl=30.0,
        priority=9,
        durable=True,
        delivery_count=3,
        annotations={
            symbol("x-opt-partition-key"): "key",
            symbol("x-opt-via-partition-key"): "via",
            symbol("x-opt-scheduled-enqueue-time"): timestamp(77),
        },
        properties={"text": "value", "number": 5, "flag": True},
        body="the body",
    )

    head = scan_message(bytes(message.encode()))

    assert (head.durable, head.priority, head.ttl_ms, head.delivery_count) == (True, 9, 30_000, 3)
    assert (head.partition_key, head.via_partition_key) == ("key", "via")
    assert head.scheduled_enqueue_ms == 77
    assert head.message_id == str(uuid.UUID(int=5))
    assert head.message_id_raw == b"\x98" + uuid.UUID(int=5).bytes
    assert (head.user_id, head.to, head.subject) == (b"someone", "to", "label")
    assert (head.reply_to, head.correlation_id) == ("answers", "correlated")
    assert (head.content_type, head.content_encoding) == ("text/plain", "gzip")
    assert (head.absolute_expiry_ms, head.creation_time_ms) == (2_000, 1_000)
    assert (head.session_id, head.group_sequence) == ("session", 4)
    assert head.reply_to_session_id == "other session"


@pytest.mark.parametrize(
    ("identifier", "text"),
    [
        ("id", "id"),
        ("x" * 300, "x" * 300),
        (Ulong(0), "0"),
        (Ulong(9), "9"),
        (Ulong(2**64 - 1), str(2**64 - 1)),
        (b"\x01\xff", "01ff"),
        (b"\xff" * 300, "ff" * 300),
        (b"received and sent again", "received and sent again"),
        (Uuid(uuid.UUID(int=1).bytes), str(uuid.UUID(int=1))),
    ],
)
def test_message_ids_of_every_type_become_text_and_stay_raw(identifier: Value, text: str) -> None:
    """Responses echo value and type."""
    head = scan_message(section(0x73, [identifier]) + DATA)

    assert head.message_id == text
    assert head.message_id_raw == encode(identifier)


def test_what_the_sender_left_out_reads_as_nothing() -> None:
    head = scan_message(DATA)

    assert (head.ttl_ms, head.priority, head.scheduled_enqueue_ms) == (-1, -1, -1)
    assert (head.message_id, head.partition_key, head.session_id) == (None, None, None)
    assert (head.absolute_expiry_ms, head.creation_time_ms) == (-1, -1)
    assert (head.header_length, head.properties_length) == (0, 0)
    assert (head.body_offset, head.body_length) == (0, len(DATA))


def test_sections_are_found_where_they_are() -> None:
    payload = HEADER + ANNOTATIONS + PROPERTIES + APPLICATION + DATA + DATA + FOOTER

    head = scan_message(payload)

    def cut(offset: int, length: int) -> bytes:
        return payload[offset : offset + length]

    assert cut(head.header_offset, head.header_length) == HEADER
    annotations = cut(head.message_annotations_offset, head.message_annotations_length)
    assert annotations == ANNOTATIONS
    assert cut(head.properties_offset, head.properties_length) == PROPERTIES
    application = cut(head.application_properties_offset, head.application_properties_length)
    assert application == APPLICATION
    assert cut(head.body_offset, head.body_length) == DATA + DATA
    assert cut(head.footer_offset, head.footer_length) == FOOTER


def test_sections_may_come_in_any_order() -> None:
    """The Python SDK writes delivery annotations after message annotations."""
    head = scan_message(FOOTER + DATA + APPLICATION + PROPERTIES + ANNOTATIONS + HEADER)

    assert (head.message_id, head.partition_key, head.durable) == ("id", "k", True)
    assert head.bare_offset == -1


def test_a_message_without_a_body_is_a_message() -> None:
    """`body=None` of the Python SDK."""
    head = scan_message(PROPERTIES)

    assert (head.message_id, head.body_length) == ("id", 0)


MALFORMED = {
    "nothing": b"",
    "no section": b"\x40",
    "an unknown section": section(0x79, {}),
    "a section with an unknown symbol for a name": b"\x00"
    + encode(Symbol("amqp:data:text"))
    + b"\xa0\x00",
    "half a section": DATA[:-1],
    "a data section longer than the payload": bytes.fromhex("005375b0ffffffff00"),
    "a data section of text": section(0x75, "text"),
    "a sequence that is no list": section(0x76, "text"),
    "an amqp-value of an unknown type": bytes.fromhex("00537746"),
    "an amqp-value longer than the payload": bytes.fromhex("005377c0ff0141"),
    "two headers": HEADER + HEADER + DATA,
    "two properties": PROPERTIES + PROPERTIES,
    "two values": section(0x77, 1) + section(0x77, 2),
    "a body of two kinds": DATA + section(0x77, 1),
    "a body in two places": DATA + FOOTER + DATA,
    "a header that is a map": section(0x70, {}),
    "annotations that are a list": section(0x72, []),
    "an annotation under a number": section(0x72, {Int(1): 1}),
    "a partition key that is a number": section(0x72, {Symbol("x-opt-partition-key"): 5}),
    "a time that is text": section(0x72, {Symbol("x-opt-scheduled-enqueue-time"): "now"}),
    "a message-id that is a list": section(0x73, [[1]]),
    "a message-id that is a symbol": section(0x73, [Symbol("id")]),
    "a message-id that is not UTF-8": bytes.fromhex("005373c00501a102c328"),
    "a ttl that is negative": section(0x70, [None, None, Int(-1)]),
    "a property name that is a number": section(0x74, {Int(1): 1}),
    "a property that is not UTF-8": bytes.fromhex("005374c10802a10161a102c328"),
    "a long property that is not UTF-8": bytes.fromhex(f"005374c12402a10161a11e{'61' * 29}ff"),
    "a property name that is not UTF-8": bytes.fromhex("005374c10802a102c328a10161"),
    "a property that ends after its map": bytes.fromhex("005374c10602a10161a109616263"),
    "a map longer than its entries": bytes.fromhex("005374c1030041ff"),
    "a map that ends too early": bytes.fromhex("005374c10602a10161a10162"),
    "bytes after the last section": DATA + b"\x00",
}


@pytest.mark.parametrize("payload", MALFORMED.values(), ids=MALFORMED.keys())
def test_a_malformed_message_is_refused(payload: bytes) -> None:
    with pytest.raises(DecodeError):
        scan_message(payload)


def test_null_annotations_are_as_good_as_none() -> None:
    head = scan_message(section(0x72, {Symbol("x-opt-partition-key"): None}) + DATA)

    assert head.partition_key is None


def test_a_batch_is_one_message_per_data_section() -> None:
    messages = [encode_data_message(bytes([65 + number]) * 300) for number in range(3)]

    assert split_batch(PROPERTIES + ANNOTATIONS + encode_batch(messages)) == messages


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        PROPERTIES,
        section(0x77, "value"),
        DATA + section(0x76, [1]),
        DATA + b"\x00\x53",
        DATA[:-1],
        section(0x75, "text"),
    ],
)
def test_a_batch_without_messages_or_with_another_body_is_refused(payload: bytes) -> None:
    with pytest.raises(DecodeError):
        split_batch(payload)


def test_a_request_is_decoded_and_its_answer_echoes_the_id() -> None:
    request = build_message(
        body={"lock-tokens": Array(0x98, [Uuid(bytes(16))])},
        application_properties={"operation": "com.microsoft:renew-lock"},
        message_id=Uuid(uuid.UUID(int=9).bytes),
        reply_to="answers",
    )
    decoded = decode_message(request)

    answer = build_message(
        body={"expirations": Array(0x83, [Timestamp(1)])},
        application_properties={"statusCode": Int(200), "statusDescription": "OK"},
        correlation_id_raw=decoded.head.message_id_raw,
    )

    assert decoded.application_properties == {"operation": "com.microsoft:renew-lock"}
    assert decoded.body == {"lock-tokens": Array(0x98, [Uuid(bytes(16))])}
    assert decoded.head.reply_to == "answers"
    proton = ProtonMessage()
    proton.decode(answer)
    assert proton.correlation_id == uuid.UUID(int=9)
    assert proton.properties == {"statusCode": 200, "statusDescription": "OK"}


def test_an_answer_without_anything_still_has_all_sections() -> None:
    """The SDKs dereference header, properties and application properties."""
    head = scan_message(build_message())

    assert head.header_length > 0
    assert head.properties_length > 0
    assert head.application_properties_length > 0
    assert decode_message(build_message()).body is None


@pytest.mark.parametrize(
    ("payload", "body"),
    [
        (DATA + DATA, b"abcabc"),
        (section(0x76, [1]) + section(0x76, ["a"]), [1, "a"]),
        (section(0x77, {"k": None}), {"k": None}),
        (PROPERTIES, None),
    ],
)
def test_every_kind_of_body_is_decoded(payload: bytes, body: Value) -> None:
    assert decode_message(payload).body == body


def test_a_body_that_is_malformed_inside_is_refused_when_it_is_decoded() -> None:
    with pytest.raises(DecodeError):
        decode_message(bytes.fromhex("005377c0030246ff"))
