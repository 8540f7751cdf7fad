"""Rows that clients put, as messages (P3)."""

from __future__ import annotations

import struct
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from shardbus.codec.errors import EncodeError
from shardbus.core.errors import INVALID_ARGUMENT
from shardbus.gateway.flight.reading.schema import COLUMNS, schema_of
from shardbus.gateway.flight.writing.sinking import check_written, drafts_of
from shardbus.message.sections import DecodedMessage, decode_message
from tests.support.refusals import refusal_of

TEXTS = pa.map_(pa.string(), pa.string())


def messages(batch: pa.RecordBatch) -> list[DecodedMessage]:
    check_written(batch.schema)
    return [decode_message(payload) for payload in drafts_of(batch).encoded()]


def test_every_column_of_a_row_is_in_its_message() -> None:
    moment = datetime(2030, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
    row = {
        "body": b"\x00\xff",
        "message_id": "m",
        "session_id": "s",
        "partition_key": "s",
        "correlation_id": "c",
        "subject": "subject é",
        "content_type": "text/plain",
        "to": "there",
        "reply_to": "here",
        "reply_to_session_id": "other",
        "time_to_live_ms": 5_000,
        "scheduled_time": moment,
        "properties": [("a", "1"), ("b", None)],
    }

    [message] = messages(pa.RecordBatch.from_pylist([row], _schema(*row)))

    head = message.head
    assert message.body == b"\x00\xff"
    assert message.application_properties == {"a": "1", "b": None}
    assert (head.message_id, head.session_id, head.partition_key) == ("m", "s", "s")
    assert (head.correlation_id, head.subject, head.content_type) == (
        "c",
        "subject é",
        "text/plain",
    )
    assert (head.to, head.reply_to, head.reply_to_session_id) == ("there", "here", "other")
    assert (head.ttl_ms, head.scheduled_enqueue_ms) == (5_000, int(moment.timestamp() * 1000))


def test_what_is_null_is_left_out() -> None:
    names = [name for name in COLUMNS if name not in ("state", "body_kind")]
    row = dict.fromkeys(names)

    [message] = messages(pa.RecordBatch.from_pylist([row], schema_of(names)))

    assert message.body == b""
    assert message.application_properties == {}
    assert message.head.properties_length == 0
    assert message.head.message_annotations_length == 0
    assert message.head.header_length == 0


def test_a_text_is_a_body_in_utf_8() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array(["é", None])], ["body"])

    assert [message.body for message in messages(batch)] == ["é".encode(), b""]


def test_properties_of_a_slice_and_of_null_maps_are_those_of_their_rows() -> None:
    maps = pa.array([[("a", "1")], None, [], [("b", "2"), ("c", "3")]], TEXTS)
    batch = pa.RecordBatch.from_arrays([pa.array([b"x"] * 4), maps], ["body", "properties"])

    whole = [message.application_properties for message in messages(batch)]
    sliced = [message.application_properties for message in messages(batch.slice(1))]

    assert whole == [{"a": "1"}, {}, {}, {"b": "2", "c": "3"}]
    assert sliced == whole[1:]


def test_moments_of_any_zone_and_unit_are_the_same_moment() -> None:
    for kind in (pa.timestamp("us", "Etc/UTC"), pa.timestamp("ns", "UTC"), pa.timestamp("ms")):
        moments = pa.array([datetime(2030, 1, 1)], kind)  # noqa: DTZ001 - the type has the zone
        batch = pa.RecordBatch.from_arrays([pa.array([b"x"]), moments], ["body", "scheduled_time"])

        [message] = messages(batch)

        assert message.head.scheduled_enqueue_ms == 1_893_456_000_000


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("price", pa.int64()),
        ("body", pa.int64()),
        ("message_id", pa.binary()),
        ("time_to_live_ms", pa.string()),
        ("scheduled_time", pa.int64()),
        ("properties", pa.string()),
        ("properties", pa.map_(pa.string(), pa.int64())),
    ],
)
def test_a_column_that_cannot_be_is_named(name: str, kind: pa.DataType) -> None:
    with refusal_of(INVALID_ARGUMENT, f"'{name}'", str(kind)):
        check_written(pa.schema([pa.field(name, kind)]))


@pytest.mark.parametrize("ttl_ms", [-1, 1 << 32])
def test_a_time_to_live_that_cannot_be_is_refused_with_its_row(ttl_ms: int) -> None:
    batch = pa.RecordBatch.from_arrays(
        [pa.array([b"x", b"y"]), pa.array([1, ttl_ms])], ["body", "time_to_live_ms"]
    )

    with pytest.raises(EncodeError, match=rf"{ttl_ms}\b.*row 1\b"):
        messages(batch)


def _schema(*names: str) -> pa.Schema:
    return schema_of(names)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
def test_texts_of_a_slice_are_those_of_its_rows(kind: pa.DataType) -> None:
    """Wherever they lie in memory, with gaps or without."""
    texts = ["first", None, "", "é" * 300, None, "sixth", "seventh", "eighth", "ninth", None]
    columns = [pa.array(texts, kind), pa.array([text or "-" for text in texts], kind)]
    batch = pa.RecordBatch.from_arrays(columns, ["message_id", "body"])

    for start in (0, 1, 3, 9):
        found = messages(batch.slice(start, 6))
        assert [message.head.message_id for message in found] == texts[start : start + 6]
        bodies = [(text or "-").encode() for text in texts[start : start + 6]]
        assert [message.body for message in found] == bodies


def broken_texts() -> pa.StringArray:
    """The second of them is no UTF-8."""
    starts = pa.py_buffer(struct.pack("<iii", 0, 1, 3))
    return pa.StringArray.from_buffers(2, starts, pa.py_buffer(b"a\xff\xfe"))


def test_texts_that_are_no_utf_8_are_refused_by_column_and_row() -> None:
    batch = pa.RecordBatch.from_arrays([broken_texts()], ["message_id"])

    with refusal_of(INVALID_ARGUMENT, "message_id", "1"):
        messages(batch)


def test_a_body_that_is_no_utf_8_is_put_as_it_is() -> None:
    """P3: one such body among the strings of Spark failed the whole write."""
    batch = pa.RecordBatch.from_arrays([broken_texts()], ["body"])

    assert [message.body for message in messages(batch)] == [b"a", b"\xff\xfe"]


def test_a_body_that_lies_nowhere_is_refused() -> None:
    starts = pa.py_buffer(struct.pack("<iii", 0, 9, 3))
    outside = pa.StringArray.from_buffers(2, starts, pa.py_buffer(b"abc"))

    with refusal_of(INVALID_ARGUMENT):
        messages(pa.RecordBatch.from_arrays([outside], ["body"]))


def test_a_batch_without_rows_is_no_message() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([], pa.string())], ["body"])

    assert messages(batch) == []
