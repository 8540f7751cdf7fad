"""Golden encodings from the specification (part 1), and everything that must be refused."""

import pytest

from shardbus.codec.errors import DecodeError, EncodeError
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
from shardbus.codec.value import decode, encode, skip

GOLDEN: list[tuple[str, Value]] = [
    ("40", None),
    ("41", True),
    ("42", False),
    ("43", Uint(0)),
    ("44", Ulong(0)),
    ("45", []),
    ("50ff", Ubyte(255)),
    ("51ff", Byte(-1)),
    ("52ff", Uint(255)),
    ("53ff", Ulong(255)),
    ("54ff", Int(-1)),
    ("55ff", -1),
    ("60ffff", Ushort(65535)),
    ("618000", Short(-32768)),
    ("70ffffffff", Uint(0xFFFFFFFF)),
    ("7180000000", Int(-(2**31))),
    ("723fc00000", Float(1.5)),
    ("730001f600", Char(0x1F600)),
    ("7401020304", Decimal32(b"\1\2\3\4")),
    ("80ffffffffffffffff", Ulong(2**64 - 1)),
    ("818000000000000000", -(2**63)),
    ("81000000174876e800", 100_000_000_000),
    ("823ff8000000000000", 1.5),
    ("8300000000000003e8", Timestamp(1000)),
    ("83ffffffffffffffff", Timestamp(-1)),
    ("840102030405060708", Decimal64(b"\1\2\3\4\5\6\7\x08")),
    ("94" + "07" * 16, Decimal128(b"\7" * 16)),
    ("98" + "09" * 16, Uuid(b"\x09" * 16)),
    ("a00301ff02", b"\x01\xff\x02"),
    ("a103e282ac", "€"),
    ("a30474657374", Symbol("test")),
    ("c0050241a10161", [True, "a"]),
    ("c10502a1016b41", {"k": True}),
    ("c10a0441a101615501a10162", Map([(True, "a"), (1, "b")])),
    ("00a303612f6241", Described(Symbol("a/b"), True)),
    ("00532445", Described(Ulong(0x24), [])),
    ("e00402520102", Array(0x52, [Uint(1), Uint(2)])),
    ("e0020340", Array(0x40, [None, None, None])),
    ("e02202" + "98" + "01" * 16 + "02" * 16, Array(0x98, [Uuid(b"\1" * 16), Uuid(b"\2" * 16)])),
    ("e009010053217000000007", Array(0x70, [Uint(7)], [Ulong(0x21)])),
    ("e008 02 e0 020141 020142", Array(0xE0, [Array(0x41, [True]), Array(0x42, [False])])),
    ("e006 02 a1 0161 0162", Array(0xA1, ["a", "b"])),
    ("e006 01 c0 03 01 5501", Array(0xC0, [[1]])),
    ("e006 01 c1 03 02 4041", Array(0xC1, [{None: True}])),
]

# Valid encodings that we do not choose ourselves.
TOLERATED: list[tuple[str, Value]] = [
    ("5600", False),
    ("5601", True),
    ("7000000001", Uint(1)),
    ("8000000000000000ff", Ulong(255)),
    ("7100000005", Int(5)),
    ("8100000000000000ff", 255),
    ("b000000002abcd", b"\xab\xcd"),
    ("b10000000161", "a"),
    ("b30000000161", Symbol("a")),
    ("c00100", []),
    ("d00000000400000000", []),
    ("d0000000050000000141", [True]),
    ("c10100", {}),
    ("d10000000800000002a1016b41", {"k": True}),
    ("005324c00100", Described(Ulong(0x24), [])),
    ("f00000000d0000000181" + "00" * 7 + "05", Array(0x81, [5])),
    ("e00100", Array(0x40, [])),
]

MALFORMED = {
    "nothing": "",
    "an unknown code": "46",
    "a code of no type": "57ff",
    "half a uint": "7000",
    "half a string": "a10561",
    "a binary longer than the buffer": "b0ffffffff00",
    "a string that is not UTF-8": "a102c328",
    "a symbol that is not ASCII": "a302c3a9",
    "a boolean of 2": "5602",
    "a code point beyond Unicode": "7300110000",
    "a list longer than the buffer": "c00a0141",
    "a list with more elements than bytes": "c0020541",
    "a list with fewer elements than bytes": "c003014141",
    "a list without a count": "c000",
    "a huge list": "d0ffffffffffffffff",
    "an element beyond its list": "c0030154",
    "a map with a lonely key": "c1020141",
    "a map with a key twice": "c10904a1016b41a1016b42",
    "a map with a key twice beside a key of no dict": "c10706404041404042",
    "an array with more elements than bytes": "e0030552" + "01",
    "an array of an unknown type": "e0030146" + "00",
    "an array of nearly 2**32 nulls": "f000000005ffffffff40",
    "a descriptor without a value": "005324",
    "lists without end": "c0" * 200,
    "descriptors without end": "00" * 200,
}


@pytest.mark.parametrize(("text", "value"), GOLDEN)
def test_every_type_has_its_golden_encoding(text: str, value: Value) -> None:
    encoded = bytes.fromhex(text)

    assert encode(value) == encoded
    assert decode(encoded) == (value, len(encoded))
    assert skip(encoded) == len(encoded)
    assert type(decode(encoded)[0]) is type(value)


@pytest.mark.parametrize(("text", "value"), TOLERATED)
def test_longer_encodings_mean_the_same(text: str, value: Value) -> None:
    encoded = bytes.fromhex(text)

    assert decode(encoded) == (value, len(encoded))
    assert skip(encoded) == len(encoded)


@pytest.mark.parametrize("text", MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_bytes_are_refused(text: str) -> None:
    with pytest.raises(DecodeError):
        decode(bytes.fromhex(text))


def test_values_are_read_one_after_another() -> None:
    buffer = encode("a") + encode(Uint(300)) + encode([1])

    first, offset = decode(buffer)
    second, offset = decode(buffer, offset)
    third, offset = decode(buffer, offset)

    assert (first, second, third, offset) == ("a", Uint(300), [1], len(buffer))


@pytest.mark.parametrize("size", [254, 255, 256, 70_000])
def test_long_values_take_wide_encodings(size: int) -> None:
    values: list[Value] = ["x" * size, b"x" * size, Symbol("x" * size), [True] * size]

    for value in values:
        assert decode(encode(value))[0] == value


def test_elements_too_large_for_a_narrow_array_are_refused() -> None:
    with pytest.raises(EncodeError):
        encode(Array(0xA1, ["x" * 256]))
    assert decode(encode(Array(0xB1, ["x" * 256])))[0] == Array(0xB1, ["x" * 256])


def test_narrow_elements_are_widened_for_a_wide_array() -> None:
    array = Array(0xD0, [[1], [], ["x" * 300]])

    assert decode(encode(array))[0] == array


def test_nesting_is_bounded_both_ways() -> None:
    deep: Value = []
    for _ in range(63):
        deep = [deep]
    assert decode(encode(deep))[0] == deep

    with pytest.raises(EncodeError):
        encode([deep])
    with pytest.raises(DecodeError):
        decode(_nested_lists(65))


def _nested_lists(depth: int) -> bytes:
    encoded = b"\x45"
    for _ in range(depth):
        encoded = b"\xd0" + (len(encoded) + 4).to_bytes(4, "big") + b"\0\0\0\1" + encoded
    return encoded


def test_elements_without_bytes_are_bounded_over_the_whole_value() -> None:
    """Eight bytes could otherwise ask for any number of elements, again and again."""
    nulls = bytes.fromhex("00000005" + "00000100" + "40")
    once = b"\xf0" + nulls
    twice = b"\xf0" + (5 + 2 * len(nulls)).to_bytes(4, "big") + b"\0\0\0\2\xf0" + nulls * 2

    assert decode(once)[0] == Array(0x40, [None] * 256)
    with pytest.raises(DecodeError):
        decode(twice)


@pytest.mark.parametrize(
    "value",
    [
        Uint(-1),
        Uint(2**32),
        Ulong(2**64),
        Ubyte(256),
        Byte(-129),
        Ushort(-1),
        Short(2**15),
        Int(2**31),
        2**63,
        Timestamp(2**63),
        Char(0x110000),
        Uuid(b"short"),
        Decimal32(b""),
        Float(1e300),
        Symbol("é"),
        "\ud800",
        object(),
        Array(0x52, [Uint(256)]),
        Array(0x52, ["text"]),
        Array(0x41, [False]),
        Array(0x46, []),
        Array(0x81, [True]),
        Array(0xC0, [{}]),
    ],
)
def test_values_without_an_encoding_are_refused(value: Value) -> None:
    with pytest.raises(EncodeError):
        encode(value)
