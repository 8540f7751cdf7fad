"""Wall clocks that are set, minutes to days, forward and back, some for half a second only.

What lasts (locks, sessions, claims, stages, promises) lasts as long as was said, by a clock that is
never set; what waits for a moment comes within a bound after the wall clock says that it is there.
"""

import os
from collections import Counter
from functools import cache

import pytest

from tests.simulation import tally
from tests.simulation.moment_scenario import Village, run_moments
from tests.simulation.scenario import run_clocks, run_linked_clocks
from tests.simulation.seeds import failure_of, seeds_in
from tests.simulation.simulation import Simulation
from tests.simulation.walls import STEP_MS, undisturbed_ms

FIXED = "1-12,3473,8556"
FIXED_LINKED = "1-8"


@cache
def played(seed: int) -> tuple[Simulation, Counter[str]]:
    counted = tally.begin()
    return run_clocks(seed), counted.faults


@cache
def waited(seed: int) -> Village:
    return run_moments(seed)


@pytest.mark.parametrize("seed", seeds_in(os.environ.get("SEEDS") or f"{FIXED},3445"))
def test_locks_and_sessions_last_as_long_as_was_said(seed: int) -> None:
    """D14."""
    failure = failure_of(played, seed)

    assert failure is None, failure


@pytest.mark.parametrize(
    "seed", seeds_in(os.environ.get("SEEDS") or f"{FIXED_LINKED},1015,2984,3853,5112,5331,6891")
)
def test_machines_need_not_agree_about_the_time(seed: int) -> None:
    """D14."""
    failure = failure_of(run_linked_clocks, seed)

    assert failure is None, failure


@pytest.mark.parametrize("seed", seeds_in(os.environ.get("SEEDS") or f"{FIXED},224,6538,6692,7396"))
def test_moments_come_when_the_wall_clock_says_so(seed: int) -> None:
    """D14."""
    failure = failure_of(waited, seed)

    assert failure is None, failure


def test_one_seed_is_one_history_of_clocks() -> None:
    assert played(7)[0].digest() == run_clocks(7).digest()
    assert waited(7).digest() == run_moments(7).digest()


def test_the_fixed_histories_of_clocks_are_eventful() -> None:
    """A simulation in which nothing goes wrong proves nothing."""
    seen: Counter[str] = Counter()
    for seed in seeds_in(FIXED):
        simulation, faults = played(seed)
        seen.update(faults)
        seen.update(simulation.checker.events)
        seen["restarted"] += waited(seed).restarts
        seen["activated"] += len(waited(seed).activated)

    for event in ("clock set", "clock glitch", "lock lost", "completed", "restarted", "activated"):
        assert seen[event] >= 10, f"{event}: {seen}"


@pytest.mark.parametrize("ahead_ms", [0, STEP_MS, -6 * STEP_MS, 144 * STEP_MS])
@pytest.mark.parametrize("in_ms", [-60_000, 0, 60_000])
def test_a_moment_of_a_wrong_clock_is_told_by_one_that_is_right(ahead_ms: int, in_ms: int) -> None:
    assert undisturbed_ms(1_000_000 + in_ms + ahead_ms, 1_000_000) == 1_000_000 + in_ms
