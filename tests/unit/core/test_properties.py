"""Properties that settling changed: packed, unpacked, merged."""

import pytest

from shardbus.core.properties import NAME_BYTES_MAX, merge, pack, unpack


@pytest.mark.parametrize(
    "properties",
    [{}, {"a": b"1"}, {"a": b"", "": b"x"}, {"grün": bytes(300), "\udc80": b"\x00" * 3}],
)
def test_what_was_packed_is_unpacked_in_its_order(properties: dict[str, bytes]) -> None:
    unpacked = unpack(pack(properties))

    assert unpacked == properties
    assert list(unpacked) == list(properties)


def test_a_second_change_adds_to_the_first_and_the_later_value_wins() -> None:
    first = pack({"a": b"1", "b": b"2"})
    second = pack({"b": b"3", "c": b"4"})

    assert unpack(merge(first, second)) == {"a": b"1", "b": b"3", "c": b"4"}


def test_merging_with_nothing_changes_nothing() -> None:
    packed = pack({"a": b"1"})

    assert merge(packed, b"") == packed
    assert merge(b"", packed) == packed
    assert merge(b"", b"") == b""


def test_a_name_too_long_to_be_kept_is_an_error() -> None:
    assert unpack(pack({"n" * NAME_BYTES_MAX: b""})) == {"n" * NAME_BYTES_MAX: b""}
    with pytest.raises(ValueError, match="more than the maximum"):
        pack({"n" * (NAME_BYTES_MAX + 1): b""})


@pytest.mark.parametrize("cut", range(1, 8))
def test_what_is_cut_short_is_an_error(cut: int) -> None:
    packed = pack({"a": b"1"})

    with pytest.raises(ValueError, match="truncated"):
        unpack(packed[:cut])
