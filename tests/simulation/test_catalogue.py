"""The catalogue in the simulation: it is lost, an older copy is restored, and processes die.

No message that was accepted is gone from the stores because of what a catalogue does not know
(R28, D4).
"""

import os
from collections import Counter
from functools import cache

import pytest

from tests.simulation.catalogue_scenario import CatalogueTown, run_catalogue
from tests.simulation.seeds import failure_of, seeds_in

# 23, 98: a fragment that is still to be made for a gateway that has gone.
FIXED = "1-20,23,98"

EVENTS = (
    "lost",
    "restored",
    "accepted",
    "kept",
    "deleted",
    "orphans",
    "brought back",
    "creation accepted",
    "creation refused",
    "creation unknown",
    "broker crashed",
    "gateway crashed",
)


@cache
def played(seed: int) -> CatalogueTown:
    return run_catalogue(seed)


@pytest.mark.parametrize("seed", seeds_in(os.environ.get("SEEDS") or FIXED))
def test_nothing_is_lost_with_a_catalogue(seed: int) -> None:
    """R28."""
    failure = failure_of(played, seed)

    assert failure is None, failure


def test_one_seed_is_one_history_of_catalogues() -> None:
    assert played(7).digest() == run_catalogue(7).digest()


def test_the_fixed_histories_of_catalogues_are_eventful() -> None:
    """A simulation in which nothing goes wrong proves nothing."""
    seen: Counter[str] = Counter()
    for seed in seeds_in(FIXED):
        seen.update(played(seed).events)

    for event in EVENTS:
        assert seen[event] >= 5, f"{event}: {seen}"
