"""Runs of numbers against a set of them."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardbus.core.runs import Runs, runs_of, unpack_runs

numbers = st.sets(st.integers(min_value=1, max_value=60))
far_numbers = st.sets(st.integers(min_value=1, max_value=(1 << 63) - 1), max_size=20)


def runs(values: set[int]) -> Runs:
    return runs_of(sorted(values))


def check(found: Runs, expected: set[int]) -> None:
    """They say the same, and no two runs touch."""
    assert found.numbers() == sorted(expected)
    assert found.count == len(expected)
    assert (found.first(), found.last()) == (min(expected, default=0), max(expected, default=0))
    pairs = found.pairs()
    assert len(found) == len(pairs)
    assert all(first <= last for first, last in pairs)
    for (_, last), (first, _) in itertools.pairwise(pairs):
        assert last + 1 < first


@given(numbers, st.integers(min_value=0, max_value=61), st.integers(min_value=0, max_value=61))
def test_runs_answer_as_a_set_does(values: set[int], one: int, other: int) -> None:
    found = runs(values)

    check(found, values)
    assert found.contains(one) == (one in values)
    first, last = min(one, other), max(one, other)
    assert found.covers(first, last) == values.issuperset(range(first, last + 1))
    end = found.end_of(one)
    assert end == 0 if one not in values else found.covers(one, end) and end + 1 not in values
    assert found.after(one, other) == [each for each in sorted(values) if each > one][:other]


@given(numbers, numbers)
def test_numbers_come_and_go_as_in_a_set(values: set[int], others: set[int]) -> None:
    rest = runs(values)
    rest.exclude(runs(others))
    check(rest, values - others)

    whole = rest.copy()
    whole.include(runs(others))
    check(whole, values | others)
    check(rest, values - others)


@given(far_numbers)
def test_runs_are_packed_and_unpacked(values: set[int]) -> None:
    check(unpack_runs(runs(values).pack()), values)


def test_a_thousand_numbers_in_a_row_take_a_few_bytes() -> None:
    far = Runs()
    far.add((7 << 48) + 1, (7 << 48) + 1_000)

    assert len(far.pack()) <= 11


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x01",
        b"\x01\x05",
        b"\x00\x05",
        b"\x01\x05\x80",
        b"\x01\x00\x03",
        b"\x02\x05\x00\x01\x00",
        b"\xff" * 12 + b"\x01",
    ],
)
def test_what_is_not_packed_runs_is_told_apart(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"number"):
        unpack_runs(data)
