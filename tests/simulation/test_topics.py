"""Topics in the simulation: publishers, subscribers and changing rules, while processes die.

An accepted message reaches each subscription whose rules take it exactly once, all of them in one
transaction and in the order of its key, and no other subscription; what was changed is in effect
when it is answered, and nothing is left of what was deleted (R28, R30).
"""

import os
from collections import Counter
from functools import cache

import pytest

from tests.simulation.seeds import failure_of, seeds_in
from tests.simulation.topic_scenario import run_topics
from tests.simulation.topic_town import TopicTown

FIXED = "5-12,7090"
EVENTFUL = "6-12"

EVENTS = (
    "accepted",
    "refused",
    "unknown",
    "reached",
    "passed over",
    "plain",
    "stamp",
    "relabel",
    "failed",
    "duplicate dropped",
    "delivered again",
    "change accepted",
    "cancel accepted",
    "broker crashed",
    "gateway crashed",
)


@cache
def played(seed: int) -> TopicTown:
    return run_topics(seed)


@pytest.mark.parametrize("seed", seeds_in(os.environ.get("SEEDS") or f"{FIXED},918"))
def test_what_topics_promise_is_kept(seed: int) -> None:
    failure = failure_of(played, seed)

    assert failure is None, failure


def test_one_seed_is_one_history_of_topics() -> None:
    assert played(7).digest() == run_topics(7).digest()


def test_the_fixed_histories_of_topics_are_eventful() -> None:
    """A simulation in which nothing goes wrong proves nothing."""
    seen: Counter[str] = Counter()
    for seed in seeds_in(EVENTFUL):
        town = played(seed)
        seen.update(town.events)
        seen.update(town.book.events)

    for event in EVENTS:
        assert seen[event] >= 3, f"{event}: {seen}"
