"""Forwarding in the simulation: chains of entities, two forwarders at once, processes that die.

Every accepted message arrives where its way ends, once, after as many hops as there are and with
the key it had; dead letters are forwarded as such, and a chain that is too long ends in the
dead-letter line of the entity where it stopped (R27).
"""

import os
from collections import Counter
from functools import cache

import pytest

from tests.simulation.forward_scenario import ForwardTown, run_forwarding
from tests.simulation.seeds import failure_of, seeds_in

FIXED = "1-12"

EVENTS = (
    "accepted",
    "refused",
    "unknown",
    "from a",
    "from p",
    "from t",
    "from d",
    "from n",
    "from h0",
    "redirected accepted",
    "broker crashed",
    "gateway crashed",
)


@cache
def played(seed: int) -> ForwardTown:
    return run_forwarding(seed)


@pytest.mark.parametrize("seed", seeds_in(os.environ.get("SEEDS") or FIXED))
def test_what_is_forwarded_arrives_once(seed: int) -> None:
    """R27."""
    failure = failure_of(played, seed)

    assert failure is None, failure


def test_one_seed_is_one_history_of_forwarding() -> None:
    assert played(12).digest() == run_forwarding(12).digest()


def test_the_fixed_histories_of_forwarding_are_eventful() -> None:
    """A simulation in which nothing goes wrong proves nothing."""
    seen: Counter[str] = Counter()
    for seed in seeds_in(FIXED):
        town = played(seed)
        seen.update(town.events)
        seen.update(town.book.events)

    for event in EVENTS:
        assert seen[event] >= 2, f"{event}: {seen}"
