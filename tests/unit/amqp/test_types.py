"""Values that Python has no type of its own for."""

from shardbus.codec.types import (
    Array,
    Described,
    Float,
    Int,
    Symbol,
    Timestamp,
    Ubyte,
    Uint,
    Ulong,
    Uuid,
    integer_of,
    text_of,
    value_of,
)


def test_equal_numbers_of_different_types_are_different_values() -> None:
    assert Uint(1) == Uint(1)
    assert Uint(1) != Ulong(1)
    assert Uint(1) != 1
    assert len({Uint(1), Ulong(1), Int(1), Ubyte(1), Timestamp(1), Uint(1)}) == 5


def test_symbols_and_strings_are_different_keys() -> None:
    assert {Symbol("a"): 1, "a": 2} == {"a": 2, Symbol("a"): 1}
    assert Symbol("a") != "a"


def test_opaque_values_compare_by_type_and_bytes() -> None:
    assert Uuid(bytes(16)) == Uuid(bytes(16))
    assert Uuid(bytes(16)) != Uuid(b"\1" * 16)
    assert hash(Uuid(bytes(16))) == hash(Uuid(bytes(16)))


def test_the_plain_value_is_found_inside_every_wrapper() -> None:
    assert value_of(Uint(7)) == 7
    assert value_of(Float(0.5)) == 0.5
    assert value_of(Symbol("name")) == "name"
    assert value_of(Uuid(bytes(16))) == bytes(16)
    assert value_of(Described(Symbol("com.microsoft:timespan"), 9)) == 9
    assert value_of(Array(0x81, [1, 2])) == [1, 2]
    assert value_of(None) is None


def test_numbers_and_texts_are_read_liberally_but_not_from_each_other() -> None:
    assert [integer_of(value) for value in (Uint(1), Int(-1), 5, Timestamp(8))] == [1, -1, 5, 8]
    assert [integer_of(value) for value in (True, "1", None, 1.0)] == [None] * 4
    assert [text_of(value) for value in ("a", Symbol("b"), b"c", 1)] == ["a", "b", None, None]


def test_representations_say_type_and_value() -> None:
    assert repr(Uint(1)) == "Uint(1)"
    assert repr(Symbol("a")) == "Symbol('a')"
    assert repr(Array(0x81, [1])) == "Array(0x81, [1], [])"
