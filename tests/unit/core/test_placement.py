"""Which fragment a message goes to (R10-R13)."""

from collections import Counter
from random import Random

import pytest

from shardbus.core.errors import INVALID_ARGUMENT, NOT_ALLOWED
from shardbus.core.limits import KEY_CHARACTERS_MAX
from shardbus.core.message import Message
from shardbus.core.namespace.placement import (
    HASH_SPACE,
    RoundRobin,
    even_hash_starts,
    fragment_at,
    hash_point,
    key_of,
)
from tests.support.refusals import refusal_of

# Computed once with the reference XXH64, seed 42: the high 32 bits, and the range of 16 they are
# in. A change here would move the messages of every key that anyone ever used.
GOLDEN = [
    ("", 2561759275, 9),
    ("a", 2296708697, 8),
    ("customer-1", 4208920125, 15),
    ("customer-2", 1163013032, 4),
    ("order/42", 2526921726, 9),
    ("ключ", 1636519393, 6),
    ("鍵", 2091259735, 7),
    ("x" * KEY_CHARACTERS_MAX, 3876152230, 14),
]
# What the PySpark manual shows for xxhash64 of 'ABC'.
SPARK_ABC = 4105715581806190027


def message(
    *, message_id: str | None = None, session: str | None = None, key: str | None = None
) -> Message:
    return Message(b"", message_id=message_id, session_id=session, partition_key=key)


@pytest.mark.parametrize(("key", "point", "fragment"), GOLDEN)
def test_a_key_falls_on_the_same_point_for_ever(key: str, point: int, fragment: int) -> None:
    """R10: all messages with one key go to one fragment, always, across restarts."""
    assert hash_point(key) == point
    assert fragment_at(point, even_hash_starts(16)) == fragment


def test_the_hash_is_the_one_that_spark_has_built_in() -> None:
    """D5: a Spark job places rows with a column expression."""
    assert hash_point("ABC") == SPARK_ABC >> 32


@pytest.mark.parametrize("fragments", [1, 2, 3, 16, 64, 1000])
def test_even_ranges_cover_the_hash_space_in_order(fragments: int) -> None:
    starts = even_hash_starts(fragments)
    sizes = [end - start for start, end in zip(starts, [*starts[1:], HASH_SPACE], strict=True)]

    assert starts[0] == 0
    assert max(sizes) - min(sizes) <= 1
    for number, start in enumerate(starts):
        assert fragment_at(start, starts) == number
        assert start == 0 or fragment_at(start - 1, starts) == number - 1
    assert fragment_at(HASH_SPACE - 1, starts) == fragments - 1


def test_the_session_is_the_key() -> None:
    """R11."""
    assert key_of(message(session="s"), detects_duplicates=False) == "s"
    assert key_of(message(session="s", key="s"), detects_duplicates=False) == "s"
    assert key_of(message(session="s", message_id="m"), detects_duplicates=True) == "s"


@pytest.mark.parametrize("name", ["SessionId", "sessionId", "SESSIONID", "sessionid"])
def test_all_spellings_of_a_session_are_one_key(name: str) -> None:
    """R11: a session is in one fragment. A partition key keeps its case."""
    assert key_of(message(session=name), detects_duplicates=False) == "sessionid"
    assert key_of(message(session=name, key="SESSIONId"), detects_duplicates=True) == "sessionid"
    assert key_of(message(key=name), detects_duplicates=False) == name


def test_an_empty_session_is_a_session_and_stands_beside_any_key() -> None:
    assert key_of(message(session=""), detects_duplicates=False) == ""
    assert key_of(message(session="", key="k", message_id="m"), detects_duplicates=True) == ""
    with refusal_of(NOT_ALLOWED, "'s'", "PartitionKey", "SessionId"):
        key_of(message(session="s", key=""), detects_duplicates=False)


def test_the_partition_key_is_the_key_when_there_is_no_session() -> None:
    """R12."""
    assert key_of(message(key="k", message_id="m"), detects_duplicates=True) == "k"


def test_a_partition_key_other_than_the_session_is_refused() -> None:
    """R12."""
    with refusal_of(NOT_ALLOWED, "'k'", "'s'", "PartitionKey", "SessionId") as refusal:
        key_of(message(session="s", key="k"), detects_duplicates=False)

    assert refusal.value.kind is NOT_ALLOWED


def test_the_message_id_is_a_key_only_where_duplicates_are_detected() -> None:
    """R13."""
    assert key_of(message(message_id="m"), detects_duplicates=True) == "m"
    assert key_of(message(message_id="m"), detects_duplicates=False) is None


def test_without_any_of_them_the_bus_is_free_to_choose() -> None:
    """R10."""
    assert key_of(message(), detects_duplicates=True) is None


def test_an_empty_string_is_a_key_like_any_other() -> None:
    assert key_of(message(key=""), detects_duplicates=False) == ""


@pytest.mark.parametrize(
    ("one", "name"),
    [
        (message(session="x" * 129), "SessionId"),
        (message(key="x" * 129), "PartitionKey"),
        (message(message_id="x" * 129), "MessageId"),
    ],
)
def test_a_key_that_is_too_long_is_refused_by_its_name(one: Message, name: str) -> None:
    with refusal_of(INVALID_ARGUMENT, name, "129", "128"):
        key_of(one, detects_duplicates=True)


def test_turns_go_round() -> None:
    turns = RoundRobin(3)

    assert [turns.next() for _ in range(7)] == [0, 1, 2, 0, 1, 2, 0]


@pytest.mark.parametrize("fragments", [1, 2, 3, 16])
def test_no_two_fragments_ever_differ_by_more_than_one(fragments: int) -> None:
    """R10: round robin, whatever the sizes that messages come in."""
    chance = Random(fragments)
    turns = RoundRobin(fragments)
    given: Counter[int] = Counter(dict.fromkeys(range(fragments), 0))

    for _ in range(300):
        count = chance.choice([0, 1, 2, 15, 16, 17, 100])
        runs = turns.runs(count)
        given.update(dict(runs))

        assert sum(size for _, size in runs) == count
        assert len({fragment for fragment, _ in runs}) == len(runs)
        assert max(given.values()) - min(given.values()) <= 1


def test_single_turns_and_runs_continue_each_other() -> None:
    turns = RoundRobin(4)

    assert turns.next() == 0
    assert turns.runs(2) == [(1, 1), (2, 1)]
    assert turns.next() == 3
    assert turns.runs(5) == [(0, 2), (1, 1), (2, 1), (3, 1)]
    assert turns.next() == 1
