"""Rows of the bulk lane against what decoding the same messages one by one gives."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import NamedTuple
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from shardbus.codec import codes
from shardbus.codec.encoder import (
    compound,
    encode,
    encode_binary,
    encode_fields,
    encode_symbol,
    encode_text,
    encode_uint,
)
from shardbus.codec.errors import DecodeError
from shardbus.codec.types import (
    Byte,
    Described,
    Int,
    Short,
    Symbol,
    Timestamp,
    Ubyte,
    Uint,
    Ulong,
    Ushort,
    Uuid,
    Value,
)
from shardbus.core.message import DEAD_LETTER_LINE, DEFERRED, Entry
from shardbus.core.properties import pack
from shardbus.gateway.flight.reading.batches import BatchMaker, wanted_for
from shardbus.gateway.flight.reading.rows import Rows
from shardbus.gateway.flight.reading.schema import COLUMNS, EXTRA_COLUMNS, SESSION_STATE
from shardbus.gateway.flight.reading.schema import TEXT as TEXT_TYPE
from shardbus.gateway.flight.reading.schema import TEXTS as TEXTS_TYPE
from shardbus.gateway.flight.reading.values import plain_of
from shardbus.message.scan import scan_message

NULL = b"\x40"
# The state of a session is not in its messages.
ALL = [name for name in (COLUMNS | EXTRA_COLUMNS) if name != SESSION_STATE]
# Mostly short, now and then longer than what one byte can tell.
TEXT = st.one_of(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), st.just("é" * 200))
TEXTS = st.none() | TEXT
# Texts in broken messages may be anything, also what Python refuses to show.
UNSURE = [
    name
    for name, kind in (COLUMNS | EXTRA_COLUMNS).items()
    if kind in (TEXT_TYPE, TEXTS_TYPE) and name != "body_kind"
]
NAMES = st.sampled_from(["a", "x-", "x-own", "name", "n" * 255, "n" * 300])
DESCRIPTORS: st.SearchStrategy[Callable[[int], bytes]] = st.sampled_from(
    [
        lambda code: bytes((0, codes.SMALLULONG, code)),
        lambda code: bytes((0, codes.ULONG, 0, 0, 0, 0, 0, 0, 0, code)),
    ]
)
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    TEXT,
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.binary(max_size=8),
    st.integers(-128, 127).flatmap(lambda n: st.sampled_from([Byte(n), Short(n), Int(n)])),
    st.integers(0, 255).flatmap(lambda n: st.sampled_from([Ubyte(n), Ushort(n), Uint(n)])),
    st.sampled_from([Int(-(2**31)), Uint(2**32 - 1), Short(-(2**15)), Ushort(2**16 - 1), Ulong(0)]),
    st.sampled_from([Symbol("s"), Uuid(bytes(range(16))), Timestamp(0), Ulong(2**64 - 1)]),
    st.just(Described(Symbol("com.microsoft:timespan"), 70)),
    st.lists(st.integers(0, 300), max_size=2),
)


class Written(NamedTuple):
    """A message as bytes, and what its row should show."""

    payload: bytes
    row: dict[str, object]


def shown(value: Value) -> str | None:
    plain = plain_of(value)
    if value is None:
        return None
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)


def moment(at_ms: int) -> datetime:
    return datetime.fromtimestamp(at_ms / 1000, UTC)


@st.composite
def identifiers(draw: st.DrawFn) -> tuple[bytes, str | None]:
    value = draw(
        st.one_of(
            st.none(),
            TEXT,
            st.binary(min_size=16, max_size=16).map(Uuid),
            st.integers(0, 2**64 - 1).map(Ulong),
            st.binary(max_size=300),
        )
    )
    if isinstance(value, Uuid):
        return encode(value), str(UUID(bytes=value.value))
    if isinstance(value, Ulong):
        return encode(value), str(value.value)
    return encode(value), spelt(value) if isinstance(value, bytes) else value


def spelt(value: bytes) -> str:
    """Binary is the text that it spells, if it spells one."""
    text = value.decode(errors="ignore")
    is_text = text.encode() == value and text.isprintable()
    return text if is_text else value.hex()


@st.composite
def bodies(draw: st.DrawFn) -> tuple[bytes, bytes | None, str | None]:
    kind = draw(st.sampled_from(["data", "value", "sequence", "none"]))
    if kind == "none":
        return b"", None, None
    if kind == "data":
        pieces = draw(st.lists(st.binary(max_size=600), min_size=1, max_size=3))
        sections = b"".join(draw(DESCRIPTORS)(0x75) + encode_binary(piece) for piece in pieces)
        return sections, b"".join(pieces), "data"
    if kind == "sequence":
        lists = [
            encode(items)
            for items in draw(st.lists(st.lists(VALUES, max_size=3), min_size=1, max_size=2))
        ]
        sections = b"".join(draw(DESCRIPTORS)(0x76) + one for one in lists)
        return sections, b"".join(lists), "sequence"
    value = draw(VALUES)
    encoded = encode(value)
    content: bytes | None = encoded
    if isinstance(value, str | Symbol):
        content = (value.value if isinstance(value, Symbol) else value).encode()
    elif isinstance(value, bytes):
        content = value
    elif value is None:
        content = None
    return b"\x00\x53\x77" + encoded, content, "value"


@st.composite
def messages(draw: st.DrawFn) -> Written:
    row: dict[str, object] = dict.fromkeys(ALL)
    sections: list[bytes] = []
    ttl_ms = draw(st.none() | st.integers(0, 2**32 - 1))
    if draw(st.booleans()):
        shown_ttl = NULL if ttl_ms is None else encode_uint(ttl_ms)
        sections.append(encode_fields(codes.HEADER, [b"\x41", NULL, shown_ttl]))
        row["time_to_live_ms"] = ttl_ms
    if draw(st.booleans()):
        sections.append(draw(_annotations(row)))
    if draw(st.booleans()):
        sections.append(draw(_properties(row)))
    row["properties"], row["properties_json"] = [], None
    if draw(st.booleans()):
        named = draw(st.dictionaries(TEXT, VALUES, max_size=5))
        pairs = [
            part for name, value in named.items() for part in (encode_text(name), encode(value))
        ]
        sections.append(b"\x00\x53\x74" + compound(codes.MAP8, pairs))
        row["properties"] = [(name, shown(value)) for name, value in named.items()]
        row["properties_json"] = {name: plain_of(value) for name, value in named.items()}
    body, row["body"], row["body_kind"] = draw(bodies())
    sections.append(body)
    if draw(st.booleans()) or not b"".join(sections):
        sections.append(b"\x00\x53\x78" + compound(codes.MAP8, []))
    return Written(b"".join(sections), row)


@st.composite
def _annotations(draw: st.DrawFn, row: dict[str, object]) -> bytes:
    row["partition_key"] = draw(TEXTS)
    at_ms = draw(st.none() | st.integers(1, 4_102_444_800_000))
    row["scheduled_time"] = None if at_ms is None else moment(at_ms)
    others = draw(st.dictionaries(NAMES, VALUES, max_size=4))
    named: dict[str, bytes] = {
        "x-opt-partition-key": NULL
        if row["partition_key"] is None
        else encode_text(str(row["partition_key"])),
        "x-opt-scheduled-enqueue-time": NULL if at_ms is None else encode(Timestamp(at_ms)),
        "x-opt-sequence-number": encode(7),
        **{name: encode(value) for name, value in others.items()},
    }
    row["annotations"] = [(name, shown(value)) for name, value in others.items()]
    pairs = [part for name, value in named.items() for part in (encode_symbol(name), value)]
    return b"\x00\x53\x72" + compound(codes.MAP8, pairs)


@st.composite
def _properties(draw: st.DrawFn, row: dict[str, object]) -> bytes:
    message_id, row["message_id"] = draw(identifiers())
    correlation_id, row["correlation_id"] = draw(identifiers())
    for name in ("to", "subject", "reply_to", "content_type", "session_id", "reply_to_session_id"):
        row[name] = draw(TEXTS)

    def text(name: str) -> bytes:
        value = row[name]
        return NULL if value is None else encode_text(str(value))

    fields = [
        message_id,
        NULL,
        *(text(name) for name in ("to", "subject", "reply_to")),
        correlation_id,
        text("content_type"),
        NULL,
        NULL,
        encode(Timestamp(5)),
        text("session_id"),
        encode_uint(3),
        text("reply_to_session_id"),
    ]
    return encode_fields(codes.PROPERTIES, fields)


@given(st.lists(messages(), min_size=1, max_size=3))
def test_a_row_shows_what_its_message_says(written: list[Written]) -> None:
    """P1."""
    buffer = b"".join(one.payload for one in written)
    rows = Rows(wanted_for(ALL))
    at = 0
    for number, one in enumerate(written, 1):
        end = at + len(one.payload)
        rows.add_plain(number, 1_000 * number, 2_000 * number, buffer, at, end)
        at = end

    batch = BatchMaker(ALL, 7).batch(rows, buffer)

    batch.validate(full=True)
    for number, (found, one) in enumerate(zip(batch.to_pylist(), written, strict=True), 1):
        as_json, whole = found.pop("properties_json"), found.pop("amqp")
        expected = {
            **one.row,
            "sequence_number": number,
            "fragment": 7,
            "enqueued_time": moment(1_000 * number),
            "expires_time": moment(2_000 * number),
            "state": "active",
            "delivery_count": 0,
            "annotations": one.row["annotations"] or [],
        }
        expected_json = expected.pop("properties_json")
        assert expected.pop("amqp") is None
        assert one.payload.startswith(whole)
        left_out, body = one.payload[len(whole) :], found["body"] or b""
        # A body that is left out has its length before it, in one byte or in four.
        assert not left_out or (left_out.endswith(body) and len(left_out) - len(body) in (2, 5))
        assert (None if as_json is None else json.loads(as_json)) == expected_json
        assert found == expected


@given(messages(), st.dictionaries(TEXT, VALUES, max_size=3), TEXTS, TEXTS)
def test_what_settling_changed_is_shown_over_what_was_sent(
    written: Written, modified: dict[str, Value], reason: str | None, description: str | None
) -> None:
    """P1."""
    entry = Entry(
        9,
        written.payload,
        len(written.payload),
        enqueued_at_ms=1_000,
        delivery_count=4,
        line=DEAD_LETTER_LINE,
        state=DEFERRED,
        reason=reason,
        description=description,
        modified=pack({name: encode(value) for name, value in modified.items()}),
    )
    rows = Rows(wanted_for(list(COLUMNS)))
    rows.add_entry(entry, written.payload, 0, len(written.payload))

    [found] = BatchMaker(list(COLUMNS), 0).batch(rows, written.payload).to_pylist()

    sent = written.row["properties"]
    assert isinstance(sent, list)
    expected = dict(sent) | {name: shown(value) for name, value in modified.items()}
    if reason is not None:
        expected["DeadLetterReason"] = reason
    if description is not None:
        expected["DeadLetterErrorDescription"] = description
    assert dict(found["properties"]) == expected
    assert found["dead_letter_reason"] == reason
    assert found["dead_letter_description"] == description
    assert found["state"] == "deferred"
    assert found["delivery_count"] == 4
    assert found["body"] == written.row["body"]


def rows_of(*payloads: bytes) -> tuple[Rows, bytes, list[bool]]:
    """Messages numbered from 1 on, and which of them could be read."""
    rows, at = Rows(wanted_for(ALL)), 0
    buffer = b"".join(payloads)
    read: list[bool] = []
    for number, payload in enumerate(payloads, 1):
        read.append(rows.add_plain(number, 1_000, 0, buffer, at, at + len(payload)))
        at += len(payload)
    return rows, buffer, read


@given(messages(), messages(), st.data())
def test_bytes_that_are_no_message_cost_their_own_row_and_no_other(
    before: Written, after: Written, data: st.DataObject
) -> None:
    """P1: a checksum that is right does not make a message of what a broken disk wrote."""
    broken = bytearray(data.draw(messages()).payload)
    for _ in range(data.draw(st.integers(1, 4))):
        broken[data.draw(st.integers(0, len(broken) - 1))] = data.draw(st.integers(0, 255))
    is_accepted = True
    try:
        scan_message(bytes(broken))
    except DecodeError:
        is_accepted = False

    rows, buffer, read = rows_of(before.payload, bytes(broken), after.payload)
    batch = BatchMaker(ALL, 0).batch(rows, buffer)

    batch.validate(full=is_accepted)
    assert read[0] and read[2]
    assert read[1] or not is_accepted, "what the bus takes can be read"
    shown_rows = {row["sequence_number"]: row for row in batch.drop_columns(UNSURE).to_pylist()}
    assert set(shown_rows) == {number for number, is_read in enumerate(read, 1) if is_read}
    for number, written in ((1, before), (3, after)):
        assert shown_rows[number]["body"] == written.row["body"]
        assert shown_rows[number]["body_kind"] == written.row["body_kind"]


def test_texts_that_are_no_utf_8_are_shown_as_they_are_encoded() -> None:
    """P1: nobody checks annotations and symbols of what comes in, and Arrow believes it."""
    odd = b"\xa3\x02\xff\x61"
    annotations = compound(
        codes.MAP8, [encode_symbol("a"), odd, b"\xa1\x02\xfe\x62", encode_text("b")]
    )
    properties = compound(codes.MAP8, [encode_text("c"), odd])
    payload = b"\x00\x53\x72" + annotations + b"\x00\x53\x74" + properties
    scan_message(payload)

    rows, buffer, _ = rows_of(payload)
    batch = BatchMaker(ALL, 0).batch(rows, buffer)

    batch.validate(full=True)
    [row] = batch.to_pylist()
    assert row["annotations"] == [("a", "owL/YQ=="), ("oQL+Yg==", "b")]
    assert row["properties"] == [("c", "owL/YQ==")]


def test_of_two_partition_keys_the_last_one_counts_as_for_the_bus() -> None:
    key = encode_symbol("x-opt-partition-key")
    annotations = compound(codes.MAP8, [key, encode_text("a"), key, encode_text("b")])
    payload = b"\x00\x53\x72" + annotations + b"\x00\x53\x77\x40"
    assert scan_message(payload).partition_key == "b"

    rows, buffer, _ = rows_of(payload, payload)
    batch = BatchMaker(ALL, 0).batch(rows, buffer)

    assert batch.column("partition_key").to_pylist() == ["b", "b"]


def test_a_value_inside_a_container_that_cannot_be_decoded_is_shown_as_it_is_encoded() -> None:
    """P1: sizes of containers were checked, not what is in them."""
    bad_list = b"\xc0\x03\x02\x3f\x3f"
    big_character = b"\x73\xff\xff\xff\xff"
    properties = compound(codes.MAP8, [encode_text("a"), bad_list, encode_text("b"), big_character])
    payload = b"\x00\x53\x74" + properties
    scan_message(payload)

    rows, buffer, read = rows_of(payload)
    [row] = BatchMaker(ALL, 0).batch(rows, buffer).to_pylist()

    assert read == [True]
    assert row["properties"] == [("a", "wAMCPz8="), ("b", "c/////8=")]
