"""Sequence numbers and lock tokens tell their fragment."""

import pytest

from shardbus.core.limits import FRAGMENTS_MAX, SEQUENCE_COUNTER_MASK
from shardbus.core.sequence import (
    TOKEN_BYTES,
    TOKEN_SEED_BYTES,
    counter_of,
    fragment_of,
    fragment_of_token,
    lock_token,
    sequence_number,
)

AMQP_LONG_MAX = (1 << 63) - 1


@pytest.mark.parametrize("fragment", [0, 1, 15, 255, 256, FRAGMENTS_MAX - 1])
@pytest.mark.parametrize("counter", [0, 1, 65_536, SEQUENCE_COUNTER_MASK])
def test_a_sequence_number_gives_back_its_fragment_and_counter(fragment: int, counter: int) -> None:
    """R20: the fragment number stands in the top 16 bits."""
    number = sequence_number(fragment, counter)

    assert number >> 48 == fragment
    assert (fragment_of(number), counter_of(number)) == (fragment, counter)


def test_the_largest_sequence_number_is_a_positive_amqp_long() -> None:
    assert sequence_number(FRAGMENTS_MAX - 1, SEQUENCE_COUNTER_MASK) == AMQP_LONG_MAX


def test_sequence_numbers_of_one_fragment_rise_with_the_counter() -> None:
    numbers = [sequence_number(3, counter) for counter in (1, 2, 1000, 1 << 40)]

    assert numbers == sorted(numbers)


@pytest.mark.parametrize("fragment", [0, 1, 255, 256, FRAGMENTS_MAX - 1])
def test_a_lock_token_has_sixteen_bytes_and_tells_its_fragment(fragment: int) -> None:
    token = lock_token(fragment, 7, b"\xff" * TOKEN_SEED_BYTES)

    assert len(token) == TOKEN_BYTES
    assert fragment_of_token(token) == fragment


def test_tokens_differ_by_counter_and_by_seed() -> None:
    tokens = {lock_token(1, counter, bytes([seed] * 8)) for counter in (1, 2) for seed in (1, 2)}

    assert len(tokens) == 4
