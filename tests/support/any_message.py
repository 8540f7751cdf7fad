"""Messages of every kind that AMQP can carry, as bytes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from shardbus.codec import codes
from shardbus.codec.decoder import ValueReader
from shardbus.codec.encoder import (
    compound,
    encode,
    encode_binary,
    encode_fields,
    encode_symbol,
    encode_text,
    encode_uint,
)
from shardbus.codec.types import (
    Array,
    Char,
    Described,
    Map,
    Symbol,
    Timestamp,
    Ubyte,
    Ulong,
    Uuid,
    Value,
)
from shardbus.core.message import Entry
from shardbus.message.scan import section_code
from shardbus.message.stored import DeliverySource, encode_entry
from tests.model.amqp.values import ELEMENTS, FIXED_WIDTH

Section = tuple[int, bytes]

NULL: Final = b"\x40"
_PLACE: Final = DeliverySource(is_partitioned=False, is_subscription=False)
LATEST_MS: Final = 253_402_300_799_999
# Mostly short, now and then longer than what one byte can tell.
TEXT: Final = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8), st.just("é" * 200)
)
KEYS: Final = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
NAMES: Final = st.sampled_from(["a", "x-", "x-own", "x-opt-mine", "name", "n" * 255, "n" * 300])
# Nothing that is not text: half of a surrogate pair is a char to AMQP and to nobody else.
SIMPLE: Final[st.SearchStrategy[Value]] = st.one_of(
    st.none(),
    st.booleans(),
    TEXT,
    st.binary(max_size=300),
    st.sampled_from([Symbol("s"), Symbol("")]),
    st.just(math.nan),
    st.characters(exclude_categories=["Cs"]).map(lambda one: Char(ord(one))),
    *(ELEMENTS[code] for code in sorted(ELEMENTS.keys() & FIXED_WIDTH) if code != codes.CHAR),
)
VALUES: Final[st.SearchStrategy[Value]] = st.one_of(
    SIMPLE,
    st.lists(SIMPLE, max_size=3),
    st.dictionaries(TEXT, SIMPLE, max_size=2).map(lambda pairs: Map(list(pairs.items()))),
    st.lists(st.integers(0, 255).map(Ubyte), max_size=3).map(
        lambda items: Array(codes.UBYTE, list(items))
    ),
    SIMPLE.map(lambda value: Described(Symbol("com.microsoft:timespan"), value)),
)
_DESCRIPTORS: Final[st.SearchStrategy[Callable[[int], bytes]]] = st.sampled_from(
    [
        lambda code: bytes((0, codes.SMALLULONG, code)),
        lambda code: bytes((0, codes.ULONG, 0, 0, 0, 0, 0, 0, 0, code)),
    ]
)


def _optional(values: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    return st.one_of(st.just(NULL), values)


_FLAG: Final = _optional(st.sampled_from([b"\x41", b"\x42", b"\x56\x01"]))
_STRING: Final = _optional(TEXT.map(encode_text))
_KEY: Final = _optional(KEYS.map(encode_text))
_SYMBOL: Final = _optional(st.sampled_from(["text/plain", "gzip", ""]).map(encode_symbol))
_MOMENT: Final = _optional(
    st.one_of(st.integers(0, LATEST_MS), st.integers(LATEST_MS // 2, LATEST_MS)).map(
        lambda ms: encode(Timestamp(ms))
    )
)
_IDENTIFIER: Final = _optional(
    st.one_of(
        KEYS.map(encode_text),
        st.binary(min_size=16, max_size=16).map(lambda raw: encode(Uuid(raw))),
        st.integers(0, 2**64 - 1).map(lambda number: encode(Ulong(number))),
        st.binary(max_size=40).map(encode_binary),
    )
)
_UINT: Final = _optional(st.integers(0, 2**32 - 1).map(encode_uint))


@st.composite
def _map(draw: st.DrawFn, code: int, keys: st.SearchStrategy[bytes]) -> bytes:
    pairs = draw(st.dictionaries(keys, VALUES.map(encode), max_size=4))
    entries = [part for pair in pairs.items() for part in pair]
    return draw(_DESCRIPTORS)(code) + compound(codes.MAP8, entries)


@st.composite
def _annotations(draw: st.DrawFn) -> bytes:
    pairs = draw(st.dictionaries(NAMES.map(encode_symbol), VALUES.map(encode), max_size=4))
    if draw(st.booleans()):
        pairs[encode_symbol("x-opt-partition-key")] = draw(_KEY)
    if draw(st.booleans()):
        pairs[encode_symbol("x-opt-scheduled-enqueue-time")] = draw(_MOMENT)
    if draw(st.booleans()):
        pairs[encode_symbol("x-opt-sequence-number")] = encode(7)
    entries = [part for pair in pairs.items() for part in pair]
    return b"\x00\x53\x72" + compound(codes.MAP8, entries)


@st.composite
def _body(draw: st.DrawFn) -> bytes:
    kind = draw(st.sampled_from([codes.DATA, codes.DATA, codes.AMQP_VALUE, codes.AMQP_SEQUENCE, 0]))
    describe = draw(_DESCRIPTORS)
    if kind == codes.DATA:
        # Content that looks like the beginning of a section is content all the same.
        pieces = draw(
            st.lists(st.binary(max_size=600) | st.just(b"\x00\x53\x75"), min_size=1, max_size=3)
        )
        return b"".join([describe(kind) + encode_binary(piece) for piece in pieces])
    if kind == codes.AMQP_VALUE:
        return describe(kind) + encode(draw(VALUES | st.just("\0Su")))
    if kind == codes.AMQP_SEQUENCE:
        lists = draw(st.lists(st.lists(VALUES, max_size=3), min_size=1, max_size=2))
        return b"".join([describe(kind) + encode(one) for one in lists])
    return b""


_HEADER: Final = st.tuples(_FLAG, _optional(st.integers(0, 255).map(lambda n: encode(Ubyte(n)))))
_PROPERTIES: Final = st.tuples(
    _IDENTIFIER,
    _optional(st.binary(max_size=20).map(encode_binary)),
    _STRING,
    _STRING,
    _STRING,
    _IDENTIFIER,
    _SYMBOL,
    _SYMBOL,
    _MOMENT,
    _MOMENT,
    _KEY,
    _UINT,
    _KEY,
)


@st.composite
def any_message(draw: st.DrawFn) -> bytes:
    """A message as a client may send it, each section there or not."""
    sections: list[bytes] = []
    if draw(st.booleans()):
        durable, priority = draw(_HEADER)
        fields = [durable, priority, draw(_UINT), draw(_FLAG), draw(_UINT)]
        sections.append(encode_fields(codes.HEADER, fields))
    if draw(st.booleans()):
        sections.append(draw(_map(codes.DELIVERY_ANNOTATIONS, NAMES.map(encode_symbol))))
    if draw(st.booleans()):
        sections.append(draw(_annotations()))
    if draw(st.booleans()):
        sections.append(encode_fields(codes.PROPERTIES, list(draw(_PROPERTIES))))
    if draw(st.booleans()):
        sections.append(draw(_map(codes.APPLICATION_PROPERTIES, TEXT.map(encode_text))))
    sections.append(draw(_body()))
    if not b"".join(sections) or draw(st.booleans()):
        sections.append(draw(_map(codes.FOOTER, NAMES.map(encode_symbol))))
    return b"".join(sections)


def as_received(payload: bytes) -> list[Section]:
    """The sections that a receiver gets of a message that was never tried before, with their
    values as encoded; contents of data sections are told by their bytes alone.
    """
    entry = Entry(1, payload, len(payload), enqueued_at_ms=1)
    given = encode_entry(entry, payload, _PLACE, delivery_count=0, lock_token=b"")
    reader, sections = ValueReader(given, 0, len(given)), list[Section]()
    while reader.position < len(given):
        code, start = int(section_code(reader)), int(reader.position)
        value = reader.value() if code == codes.DATA else reader.raw()
        assert isinstance(value, bytes)
        sections.append((code, value))
        assert reader.position > start
    return sections


def generated(count: int) -> list[bytes]:
    """So many messages, always the same ones, for tests that cannot be run for each."""
    found: list[bytes] = []

    @settings(
        max_examples=count,
        phases=[Phase.generate],
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(any_message())
    def collect(payload: bytes) -> None:
        found.append(payload)

    collect()
    return found
