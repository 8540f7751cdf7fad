"""Sequence numbers and lock tokens; both contain the number of their fragment."""

from __future__ import annotations

from shardbus.core.declared import fixed
from shardbus.core.errors import INVALID_ARGUMENT, Refused
from shardbus.core.limits import FRAGMENTS_MAX, SEQUENCE_COUNTER_BITS, SEQUENCE_COUNTER_MASK

TOKEN_BYTES = 16
TOKEN_SEED_BYTES = 8
SEED = fixed(TOKEN_SEED_BYTES)
_NO_COUNTER = bytes(6)


def sequence_number(fragment: int, counter: int) -> int:
    assert 0 <= fragment < FRAGMENTS_MAX and 0 <= counter <= SEQUENCE_COUNTER_MASK
    return fragment << SEQUENCE_COUNTER_BITS | counter


def fragment_of(number: int) -> int:
    """The fragment that gave out this sequence number."""
    return number >> SEQUENCE_COUNTER_BITS


def counter_of(number: int) -> int:
    return number & SEQUENCE_COUNTER_MASK


def lock_token(fragment: int, counter: int, seed: bytes) -> bytes:
    """Fragment (2 bytes), a counter unique while the fragment is in memory (6), the seed (8)."""
    return (fragment << 48 | counter).to_bytes(8, "big") + seed


def fragment_of_token(token: bytes) -> int:
    """The fragment that gave out this lock token."""
    return token[0] << 8 | token[1]


def token_of_seed(fragment: int, seed: bytes) -> bytes:
    """A token for everything locked or held with a seed, for a caller that never got the real
    tokens.
    """
    return lock_token(fragment, 0, seed)


def is_of_seed(token: bytes) -> bool:
    """Whether `token_of_seed` made this token: real counters begin with 1."""
    return token[2:TOKEN_SEED_BYTES] == _NO_COUNTER


def check_numbers(numbers: list[int], count_max: int) -> None:
    """Refused when a client gives too many numbers at once, or one number twice."""
    if len(numbers) > count_max:
        raise Refused(
            INVALID_ARGUMENT,
            f"The request has {len(numbers)} sequence numbers; at most {count_max} are "
            "allowed. Use several requests.",
        )
    if len(set(numbers)) < len(numbers):
        raise Refused(
            INVALID_ARGUMENT, "The request has a sequence number twice: give each number once."
        )
