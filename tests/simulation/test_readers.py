"""Readers in the simulation: drivers claim beside receivers, fall asleep, die and fight for names.

What readers have completed and what receivers have completed is together exactly what was sent,
none of it twice, whoever crashes at whatever step; a claim is read the same every time until it is
completed or lost.
"""

import os
from collections import Counter
from functools import cache

import pytest

from tests.simulation.reader_scenario import ReaderTown, run_readers
from tests.simulation.seeds import failure_of, seeds_in

FIXED = "1-12"

EVENTS = (
    "send accepted",
    "send refused",
    "send unknown",
    "delivered",
    "completed by a receiver",
    "claimed",
    "claim completed",
    "claim lost",
    "read again",
    "released",
    "dropped",
    "in use",
    "taken over",
    "shut out",
    "broker crashed",
    "gateway crashed",
)


@cache
def played(seed: int) -> ReaderTown:
    return run_readers(seed)


@pytest.mark.parametrize("seed", seeds_in(os.environ.get("SEEDS") or FIXED))
def test_readers_and_receivers_share_everything_that_was_sent(seed: int) -> None:
    """D10."""
    failure = failure_of(played, seed)

    assert failure is None, failure


def test_one_seed_is_one_history_of_readers() -> None:
    assert played(7).digest() == run_readers(7).digest()


def test_the_fixed_histories_of_readers_are_eventful() -> None:
    """A simulation in which nothing goes wrong proves nothing."""
    seen: Counter[str] = Counter()
    for seed in seeds_in(FIXED):
        town = played(seed)
        seen.update(town.events)
        seen.update(town.book.events)

    for event in EVENTS:
        assert seen[event] >= 3, f"{event}: {seen}"
