"""Rows that bring their message along: sent as it was, with what the row says otherwise (P5)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import pyarrow as pa
import pytest

from shardbus.codec import codes
from shardbus.codec.encoder import (
    NULL,
    compound,
    encode,
    encode_binary,
    encode_fields,
    encode_symbol,
    encode_text,
)
from shardbus.codec.errors import EncodeError
from shardbus.codec.types import Described, Int, Symbol, Ulong, Value
from shardbus.core.message import DEAD_LETTER_LINE, Entry
from shardbus.core.properties import pack
from shardbus.gateway.flight.reading.batches import BatchMaker, wanted_for
from shardbus.gateway.flight.reading.rows import Rows
from shardbus.gateway.flight.reading.schema import COLUMNS
from shardbus.gateway.flight.writing.sinking import check_written, drafts_of
from shardbus.message.sections import decode_message

SHOWN: Final = [*COLUMNS, "amqp"]
VALUE: Final = b"\x00\x53\x77"
DATA: Final = b"\x00\x53\x75"
PROPERTIES: Final[dict[str, Value]] = {"count": Int(7), "color": "red", "gone": Ulong(3)}
Row = dict[str, object]


def message(body: bytes = DATA + encode_binary(b"body")) -> bytes:
    """One with a header, an annotation, an id that is a number, and typed properties."""
    pairs = [part for name, value in PROPERTIES.items() for part in (encode(name), encode(value))]
    fields = [encode(Ulong(5)), b"\xa0\x01u", NULL, encode_text("subject")]
    return b"".join(
        [
            b"\x00\x53\x70" + compound(codes.LIST8, [b"\x41", b"\x50\x09", b"\x52\x64"]),
            b"\x00\x53\x72" + compound(codes.MAP8, [encode_symbol("x-own"), encode(Int(1))]),
            encode_fields(codes.PROPERTIES, fields),
            b"\x00\x53\x74" + compound(codes.MAP8, pairs),
            body,
        ]
    )


def shown(*entries: Entry) -> list[Row]:
    rows, at = Rows(wanted_for(SHOWN)), 0
    buffer = b"".join([entry.payload or b"" for entry in entries])
    for entry in entries:
        end = at + entry.size_bytes
        assert rows.add_entry(entry, buffer, at, end)
        at = end
    return BatchMaker(SHOWN, 0).batch(rows, buffer).to_pylist()


def row_of(payload: bytes, **changed: object) -> Row:
    [row] = shown(Entry(1, payload, len(payload), enqueued_at_ms=1))
    return {**row, **changed}


def written(rows: Iterable[Row], first_row: int = 0) -> list[bytes]:
    documents = list(rows)
    types = COLUMNS | {"amqp": pa.binary()}
    schema = pa.schema([(name, types[name]) for name in documents[0]])
    check_written(schema)
    return drafts_of(pa.RecordBatch.from_pylist(documents, schema), first_row).encoded()


def test_a_row_that_nobody_changed_is_the_message_it_was_read_from() -> None:
    payloads = [
        message(),
        message(VALUE + encode(Int(7))),
        message(DATA + encode_binary(b"a") + DATA + encode_binary(b"b")),
        message(DATA + encode_binary(b"a") + b"\x00\x53\x78" + compound(codes.MAP8, [])),
        message(VALUE + encode_text("\0Su")),
        message(b""),
    ]

    assert written([row_of(payload) for payload in payloads]) == payloads


def test_the_body_of_plain_data_is_in_a_row_once() -> None:
    row = row_of(message(DATA + encode_binary(b"x" * 5_000)))

    assert row["body"] == b"x" * 5_000
    assert row["amqp"] == message(DATA)


def test_columns_that_cannot_be_written_and_those_left_out_change_nothing() -> None:
    row = row_of(message(), state="deferred", annotations=[], delivery_count=9, fragment=3)
    few = {name: row[name] for name in ("amqp", "body")}

    assert written([row]) == written([few]) == [message()]


def test_a_changed_text_is_changed_alone() -> None:
    [found] = written([row_of(message(), subject="new", session_id="s", partition_key="s")])

    head = decode_message(found).head
    assert (head.subject, head.session_id, head.partition_key) == ("new", "s", "s")
    assert head.message_id_raw == encode(Ulong(5))
    assert (head.priority, head.durable, head.ttl_ms, head.user_id) == (9, 1, 100, b"u")
    assert head.kept_annotations.startswith(encode_symbol("x-own") + encode(Int(1)))


def test_a_changed_id_is_a_text_and_null_takes_away() -> None:
    [found] = written([row_of(message(), message_id="m", subject=None, time_to_live_ms=None)])

    head = decode_message(found).head
    assert (head.message_id_raw, head.subject, head.ttl_ms) == (encode_text("m"), None, -1)
    assert head.priority == 9


def test_properties_are_changed_by_name_and_the_others_keep_their_types() -> None:
    pairs = [("count", "7"), ("color", "blue"), ("new", None)]

    [found] = written([row_of(message(), properties=pairs)])

    properties = decode_message(found).application_properties
    assert {name: encode(value) for name, value in properties.items()} == {
        "count": encode(Int(7)),
        "color": encode("blue"),
        "new": NULL,
    }


def test_the_reason_of_a_dead_letter_is_not_in_its_message_and_what_settling_changed_is() -> None:
    payload = message()
    entry = Entry(
        1,
        payload,
        len(payload),
        enqueued_at_ms=1,
        line=DEAD_LETTER_LINE,
        reason="why",
        description="how",
        modified=pack({"count": encode(Int(8)), "tries": encode(Ulong(2))}),
    )
    rows = shown(entry)

    [found] = written(rows)

    shown_properties = rows[0]["properties"]
    assert isinstance(shown_properties, list)
    assert ("DeadLetterReason", "why") in shown_properties
    properties = decode_message(found).application_properties
    assert {name: encode(value) for name, value in properties.items()} == {
        "color": encode("red"),
        "gone": encode(Ulong(3)),
        "count": encode(Int(8)),
        "tries": encode(Ulong(2)),
    }
    assert decode_message(found).body == b"body"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (DATA + encode_binary(b"a"), DATA + encode_binary(b"new")),
        (DATA + encode_binary(b"a") + DATA + encode_binary(b"b"), DATA + encode_binary(b"new")),
        (VALUE + encode_text("a"), VALUE + encode_text("new")),
        (VALUE + encode_binary(b"a"), VALUE + encode_binary(b"new")),
        (VALUE + encode(Int(1)), DATA + encode_binary(b"new")),
        (VALUE + encode(Described(Symbol("d"), "a")), DATA + encode_binary(b"new")),
        (b"\x00\x53\x76" + encode(["a"]), DATA + encode_binary(b"new")),
        (b"", DATA + encode_binary(b"new")),
    ],
)
def test_a_changed_body_keeps_the_kind_that_it_can_keep(before: bytes, after: bytes) -> None:
    footer = b"\x00\x53\x78" + compound(codes.MAP8, [encode_symbol("f"), encode("f")])

    assert written([row_of(message(before), body=b"new")]) == [message(after)]
    assert written([row_of(message(before + footer), body=b"new")]) == [message(after + footer)]


def test_a_value_that_was_text_and_is_not_any_more_is_data() -> None:
    [found] = written([row_of(message(VALUE + encode_text("a")), body=b"\xff")])

    assert found == message(DATA + encode_binary(b"\xff"))


def test_bodies_that_are_texts_are_compared_as_bytes() -> None:
    payload = message(VALUE + encode_text("é"))
    batch = pa.RecordBatch.from_pydict(
        {"amqp": pa.array([payload], pa.large_binary()), "body": pa.array(["é"])}
    )

    assert drafts_of(batch).encoded() == [payload]


def test_rows_with_and_without_a_message_may_be_mixed() -> None:
    rows = [row_of(message()), row_of(message(), amqp=None), row_of(message(), subject="x")]

    first, second, third = written(rows)

    assert first == message()
    assert decode_message(second).head.message_id_raw == encode_text("5")
    assert decode_message(third).head.message_id_raw == encode(Ulong(5))


def test_rows_of_a_table_from_before_there_were_messages_in_it_are_made_of_their_columns() -> None:
    rows = [row_of(message(), amqp=None), row_of(message(), amqp=None)]

    for found in written(rows):
        assert decode_message(found).application_properties == {
            "count": "7",
            "color": "red",
            "gone": "3",
        }


def test_what_a_careless_client_would_write_is_read_as_the_bus_reads_it() -> None:
    loose = b"\x00\x53\x73" + compound(codes.LIST8, [NULL, NULL, NULL, b"\xa0\x01s"]) + DATA
    row: Row = {"amqp": loose, "body": b"b", "subject": "s"}

    [found] = written([row])

    assert found == encode_fields(codes.PROPERTIES, [NULL] * 3 + [encode_text("s")]) + (
        DATA + encode_binary(b"b")
    )


@pytest.mark.parametrize(
    "odd", [b"", b"no message", DATA + b"\xb0\xff", message()[:-2], DATA + DATA]
)
def test_bytes_that_are_no_message_are_refused_with_their_row(odd: bytes) -> None:
    rows = [row_of(message()), row_of(message(), amqp=odd, message_id="m-17")]

    with pytest.raises(EncodeError, match=r"row 41\b.*'m-17'.*\bamqp\b"):
        written(rows, first_row=40)


@pytest.mark.parametrize("names", [("amqp",), ("amqp", "body")])
def test_a_message_without_its_body_is_refused_with_its_row(names: tuple[str, ...]) -> None:
    row = row_of(message(), body=None)

    with pytest.raises(EncodeError, match=r"row 7\b.*\bamqp\b.*\bbody\b"):
        written([{name: row[name] for name in names}], first_row=7)


def test_a_time_to_live_that_cannot_be_is_refused_with_its_row() -> None:
    with pytest.raises(EncodeError, match=r"time_to_live_ms\b.* -5\b.*row 12\b"):
        written([row_of(message(), time_to_live_ms=-5)], first_row=12)
