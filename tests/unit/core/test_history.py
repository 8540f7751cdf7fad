"""The message ids a fragment remembers: exact, bounded, and gone after their time."""

import random

import pytest

from shardbus.core.limits import DIGEST_BYTES
from shardbus.core.message import Message
from shardbus.core.messages.duplicate_history import BUCKETS, SWEEP_BUCKETS, History, digest_of


def digest(number: int, bucket: int = 0) -> bytes:
    return (bucket << 4).to_bytes(2, "big") + number.to_bytes(DIGEST_BYTES - 2, "big")


def test_an_id_is_remembered_until_the_end_of_what_expired_reaches_it() -> None:
    history = History()
    history.add(100, digest(1))

    assert history.has(digest(1), 99)
    assert not history.has(digest(1), 100)


def test_another_id_is_not_remembered() -> None:
    history = History()
    history.add(100, digest(1) + digest(2))

    assert not history.has(digest(3), 0)
    assert not history.has(digest(1, bucket=7), 0)


def test_a_match_that_straddles_two_records_is_chance() -> None:
    history = History()
    first, second = digest(1), digest(2)
    history.add(100, first + second)
    straddling = first[11:] + (100).to_bytes(6, "big") + second[:5]
    moved = straddling[:0] + digest(0)[:2] + straddling[2:]

    assert len(moved) == DIGEST_BYTES
    assert not history.has(moved, 0)


def test_an_id_accepted_again_after_its_time_is_found_by_its_new_moment() -> None:
    history = History()
    history.add(100, digest(1))
    history.add(900, digest(1))

    assert history.has(digest(1), 500)


def test_a_clock_that_steps_back_forgets_nothing_early_and_nothing_late() -> None:
    history = History()
    history.add(1_000, digest(1))
    history.add(500, digest(2))

    assert history.has(digest(1), 700)
    assert not history.has(digest(2), 700)


def test_what_expired_is_cut_when_its_bucket_is_touched() -> None:
    history = History()
    for number in range(10):
        history.add(100 + number, digest(number))

    history.has(digest(99), 104)

    assert len(history) == 5


def test_a_sweep_reaches_every_bucket_in_the_end() -> None:
    history = History()
    for bucket in range(BUCKETS):
        history.add(100, digest(1, bucket))
    history.add(200, digest(2))

    for _ in range(BUCKETS // SWEEP_BUCKETS):
        history.sweep(150)

    assert len(history) == 1
    assert history.has(digest(2), 150)


def test_there_is_a_most_and_what_expired_makes_room() -> None:
    history = History()
    history.add(100, digest(1, 1) + digest(2, 2))
    history.add(200, digest(3, 3))

    assert not history.has_room(1, 3, 50)
    assert not history.has_room(1, 3, 99)
    assert history.has_room(2, 3, 100)
    assert len(history) == 1


def test_everything_is_forgotten_at_once_when_all_of_it_expired() -> None:
    history = History()
    history.add(100, digest(1))
    history.add(200, digest(2))

    assert not history.clear_if_expired(199)
    assert history.clear_if_expired(200)
    assert (len(history), history.newest_ms()) == (0, 0)


def test_the_store_forgets_now_and_then_and_only_when_something_expired() -> None:
    history = History()
    window_ms = 1_600
    assert not history.must_forget(0, window_ms, window_ms)
    for at_ms, number in ((10_000, 1), (10_050, 2)):
        history.add(at_ms, digest(number))
        history.note_stored(at_ms)

    told = [
        now_ms
        for now_ms in range(10_000, 12_000)
        if history.must_forget(now_ms - window_ms, now_ms, window_ms)
    ]

    assert told == [11_600, 11_700]


def test_what_a_store_remembered_is_known_again_without_what_expired() -> None:
    history = History()
    history.load(100, digest(1), 150)
    history.load(200, digest(2) + digest(3), 150)

    assert len(history) == 2
    assert not history.has(digest(1), 150) and history.has(digest(3), 150)
    assert history.is_stored()


def test_it_agrees_with_a_dict_over_a_long_life() -> None:
    chance = random.Random(7)
    history = History()
    accepted: dict[bytes, int] = {}
    now_ms = 1_000
    for _ in range(5_000):
        now_ms += chance.randrange(3)
        wanted = digest(chance.randrange(300), bucket=chance.randrange(3))
        is_known = accepted.get(wanted, -1) > now_ms - 200
        assert history.has(wanted, now_ms - 200) == is_known
        if not is_known:
            history.add(now_ms, wanted)
            accepted[wanted] = now_ms
        history.sweep(now_ms - 200)


def test_a_message_without_an_id_has_no_digest() -> None:
    assert digest_of(Message(b"a"), False) == b""
    assert digest_of(Message(b"a", partition_key="k"), True) == b""


@pytest.mark.parametrize(
    ("one", "other", "is_partitioned", "is_same"),
    [
        (Message(b"a", message_id="1"), Message(b"b", message_id="1"), False, True),
        (Message(b"a", message_id="1"), Message(b"a", message_id="2"), False, False),
        (
            Message(b"", message_id="1", partition_key="k"),
            Message(b"", message_id="1", partition_key="m"),
            False,
            True,
        ),
        (
            Message(b"", message_id="1", partition_key="k"),
            Message(b"", message_id="1", partition_key="m"),
            True,
            False,
        ),
        (
            Message(b"", message_id="1", partition_key="k"),
            Message(b"", message_id="1", session_id="k"),
            True,
            True,
        ),
        (
            Message(b"", message_id="1", session_id="KÄ"),
            Message(b"", message_id="1", session_id="kä"),
            True,
            True,
        ),
        (
            Message(b"", message_id="1", partition_key="K"),
            Message(b"", message_id="1", partition_key="k"),
            True,
            False,
        ),
        (
            Message(b"", message_id="1:", partition_key="k"),
            Message(b"", message_id="1", partition_key=":k"),
            True,
            False,
        ),
        (
            Message(b"", message_id="1", partition_key=""),
            Message(b"", message_id="1"),
            True,
            False,
        ),
    ],
)
def test_a_duplicate_has_the_same_id_and_where_partitioned_the_same_key(
    one: Message, other: Message, is_partitioned: bool, is_same: bool
) -> None:
    same = digest_of(one, is_partitioned) == digest_of(other, is_partitioned)

    assert same == is_same
