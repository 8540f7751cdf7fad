"""Transactions in the simulation: items move between queues of several brokers, processes die.

A transaction is done in all of its fragments or in none, whoever crashes at whatever step; no item
is lost or doubled, and nothing stays promised for ever (R22).
"""

import os
from collections import Counter
from functools import cache

import pytest

from tests.simulation.seeds import failure_of, seeds_in
from tests.simulation.transaction_scenario import TransactionTown, run_transactions

# Few end unknown, since the bus asks until it knows.
FIXED = "1-20,35,40,50"

EVENTS = (
    "accepted",
    "refused",
    "unknown",
    "done",
    "not done",
    "broker crashed",
    "gateway crashed",
    "requests accepted",
    "requests refused",
    "cancelled",
    "received",
    "gone",
)


@cache
def played(seed: int) -> TransactionTown:
    return run_transactions(seed)


@pytest.mark.parametrize("seed", seeds_in(os.environ.get("SEEDS") or FIXED))
def test_a_transaction_is_done_everywhere_or_nowhere(seed: int) -> None:
    """R22."""
    failure = failure_of(played, seed)

    assert failure is None, failure


def test_one_seed_is_one_history_of_transactions() -> None:
    assert played(7).digest() == run_transactions(7).digest()


def test_the_fixed_histories_of_transactions_are_eventful() -> None:
    """A simulation in which nothing goes wrong proves nothing."""
    seen: Counter[str] = Counter()
    for seed in seeds_in(FIXED):
        town = played(seed)
        seen.update(town.events)
        seen.update(town.book.events)
        seen.update(town.book.requests.events)

    for event in EVENTS:
        assert seen[event] >= 5, f"{event}: {seen}"
