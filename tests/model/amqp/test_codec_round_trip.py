"""Whatever value is encoded, the same value of the same type is decoded."""

from hypothesis import example, given
from hypothesis import strategies as st

from shardbus.codec.errors import DecodeError, EncodeError
from shardbus.codec.types import Map, Symbol, Value
from shardbus.codec.value import decode, encode, skip
from tests.model.amqp.values import VALUES, shape


@given(VALUES)
@example({Symbol("a"): 1, "a": 2, b"a": 3, None: 4})
@example(Map([(True, 1), (1, 2), (1.0, 3), ([], 4)]))
def test_every_value_round_trips_with_its_types(value: Value) -> None:
    encoded = encode(value)

    decoded, end = decode(encoded)

    assert shape(decoded) == shape(value)
    assert end == skip(encoded) == len(encoded)


@given(VALUES, VALUES, st.integers(0, 5))
def test_values_are_found_at_any_offset(first: Value, second: Value, padding: int) -> None:
    buffer = bytes(padding) + encode(first) + encode(second) + bytes(padding)

    decoded, offset = decode(buffer, padding)
    again, _ = decode(buffer, offset)

    assert shape(decoded) == shape(first)
    assert shape(again) == shape(second)


@given(VALUES)
def test_a_value_cut_short_anywhere_is_refused(value: Value) -> None:
    encoded = encode(value)

    for end in range(0, len(encoded), max(len(encoded) // 50, 1)):
        try:
            decode(encoded[:end])
        except DecodeError:
            continue
        raise AssertionError(f"{encoded[:end]!r} was decoded")


@given(st.binary(max_size=200))
def test_any_bytes_decode_to_something_that_encodes_or_are_refused(buffer: bytes) -> None:
    try:
        value, end = decode(buffer)
    except DecodeError:
        return

    assert 0 < end <= len(buffer)
    assert skip(buffer) == end
    try:
        again = decode(encode(value))[0]
    except EncodeError:
        # Nesting that a list0 or an array of them took one step further.
        return
    # NaN is not equal to itself, so it is compared as it is written.
    assert repr(shape(again)) == repr(shape(value))
