"""Messages with other properties than their senders gave them."""

import pytest

from shardbus.codec.encoder import NULL, encode, encode_symbol, encode_text, encode_uint
from shardbus.codec.types import Symbol, Ubyte, Uint, Ulong, Value
from shardbus.core.message_fields import field_named
from shardbus.message.revision import Revision, revise
from shardbus.message.scan import scan_message
from shardbus.message.sections import decode_message

DATA = bytes.fromhex("005375a003616263")


def section(code: int, value: Value) -> bytes:
    return bytes([0, 0x53, code]) + encode(value)


HEADER = section(0x70, [True, Ubyte(7), Uint(1000)])
ANNOTATIONS = section(0x72, {Symbol("x-opt-partition-key"): "old", Symbol("mine"): 1, Ulong(9): 2})
PROPERTIES = section(0x73, [Ulong(5), b"user", "to", "label"])
APPLICATION = section(0x74, {"a": 1})
FOOTER = section(0x78, {Symbol("crc"): 1})
WHOLE = HEADER + ANNOTATIONS + PROPERTIES + APPLICATION + DATA + FOOTER


def revised(payload: bytes, made: Revision) -> bytes:
    return revise(payload, scan_message(payload), made)


def test_nothing_to_change_leaves_every_byte() -> None:
    assert revised(WHOLE, Revision()) == WHOLE


def test_fields_are_replaced_and_their_neighbours_stay() -> None:
    made = Revision()
    made.properties[field_named("subject").place] = encode_text("new")
    made.properties[field_named("content_type").place] = encode_symbol("text/plain")
    made.header[field_named("time_to_live").place] = encode_uint(5)

    payload = revised(WHOLE, made)
    head = scan_message(payload)

    assert (head.subject, head.content_type, head.ttl_ms) == ("new", "text/plain", 5)
    assert (head.message_id, head.user_id, head.to) == ("5", b"user", "to")
    assert (head.durable, head.priority) == (True, 7)
    assert payload.startswith(section(0x70, [True, Ubyte(7), Uint(5)]) + ANNOTATIONS)
    assert payload.endswith(APPLICATION + DATA + FOOTER)


def test_a_message_without_the_sections_gets_them() -> None:
    made = Revision()
    made.properties[field_named("message_id").place] = encode_text("id")
    made.header[field_named("durable").place] = encode(True)
    made.annotations["x-opt-via-partition-key"] = encode_text("via")

    head = scan_message(revised(DATA, made))

    assert (head.message_id, head.durable, head.via_partition_key) == ("id", True, "via")
    assert decode_message(revised(DATA, made)).body == b"abc"


def test_nulls_take_away_what_there_was() -> None:
    made = Revision()
    made.properties[field_named("message_id").place] = NULL
    made.header[field_named("time_to_live").place] = NULL
    made.annotations["x-opt-partition-key"] = NULL

    head = scan_message(revised(WHOLE, made))

    assert (head.message_id, head.ttl_ms, head.partition_key) == (None, -1, None)
    assert head.to == "to"


def test_annotations_of_others_stay_whatever_their_keys_are() -> None:
    made = Revision()
    made.annotations["x-opt-partition-key"] = encode_text("new")

    payload = revised(WHOLE, made)

    expected = {Symbol("mine"): 1, Ulong(9): 2, Symbol("x-opt-partition-key"): "new"}
    assert section(0x72, expected) in payload
    assert scan_message(payload).partition_key == "new"


def test_the_last_annotation_leaves_no_section() -> None:
    made = Revision()
    made.annotations["x-opt-partition-key"] = NULL

    assert revised(section(0x72, {Symbol("x-opt-partition-key"): "k"}) + DATA, made) == DATA


@pytest.mark.parametrize("wide", [0x70, 0x73])
def test_sections_with_wide_descriptors_can_be_changed(wide: int) -> None:
    descriptor = b"\x00\x80" + wide.to_bytes(8, "big")
    made = Revision()
    made.properties[field_named("to").place] = encode_text("new")
    made.header[field_named("time_to_live").place] = encode_uint(9)

    head = scan_message(revised(descriptor + encode([None]) + DATA, made))

    assert (head.to, head.ttl_ms) == ("new", 9)
