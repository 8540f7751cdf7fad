"""The table of message fields, held against what reads and writes them by hand."""

import pytest

from shardbus.codec import codes
from shardbus.codec.encoder import compound, encode, encode_fields, encode_symbol
from shardbus.codec.types import Symbol, Timestamp, Ubyte, Uint, Value
from shardbus.core import message_fields
from shardbus.core.message_fields import (
    FIELDS,
    OWNED_ANNOTATIONS,
    PROPERTY_FIELDS,
    SENT_TEXTS,
    MessageField,
    field_named,
)
from shardbus.message.delivery import Stamp, encode_delivery
from shardbus.message.rule_view import RuleView
from shardbus.message.scan import scan_message
from shardbus.message.sections import decode_message
from shardbus.rules import system

HEADER_FIELDS = sorted(
    (each for each in FIELDS if each.section == message_fields.HEADER),
    key=lambda field: field.place,
)
# What the specification calls them, in its order.
HEADER = ("durable", "priority", "ttl", "first-acquirer", "delivery-count")
PROPERTIES = (
    "message-id",
    "user-id",
    "to",
    "subject",
    "reply-to",
    "correlation-id",
    "content-type",
    "content-encoding",
    "absolute-expiry-time",
    "creation-time",
    "group-id",
    "group-sequence",
    "reply-to-group-id",
)
OTHERWISE = {
    "ttl": "time-to-live",
    "absolute-expiry-time": "expires-at",
    "group-id": "session-id",
    "reply-to-group-id": "reply-to-session-id",
}
# Attributes of a scan that hold no text, by the field that they are of.
NUMBERS = {
    "durable": "durable",
    "priority": "priority",
    "time_to_live": "ttl_ms",
    "first_acquirer": "first_acquirer",
    "delivery_count": "delivery_count",
    "user_id": "user_id",
    "expires_at": "absolute_expiry_ms",
    "creation_time": "creation_time_ms",
    "group_sequence": "group_sequence",
    "scheduled_at": "scheduled_enqueue_ms",
}


def value_of(field: MessageField) -> Value:
    """A value of the field that no other field has."""
    number = 1 + FIELDS.index(field)
    match field.form:
        case message_fields.FLAG:
            return True
        case message_fields.SMALL_NUMBER:
            return Ubyte(number) if field.name == "priority" else Uint(number)
        case message_fields.NUMBER | message_fields.DURATION:
            return Uint(number)
        case message_fields.MOMENT:
            return Timestamp(number)
        case message_fields.BYTES:
            return bytes([number])
        case message_fields.SYMBOL:
            return Symbol(field.name)
    return field.name


def full() -> bytes:
    """A message with every field that senders say, and each at the place of the table."""
    entries: list[bytes] = []
    for field in FIELDS:
        if field.section == message_fields.ANNOTATIONS and field.is_sent:
            entries += (encode_symbol(field.key), encode(value_of(field)))
    return b"".join(
        [
            encode_fields(codes.HEADER, [encode(value_of(each)) for each in HEADER_FIELDS]),
            b"\x00\x53\x72" + compound(codes.MAP8, entries),
            encode_fields(codes.PROPERTIES, [encode(value_of(each)) for each in PROPERTY_FIELDS]),
        ]
    )


def test_lists_are_in_the_order_of_the_specification() -> None:
    for fields, names in ((HEADER_FIELDS, HEADER), (PROPERTY_FIELDS, PROPERTIES)):
        expected = [OTHERWISE.get(name, name).replace("-", "_") for name in names]
        assert [field.name for field in fields] == expected


def test_a_scan_reads_every_text_from_where_the_table_has_it() -> None:
    head = scan_message(full())

    assert {field.name: head.text(field.name) for field in SENT_TEXTS} == {
        field.name: field.name for field in SENT_TEXTS
    }


def test_a_scan_reads_every_other_field_from_where_the_table_has_it() -> None:
    head = scan_message(full())
    others = [
        field for field in FIELDS if field.place >= 0 or (field.is_sent and not field.is_text())
    ]

    for field in others:
        if not field.is_text():
            told: object = getattr(head, NUMBERS[field.name])
            expected = value_of(field)
            assert told == (expected if isinstance(expected, bytes | bool) else _plain(expected))


def _plain(value: Value) -> int:
    assert isinstance(value, Ubyte | Uint | Timestamp)
    return value.value


def test_rules_see_every_text_that_they_may_set() -> None:
    view = RuleView(full())

    for each in system.ALL:
        field = next(field for field in FIELDS if field.number == each.number)
        assert (field.dialect, field.is_sent) == (each.name, each.is_settable)
        if field.is_sent and field.is_text():
            assert view.system(each.number) == field.name


def test_what_only_the_bus_says_is_written_as_the_table_has_it_and_taken_from_nobody() -> None:
    stamp = Stamp(
        sequence_number=1,
        enqueued_time_ms=2,
        enqueue_sequence_number=3,
        locked_until_ms=4,
        partition_id=5,
        message_state=1,
        deadletter_source="orders",
        lock_token=bytes(16),
    )
    sent = encode_fields(codes.PROPERTIES, [encode("id")])
    delivered = encode_delivery(sent, scan_message(sent), stamp)

    for name in OWNED_ANNOTATIONS:
        assert encode_symbol(name) in delivered
    assert scan_message(delivered).kept_annotations == b""
    assert decode_message(delivered).head.message_id == "id"


@pytest.mark.parametrize("names", ["name", "dialect", "member", "column", "option", "key"])
def test_no_two_fields_have_one_name(names: str) -> None:
    told = [text for field in FIELDS if (text := str(getattr(field, names)))]

    assert len(set(told)) == len(told)


def test_a_name_in_the_dialect_is_hyphenated_as_requests_write_it() -> None:
    assert field_named("reply_to_session_id").hyphenated() == "reply-to-session-id"
    assert field_named("subject").hyphenated() == "label"
