"""Stages in the simulation: sinks restart with other tasks, repeat batches, and processes die.

Every batch is visible once and whole, all of it of one attempt, whoever crashes at whatever step;
nothing of an attempt that was not published is ever visible, and nothing is kept for ever.
"""

import os
from collections import Counter
from functools import cache

import pytest

from tests.simulation.seeds import failure_of, seeds_in
from tests.simulation.stage_scenario import StageTown, run_stages

FIXED = "1-16"

EVENTS = (
    "staged",
    "adopted",
    "bitten",
    "published",
    "published before",
    "refused",
    "unknown",
    "expired",
    "repeated",
    "differs",
    "prolonged",
    "rivals",
    "broker crashed",
    "gateway crashed",
)


@cache
def played(seed: int) -> StageTown:
    return run_stages(seed)


@pytest.mark.parametrize("seed", seeds_in(os.environ.get("SEEDS") or FIXED))
def test_every_batch_is_visible_once_and_whole(seed: int) -> None:
    """D10."""
    failure = failure_of(played, seed)

    assert failure is None, failure


def test_one_seed_is_one_history_of_stages() -> None:
    assert played(7).digest() == run_stages(7).digest()


def test_the_fixed_histories_of_stages_are_eventful() -> None:
    """A simulation in which nothing goes wrong proves nothing."""
    seen: Counter[str] = Counter()
    for seed in seeds_in(FIXED):
        town = played(seed)
        seen.update(town.events)
        seen.update(town.book.events)

    for event in EVENTS:
        assert seen[event] >= 3, f"{event}: {seen}"
