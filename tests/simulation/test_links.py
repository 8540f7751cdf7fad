"""Deterministic simulation of brokers and gateways in processes of their own.

Links are cut at any byte and stall, brokers crash and stand still, gateways start again, stores
fail and heal; every promise of `test_simulation` is kept (R1-R3, R14-R19), and a receiver that
waited through all of it is served without asking again.
"""

import asyncio
import os
import subprocess
import sys
from collections import Counter

import pytest

from tests.simulation.cluster import CRASH, CUT, CUT_AFTER, PAUSE, RESTART, STALL
from tests.simulation.process import ProcessLoop
from tests.simulation.scenario import run_linked
from tests.simulation.seeds import FIXED_LINKED, failure_of, seeds_in
from tests.simulation.world import VirtualLoop

DIGEST = "from tests.simulation.scenario import run_linked; print(run_linked({seed}).digest())"
EVENTFUL = 2


_PLAYED: dict[int, tuple[Counter[str], Counter[int]]] = {}


def run_once(seed: int) -> tuple[Counter[str], Counter[int]]:
    """What happened in a history and which disasters befell it; it is played only once."""
    if seed not in _PLAYED:
        cluster = run_linked(seed)
        outcomes = [sending.outcome for sending in cluster.checker.sendings.values()]
        seen = Counter({"crash": cluster.crashes}) + Counter(outcomes) + cluster.checker.events
        _PLAYED[seed] = seen, cluster.disasters
    return _PLAYED[seed]


@pytest.mark.parametrize("seed", seeds_in(os.environ.get("SEEDS") or f"{FIXED_LINKED},5578,7635"))
def test_every_promise_is_kept_over_links(seed: int) -> None:
    failure = failure_of(run_once, seed)

    assert failure is None, failure


def test_one_seed_is_one_history_in_every_process() -> None:
    command = [sys.executable, "-c", DIGEST.format(seed=EVENTFUL)]
    ended = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )

    assert ended.stdout.strip() == run_linked(EVENTFUL).digest()


def test_the_fixed_histories_are_eventful() -> None:
    """A simulation in which nothing goes wrong proves nothing."""
    seen: Counter[str] = Counter()
    kinds: Counter[int] = Counter()
    for seed in seeds_in(FIXED_LINKED):
        events, disasters = run_once(seed)
        seen += events
        kinds += disasters

    for kind in (CUT, CUT_AFTER, STALL, CRASH, PAUSE, RESTART):
        assert kinds[kind] >= 3, f"{kind}: {kinds}"
    asked = ("send found stored", "send given up")
    batches = "batch in several fragments"
    for event in (
        "crash",
        "accepted",
        "refused",
        "unknown",
        "released",
        "lock lost",
        batches,
        *asked,
    ):
        assert seen[event] >= 10, f"{event}: {seen}"


def test_a_process_that_stands_still_does_later_what_came_due_meanwhile() -> None:
    world = VirtualLoop()
    process = ProcessLoop(world)
    done: list[str] = []
    process.call_later(1.0, done.append, "timer")
    process.call_later(2.0, done.append, "cancelled").cancel()
    world.call_later(0.5, process.pause)
    world.call_later(1.5, process.arrive, lambda: done.append("arrival"))
    world.call_later(2.5, lambda: done.append("still"))
    world.call_later(3.0, lambda: process.resume(timers_first=False))

    world.finish(world.create_task(asyncio.sleep(4.0)))

    assert done == ["still", "arrival", "timer"]
