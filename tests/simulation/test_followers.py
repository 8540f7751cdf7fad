"""Followers in the simulation: streams browse beside publications and sends, in the middle of
faults.

What they read is what was stored, in order, none of it twice: they are told of no number before it
can be read, whichever commit is slow, fails, or is not known to have happened.
"""

import os
from collections import Counter
from functools import cache

import pytest

from tests.simulation.follower_scenario import run_followers
from tests.simulation.seeds import failure_of, seeds_in
from tests.simulation.stage_scenario import StageTown

FIXED = "1-10,145"

EVENTS = (
    "published",
    "adopted",
    "sent",
    "not sent",
    "followed",
    "limited",
    "begun again",
    "not told",
    "broker crashed",
    "gateway crashed",
)


@cache
def played(seed: int) -> StageTown:
    return run_followers(seed)


@pytest.mark.parametrize("seed", seeds_in(os.environ.get("SEEDS") or FIXED))
def test_what_a_follower_reads_is_what_was_stored(seed: int) -> None:
    """P2."""
    failure = failure_of(played, seed)

    assert failure is None, failure


def test_one_seed_is_one_history_of_followers() -> None:
    assert played(7).digest() == run_followers(7).digest()


def test_the_fixed_histories_of_followers_are_eventful() -> None:
    """A simulation in which nothing goes wrong proves nothing."""
    seen: Counter[str] = Counter()
    for seed in seeds_in(FIXED):
        town = played(seed)
        seen.update(town.events)
        seen.update(town.book.events)

    for event in EVENTS:
        assert seen[event] >= 3, f"{event}: {seen}"
