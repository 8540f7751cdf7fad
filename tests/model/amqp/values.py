"""Every AMQP value, as Hypothesis draws them."""

import struct

from hypothesis import strategies as st

from shardbus.codec import codes
from shardbus.codec.decoder import is_plain_key
from shardbus.codec.types import (
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Float,
    Int,
    Map,
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


def unsigned(bits: int) -> st.SearchStrategy[int]:
    return st.integers(0, 2**bits - 1)


def signed(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def single(number: float) -> float:
    """The nearest number that 32 bits can hold."""
    value: tuple[float] = struct.unpack(">f", struct.pack(">f", number))
    return value[0]


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)
NAMES = st.text(st.characters(max_codepoint=127), max_size=300)
FLOATS = st.floats(width=32, allow_nan=False)
DOUBLES = st.floats(allow_nan=False)

# By constructor code: what an array of it may hold.
ELEMENTS: dict[int, st.SearchStrategy[Value]] = {
    codes.NULL: st.none(),
    codes.TRUE: st.just(True),
    codes.FALSE: st.just(False),
    codes.UINT0: st.just(Uint(0)),
    codes.ULONG0: st.just(Ulong(0)),
    codes.BOOLEAN: st.booleans(),
    codes.UBYTE: unsigned(8).map(Ubyte),
    codes.BYTE: signed(8).map(Byte),
    codes.SMALLUINT: unsigned(8).map(Uint),
    codes.SMALLULONG: unsigned(8).map(Ulong),
    codes.SMALLINT: signed(8).map(Int),
    codes.SMALLLONG: signed(8),
    codes.USHORT: unsigned(16).map(Ushort),
    codes.SHORT: signed(16).map(Short),
    codes.UINT: unsigned(32).map(Uint),
    codes.INT: signed(32).map(Int),
    codes.FLOAT: FLOATS.map(single).map(Float),
    codes.CHAR: st.integers(0, 0x10FFFF).map(Char),
    codes.DECIMAL32: st.binary(min_size=4, max_size=4).map(Decimal32),
    codes.ULONG: unsigned(64).map(Ulong),
    codes.LONG: signed(64),
    codes.DOUBLE: DOUBLES,
    codes.TIMESTAMP: signed(64).map(Timestamp),
    codes.DECIMAL64: st.binary(min_size=8, max_size=8).map(Decimal64),
    codes.DECIMAL128: st.binary(min_size=16, max_size=16).map(Decimal128),
    codes.UUID: st.binary(min_size=16, max_size=16).map(Uuid),
    codes.BINARY8: st.binary(max_size=255),
    codes.STRING8: st.text(st.characters(max_codepoint=127), max_size=255),
    codes.SYMBOL8: st.text(st.characters(max_codepoint=127), max_size=255).map(Symbol),
    codes.BINARY32: st.binary(max_size=300),
    codes.STRING32: TEXT,
    codes.SYMBOL32: NAMES.map(Symbol),
}
FIXED_WIDTH = frozenset(code for code in ELEMENTS if 0x50 <= code < 0xA0 and code != codes.BOOLEAN)
SCALARS: st.SearchStrategy[Value] = st.one_of(
    st.none(),
    st.booleans(),
    TEXT,
    NAMES.map(Symbol),
    st.binary(max_size=300),
    *(ELEMENTS[code] for code in ELEMENTS if code in FIXED_WIDTH),
)


def _mapping(drawn: list[tuple[Value, Value]]) -> Value:
    """A dict when a dict can hold the keys apart, as decoding gives it; no key twice."""
    pairs = list({repr(shape(pair[0])): pair for pair in drawn}.values())
    if all(is_plain_key(key) for key, _ in pairs):
        return dict(pairs)
    return Map(pairs)


def _containers(inner: st.SearchStrategy[Value]) -> st.SearchStrategy[Value]:
    wide: dict[int, st.SearchStrategy[Value]] = {
        codes.LIST32: st.lists(inner, max_size=4),
        codes.MAP32: st.lists(st.tuples(inner, inner), max_size=4).map(_mapping),
        codes.ARRAY32: _arrays(ELEMENTS, st.none()),
    }
    return st.one_of(
        st.lists(inner, max_size=6),
        st.lists(st.tuples(inner, inner), max_size=6).map(_mapping),
        st.builds(Described, inner, inner),
        _arrays({**ELEMENTS, **wide}, inner),
    )


def _arrays(
    elements: dict[int, st.SearchStrategy[Value]], descriptor: st.SearchStrategy[Value]
) -> st.SearchStrategy[Value]:
    return st.sampled_from(sorted(elements)).flatmap(
        lambda code: st.builds(
            Array,
            st.just(code),
            st.lists(elements[code], max_size=5),
            st.lists(descriptor, max_size=2),
        )
    )


VALUES = st.recursive(SCALARS, _containers, max_leaves=25)


def shape(value: Value) -> object:
    """The value with the type of everything inside, since True == 1 == 1.0 in Python."""
    kind = type(value).__name__
    if isinstance(value, list):
        return kind, [shape(item) for item in value]
    if isinstance(value, dict):
        return kind, [(shape(key), shape(item)) for key, item in value.items()]
    if isinstance(value, Map):
        return kind, [(shape(key), shape(item)) for key, item in value.pairs]
    if isinstance(value, Described):
        return kind, shape(value.descriptor), shape(value.value)
    if isinstance(value, Array):
        return kind, value.code, shape(value.descriptors), shape(value.values)
    return kind, repr(value)
