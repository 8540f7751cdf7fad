"""What is captured and replayed is the message that was sent: whatever AMQP can carry."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from shardbus.codec import codes
from shardbus.codec.encoder import encode
from shardbus.codec.types import Value
from shardbus.core.message import (
    ACTIVE,
    DEAD_LETTER_LINE,
    DEFERRED,
    MAIN_LINE,
    SCHEDULED,
    Entry,
)
from shardbus.core.properties import pack
from shardbus.gateway.flight.reading.batches import BatchMaker, wanted_for
from shardbus.gateway.flight.reading.rows import Rows
from shardbus.gateway.flight.reading.schema import COLUMNS
from shardbus.gateway.flight.writing.sinking import check_written, drafts_of
from shardbus.message.sections import decode_message, encode_batch
from shardbus.message.sent import read_batch, read_message
from tests.support.any_message import TEXT, VALUES, any_message, as_received

SENT_AT_MS = 1_700_000_000_000
REPLAYED_AT_MS = SENT_AT_MS + 1_000_000
CAPTURED = [*COLUMNS, "amqp"]
TEXTS = st.none() | TEXT


def stored(payload: bytes, now_ms: int = SENT_AT_MS) -> bytes:
    """What the bus keeps of what a client sent."""
    return read_message(payload, now_ms).payload


def captured(*entries: Entry, columns: list[str] = CAPTURED) -> pa.RecordBatch:
    """The rows of messages as the lane gives them."""
    rows, at = Rows(wanted_for(columns)), 0
    buffer = b"".join([entry.payload or b"" for entry in entries])
    for entry in entries:
        end = at + len(entry.payload or b"")
        assert rows.add_entry(entry, buffer, at, end)
        at = end
    return BatchMaker(columns, 0).batch(rows, buffer)


def replayed(rows: pa.RecordBatch) -> list[bytes]:
    """What the bus keeps of rows that a sink wrote."""
    check_written(rows.schema)
    piece = encode_batch(drafts_of(rows).encoded())
    return [one.payload for one in read_batch(piece, REPLAYED_AT_MS, 1 << 20, "q")]


def properties_of(payload: bytes) -> dict[str, bytes]:
    """Application properties, as encoded: numbers that are none are alike that way."""
    found = decode_message(payload).application_properties
    return {name: encode(value) for name, value in found.items()}


def entry_of(number: int, payload: bytes, **more: object) -> Entry:
    entry = Entry(number, payload, len(payload), enqueued_at_ms=SENT_AT_MS)
    for name, value in more.items():
        setattr(entry, name, value)
    return entry


@settings(deadline=None)
@given(
    st.lists(st.tuples(any_message(), st.sampled_from([ACTIVE, DEFERRED, SCHEDULED])), max_size=4)
)
def test_a_replayed_message_is_what_was_sent(sent: list[tuple[bytes, int]]) -> None:
    """P5: body kinds, types, header, annotations, properties, footer; in whatever state."""
    kept = [(stored(payload), state) for payload, state in sent]
    entries = [entry_of(at, payload, state=state) for at, (payload, state) in enumerate(kept, 1)]

    found = replayed(captured(*entries)) if entries else []

    assert [as_received(one) for one in found] == [as_received(one) for one, _ in kept]


@settings(deadline=None)
@given(
    any_message(),
    st.dictionaries(TEXT, VALUES, max_size=3),
    TEXTS,
    TEXTS,
    st.sampled_from([MAIN_LINE, DEAD_LETTER_LINE]),
)
def test_a_replayed_dead_letter_is_what_its_last_receiver_left(
    sent: bytes, modified: dict[str, Value], reason: str | None, description: str | None, line: int
) -> None:
    """P5: with the properties that settling changed, without what the bus said of its end."""
    payload = stored(sent)
    entry = entry_of(
        9,
        payload,
        line=line,
        reason=reason,
        description=description,
        modified=pack({name: encode(value) for name, value in modified.items()}),
        delivery_count=3,
    )

    [found] = replayed(captured(entry))

    expected = decode_message(payload).application_properties | modified
    assert properties_of(found) == {name: encode(value) for name, value in expected.items()}
    others = [section for section in as_received(found) if section[0] != 0x74]
    assert others == [section for section in as_received(payload) if section[0] != 0x74]


_TEXT_COLUMNS = (
    "message_id",
    "session_id",
    "partition_key",
    "correlation_id",
    "subject",
    "content_type",
    "to",
    "reply_to",
    "reply_to_session_id",
)


@settings(deadline=None)
@given(
    any_message(),
    st.dictionaries(st.sampled_from(_TEXT_COLUMNS), st.none() | st.just("new"), max_size=3),
    st.none() | st.integers(0, 2**32 - 2),
    st.none() | st.binary(max_size=9),
    st.dictionaries(TEXT, st.none() | st.just("new"), max_size=2),
)
def test_what_was_changed_in_a_row_is_changed_in_its_message_and_nothing_else_is(
    sent: bytes,
    texts: dict[str, str | None],
    ttl_ms: int | None,
    body: bytes | None,
    properties: dict[str, str | None],
) -> None:
    """P5: the replayed message shows what the row said; columns nobody touched, as before."""
    [row] = captured(entry_of(1, stored(sent))).to_pylist()
    changed = {**row, **texts}
    changed["properties"] = list({**dict(row["properties"]), **properties}.items())
    if ttl_ms is not None:
        changed["time_to_live_ms"] = ttl_ms
    if body is not None:
        changed["body"] = body
    batch = pa.RecordBatch.from_pylist([changed], captured(entry_of(1, stored(sent))).schema)

    [found] = replayed(batch)

    [shown] = captured(entry_of(1, found)).to_pylist()
    if row["body_kind"] != "data" and changed["body"] != row["body"]:
        assert shown["body"] == changed["body"]
    for name in ("body_kind", "amqp"):
        changed.pop(name), shown.pop(name)
    assert dict(shown.pop("properties")) == dict(changed.pop("properties"))
    assert shown == changed
    kept = {code for code, _ in as_received(stored(sent))} - {codes.PROPERTIES}
    assert kept <= {code for code, _ in as_received(found)} | {
        codes.DATA,
        codes.AMQP_VALUE,
        codes.AMQP_SEQUENCE,
        codes.DELIVERY_ANNOTATIONS,
    }
