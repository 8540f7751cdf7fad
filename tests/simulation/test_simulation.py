"""Deterministic simulation of the bus below the gateways: one seed, one history.

Accepted is never lost, completed never returns, a lock has one holder, a fragment delivers in
order, counters tell the truth, and when faults stop everything drains (R3, R10, R14-R19). A session
has one owner, keeps its order and its state (R26); deferred messages come by number alone,
scheduled and delayed ones not before their moment and soon after it; what expired is not
delivered; a duplicate is dropped inside the window, and nothing else ever is (R13, R32).
`SEEDS=1-500` plays other histories than the fixed ones.
"""

import os
import subprocess
import sys
from collections import Counter

import pytest

from tests.simulation.scenario import run
from tests.simulation.seeds import FIXED, failure_of, seeds_in

DIGEST = "from tests.simulation.scenario import run; print(run({seed}).digest())"

EVENTS = (
    "reloaded",
    "locked",
    "deleted",
    "completed",
    "abandoned",
    "dead-lettered",
    "released",
    "renewed",
    "lock lost",
    "delivered again",
    "dead letter delivered",
    "deferred",
    "deferred received",
    "delayed",
    "scheduled",
    "cancelled",
    "cancelled too late",
    "duplicate dropped",
    "peeked",
    "purged",
    "session accepted",
    "session refused",
    "session renewed",
    "session released",
    "session lost",
    "no session",
    "state set",
    "state read",
    "batch in several fragments",
)


_PLAYED: dict[int, Counter[str]] = {}


def run_once(seed: int) -> Counter[str]:
    """What happened in a history, which is played only once."""
    if seed not in _PLAYED:
        simulation = run(seed)
        outcomes = [sending.outcome for sending in simulation.checker.sendings.values()]
        seen = Counter({"crash": simulation.crashes}) + Counter(outcomes)
        _PLAYED[seed] = seen + simulation.checker.events
    return _PLAYED[seed]


@pytest.mark.parametrize("seed", seeds_in(os.environ.get("SEEDS") or FIXED))
def test_every_promise_is_kept(seed: int) -> None:
    failure = failure_of(run_once, seed)

    assert failure is None, failure


@pytest.mark.release
def test_one_seed_is_one_history_in_every_process() -> None:
    command = [sys.executable, "-c", DIGEST.format(seed=2)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    digests = {
        subprocess.run(
            command,
            env={**environment, "PYTHONHASHSEED": hash_seed},
            check=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ).stdout.strip()
        for hash_seed in ("1", "2")
    }

    assert digests == {run(2).digest()}


def test_two_seeds_are_two_histories() -> None:
    assert run(2).digest() != run(3).digest()


def test_the_fixed_histories_are_eventful() -> None:
    """A simulation in which nothing goes wrong proves nothing."""
    seen: Counter[str] = Counter()
    for seed in seeds_in(FIXED):
        seen += run_once(seed)

    for event in ("crash", "accepted", "refused", "unknown", *EVENTS):
        assert seen[event] >= 10, f"{event}: {seen}"


@pytest.mark.parametrize("text", ["", "x", "1-", "-3", "1-x"])
def test_seeds_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="seeds look like"):
        seeds_in(text)


def test_seeds_are_single_ranges_or_lists() -> None:
    assert seeds_in("17") == [17]
    assert seeds_in("3,5,9-12") == [3, 5, 9, 10, 11, 12]
