"""Batches of several keys in the simulation: queues of several brokers, processes that die (R49).

A batch is there whole or not at all, whoever crashes at whatever step; each key keeps the order in
which it was sent, and where ids are remembered nothing is there twice.
"""

import os
from collections import Counter
from functools import cache

import pytest

from tests.simulation.batch_book import Batch, BatchBook, Item
from tests.simulation.batch_scenario import BatchTown, run_batches
from tests.simulation.seeds import failure_of, seeds_in
from tests.simulation.sending import Violation

FIXED = "1-20"

EVENTS = (
    "accepted",
    "refused",
    "unknown",
    "spread",
    "in one fragment",
    "nowhere",
    "broker crashed",
    "gateway crashed",
)


@cache
def played(seed: int) -> BatchTown:
    return run_batches(seed)


@pytest.mark.parametrize("seed", seeds_in(os.environ.get("SEEDS") or FIXED))
def test_a_batch_is_there_whole_or_not_at_all(seed: int) -> None:
    """R49."""
    failure = failure_of(played, seed)

    assert failure is None, failure


def test_one_seed_is_one_history_of_batches() -> None:
    assert played(7).digest() == run_batches(7).digest()


def test_the_fixed_histories_of_batches_are_eventful() -> None:
    """A simulation in which nothing goes wrong proves nothing."""
    seen: Counter[str] = Counter()
    for seed in seeds_in(FIXED):
        town = played(seed)
        seen.update(town.events)
        seen.update(town.book.events)

    for event in EVENTS:
        assert seen[event] >= 5, f"{event}: {seen}"


def test_half_a_batch_is_a_violation() -> None:
    book = BatchBook()
    book.begin(1, Batch("keyed", 0, ["a", "b"]))
    book._stored[Item(1, 0)] = (played(1).sites[0].disk.kept.fragments()[0], 1)
    book.told(1, "unknown", is_cut_off=True)

    with pytest.raises(Violation, match="1 of 2 messages of batch 1"):
        book.finish()
