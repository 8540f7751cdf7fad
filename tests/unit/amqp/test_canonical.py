"""Messages that clients write otherwise than the specification has them (R36)."""

import pytest

from shardbus.codec.errors import DecodeError
from shardbus.codec.types import Symbol, Timestamp, Value
from shardbus.codec.value import encode
from shardbus.message.canonical import canonical
from shardbus.message.sections import decode_message, encode_data_message, scan_message

BODY = encode_data_message(b"body")
MOMENT_MS = 1_700_000_000_000


def section(code: int, value: Value) -> bytes:
    return b"\x00\x53" + bytes([code]) + encode(value)


def properties(*fields: Value) -> bytes:
    return section(0x73, list(fields))


RESENT = (
    section(0x72, {Symbol("x-opt-partition-key"): b"key", Symbol("mine"): b"\xff"})
    + properties(
        b"id", b"user", b"to", b"subject", b"reply", b"corr", b"text/plain", b"gzip", None, None,
        b"session", None, b"reply session",
    )
    + section(0x74, {b"colour": b"red", "kept": 5})
    + BODY
)  # fmt: skip


def test_binary_where_text_stands_is_text() -> None:
    assert scan_message(RESENT).is_loose

    made = canonical(RESENT)

    head = scan_message(made)
    assert not head.is_loose
    assert (head.message_id, head.correlation_id, head.user_id) == ("id", "corr", b"user")
    assert (head.to, head.subject, head.reply_to) == ("to", "subject", "reply")
    assert (head.content_type, head.content_encoding) == ("text/plain", "gzip")
    assert (head.session_id, head.reply_to_session_id) == ("session", "reply session")
    assert head.partition_key == "key"
    message = decode_message(made)
    assert message.application_properties == {"colour": b"red", "kept": 5}
    assert message.body == b"body"


def test_values_whose_type_is_the_senders_choice_stay_as_they_are() -> None:
    head = scan_message(canonical(RESENT))

    assert head.message_id_raw == encode(b"id")
    assert encode(Symbol("mine")) + encode(b"\xff") in head.kept_annotations


@pytest.mark.parametrize("kind", [str, str.encode], ids=["strings", "binary"])
def test_annotations_are_known_by_names_of_other_types(kind: type[str]) -> None:
    """The older transport of the Python SDK writes strings for symbols."""
    sent = section(
        0x72,
        {
            kind("x-opt-partition-key"): "key",
            kind("x-opt-scheduled-enqueue-time"): Timestamp(MOMENT_MS),
            kind("x-opt-sequence-number"): 7,
            kind("other"): "kept",
        },
    )

    head = scan_message(canonical(sent + BODY))

    assert (head.partition_key, head.scheduled_enqueue_ms) == ("key", MOMENT_MS)
    assert head.kept_annotations_count == 6
    assert encode(Symbol("other")) in head.kept_annotations


def test_a_name_that_no_symbol_can_be_is_kept() -> None:
    head = scan_message(canonical(section(0x72, {"größe": 1}) + BODY))

    assert encode("größe") in head.kept_annotations


def test_descriptors_may_be_symbols() -> None:
    sent = b"\x00" + encode(Symbol("amqp:properties:list")) + encode(["id"])
    sent += b"\x00" + encode(Symbol("amqp:data:binary")) + encode(b"body")

    assert scan_message(sent).is_loose
    assert canonical(sent) == properties("id") + BODY


def test_descriptors_may_be_numbers_of_eight_bytes() -> None:
    """The Python SDK takes the third byte of every section for its number."""

    def wide(code: int, value: Value) -> bytes:
        return b"\x00\x80" + code.to_bytes(8, "big") + encode(value)

    sent = wide(0x73, ["id"]) + wide(0x74, {"a": 1}) + wide(0x75, b"body") + wide(0x78, {})

    assert scan_message(sent).is_loose
    made = properties("id") + section(0x74, {"a": 1}) + BODY + section(0x78, {})
    assert canonical(sent) == made


def test_properties_of_more_fields_than_there_are_can_be_delivered_and_not_sent() -> None:
    sent = properties("id", *[None] * 12, "fourteen") + BODY

    assert scan_message(sent).is_loose
    with pytest.raises(DecodeError, match="14 fields"):
        canonical(sent)
    assert not scan_message(properties("id", *[None] * 11, "thirteen") + BODY).is_loose


def test_a_message_that_is_as_it_should_be_is_not_written_anew() -> None:
    sent = properties("id", None, "to") + section(0x74, {"a": b"binary"}) + BODY

    assert not scan_message(sent).is_loose


def test_binary_that_is_not_text_is_refused_where_text_stands() -> None:
    with pytest.raises(DecodeError):
        scan_message(properties("id", None, b"\xff\xfe") + BODY)
