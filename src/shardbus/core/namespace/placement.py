"""Which fragment a message goes to (R10-R13)."""

from __future__ import annotations

from bisect import bisect_right
from typing import Final, final

import xxhash

from shardbus.core.errors import INVALID_ARGUMENT, NOT_ALLOWED, Refused
from shardbus.core.limits import KEY_CHARACTERS_MAX
from shardbus.core.message import Message
from shardbus.core.sessions.key import session_key

# Spark's xxhash64() is XXH64 with this seed, so a Spark job places rows without a UDF:
# shiftrightunsigned(xxhash64(key), 32) is the point looked up in the entity's hash ranges.
HASH_SEED: Final = 42
HASH_SPACE: Final = 1 << 32


def hash_point(key: str) -> int:
    """The point of the 32-bit hash space that a partition key maps to. It must never change."""
    return hash_point_of(key.encode())


def hash_point_of(utf8: bytes) -> int:
    """The point of a key that is already encoded."""
    return xxhash.xxh64_intdigest(utf8, HASH_SEED) >> 32


def even_hash_starts(fragments: int) -> list[int]:
    """Where each fragment's range of the hash space starts when all ranges have the same size."""
    return [-(-HASH_SPACE * number // fragments) for number in range(fragments)]


def balanced_hash_starts(hash_starts: list[int], weights: list[int], count: int) -> list[int]:
    """The starts of `count` ranges with about the same weight, if the weight of each present range
    is spread evenly over it.
    """
    # A range without weight still gets a little, so that every start is above the one before.
    shares = [max(weight, 1) * 1024 for weight in weights]
    ends = [*hash_starts[1:], HASH_SPACE]
    total = sum(shares)
    starts = [0]
    passed = 0
    at = 0
    for number in range(1, count):
        wanted = total * number // count
        while passed + shares[at] <= wanted:
            passed += shares[at]
            at += 1
        width = ends[at] - hash_starts[at]
        start = hash_starts[at] + width * (wanted - passed) // shares[at]
        starts.append(max(start, starts[-1] + 1))
    return starts


def fragment_at(point: int, hash_starts: list[int]) -> int:
    """The position in `hash_starts` of the range that holds this point."""
    return bisect_right(hash_starts, point) - 1


def former_path(key: str, former_starts: list[list[int]], former_count: int) -> list[int]:
    """The positions of a key's fragments in the former maps, the oldest first.

    Of the oldest maps perhaps only the fragments are known: then each of those.
    """
    first = former_count - sum([len(starts) for starts in former_starts])
    path = list(range(first))
    for starts in former_starts:
        path.append(first + fragment_at(hash_point(key), starts))
        first += len(starts)
    return path


def key_of(message: Message, detects_duplicates: bool) -> str | None:
    """The partition key of a message; None when the bus may choose its fragment freely.

    The key of a message with a session is the session's key, in whichever spelling. Beside an empty
    session id any partition key is allowed.
    """
    session_id, partition_key = message.session_id, message.partition_key
    if session_id is not None:
        key = session_key(_checked(session_id, "SessionId"))
        if key and partition_key is not None and session_key(partition_key) != key:
            raise Refused(
                NOT_ALLOWED,
                f"PartitionKey '{partition_key}' differs from SessionId '{session_id}': "
                "set only one of them, or both to the same value.",
            )
        return key
    if partition_key is not None:
        return _checked(partition_key, "PartitionKey")
    if detects_duplicates and message.message_id is not None:
        return _checked(message.message_id, "MessageId")
    return None


@final
class RoundRobin:
    """Distributes messages without a key so that no two fragments differ by more than one."""

    def __init__(self, fragments: int) -> None:
        self._fragments = fragments
        self._next = 0

    def next(self) -> int:
        """The fragment whose turn it is."""
        chosen = self._next
        self._next = (chosen + 1) % self._fragments
        return chosen

    def runs(self, count: int) -> list[tuple[int, int]]:
        """How many of `count` messages each fragment gets, as (fragment, messages) in order.

        Consecutive messages stay together, so that a fragment's share is one command and one
        answer.
        """
        share, rest = divmod(count, self._fragments)
        runs: list[tuple[int, int]] = []
        for step in range(self._fragments):
            size = share + 1 if step < rest else share
            if size == 0:
                break
            runs.append(((self._next + step) % self._fragments, size))
        self._next = (self._next + rest) % self._fragments
        return runs


def _checked(key: str, name: str) -> str:
    if len(key) > KEY_CHARACTERS_MAX:
        raise Refused(
            INVALID_ARGUMENT,
            f"{name} has {len(key)} characters; at most {KEY_CHARACTERS_MAX} are allowed.",
        )
    return key
