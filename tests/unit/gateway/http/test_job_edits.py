"""An edit changes what it names; everything else stays as its sender encoded it (R46)."""

from uuid import UUID

import pytest

from shardbus.codec import codes
from shardbus.codec.encoder import (
    NULL,
    TRUE,
    encode,
    encode_binary,
    encode_fields,
    encode_symbol_map,
    encode_text,
)
from shardbus.codec.types import Ubyte, Uuid, Value
from shardbus.gateway.http.jobs.job import Edit, PropertiesEdit
from shardbus.gateway.http.jobs.resending import edited
from shardbus.message.scan import MessageHead
from shardbus.message.sections import decode_application_properties, scan_message

SECTIONS = ("header", "message_annotations", "properties", "application_properties", "footer")


def section(code: int, encoded: bytes) -> bytes:
    return bytes([codes.DESCRIBED, codes.SMALLULONG, code]) + encoded


VALUE: Value = {"blob": b"\xff", "id": Uuid(UUID(int=7).bytes)}
BODIES = {
    "value": section(codes.AMQP_VALUE, encode(VALUE)),
    "sequences": section(codes.AMQP_SEQUENCE, encode([1]))
    + section(codes.AMQP_SEQUENCE, encode([2])),
    "data": section(codes.DATA, encode_binary(b"one"))
    + section(codes.DATA, encode_binary(b"\xff")),
}


def message(body: bytes) -> bytes:
    properties = [encode(Uuid(UUID(int=9).bytes)), encode_binary(b"me"), NULL, encode_text("old")]
    return b"".join(
        [
            encode_fields(codes.HEADER, [TRUE, encode(Ubyte(7))]),
            section(codes.MESSAGE_ANNOTATIONS, encode_symbol_map({"x-own": "kept"})),
            encode_fields(codes.PROPERTIES, properties),
            section(codes.APPLICATION_PROPERTIES, encode({"n": 1, "blob": b"\x00"})),
            body,
            section(codes.FOOTER, encode_symbol_map({"f": 1})),
        ]
    )


def parts(payload: bytes, head: MessageHead) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for name in (*SECTIONS, "body"):
        offset, length = getattr(head, f"{name}_offset"), getattr(head, f"{name}_length")
        found[name] = payload[offset : offset + length]
    return found


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_properties_and_fields_are_changed_and_nothing_else(body: bytes) -> None:
    before = message(body)
    edit = Edit(
        fields={"subject": "new"}, properties=PropertiesEdit(set={"added": True}, remove=["n"])
    )

    after = edited(before, edit)

    head = scan_message(after)
    was, now = parts(before, scan_message(before)), parts(after, head)
    for name in ("header", "message_annotations", "body", "footer"):
        assert now[name] == was[name], name
    assert (head.subject, head.user_id, head.message_id_raw) == (
        "new",
        b"me",
        scan_message(before).message_id_raw,
    )
    assert decode_application_properties(after, head) == {"blob": b"\x00", "added": True}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_a_new_body_takes_the_place_of_every_section_of_the_old_one(body: bytes) -> None:
    before = message(body)

    after = edited(before, Edit(body="new", fields={"message_id": None, "partition_key": "k"}))

    head = scan_message(after)
    now = parts(after, head)
    assert now["body"] == section(codes.DATA, encode_binary(b"new"))
    assert now["footer"] == parts(before, scan_message(before))["footer"]
    assert (head.message_id, head.partition_key, head.subject) == (None, "k", "old")
