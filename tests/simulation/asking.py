"""Questions of clients to the bus: answered in time, given up, or cut off with the connection."""

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

from shardbus.core.errors import Refused, Unavailable
from tests.simulation.bus import Gate
from tests.simulation.sending import Violation
from tests.simulation.simulation import Simulation

T = TypeVar("T")

ANSWER_S_MAX = 120.0
LOOK_S = 0.5


async def ask(
    simulation: Simulation, gate: Gate, question: Coroutine[object, object, T]
) -> T | Refused | Unavailable:
    """The answer; one that is not awaited to its end is unknown."""
    chance = simulation.chance
    is_hasty = not simulation.is_over and chance.random() < 0.04
    patience_s = chance.uniform(0.0, 0.02) if is_hasty else ANSWER_S_MAX
    task = simulation.loop.create_task(question)
    deadline_s = simulation.loop.time() + patience_s
    while not task.done():
        left_s = deadline_s - simulation.loop.time()
        if left_s <= 0 or gate.is_dead:
            break
        await asyncio.wait({task}, timeout=min(left_s, LOOK_S))
    if not task.done() and not is_hasty and not gate.is_dead:
        raise Violation(f"{name_of(question)} was not answered in time")
    if not task.done():
        task.cancel()
        await asyncio.wait({task})
    return _result(task)


def _result(task: "asyncio.Task[T]") -> T | Refused | Unavailable:
    try:
        return task.result()
    except asyncio.CancelledError:
        return Unavailable("nobody waited for the answer", is_unknown=True)
    except (Refused, Unavailable) as failure:
        return failure


def name_of(question: object) -> str:
    return str(question).partition(" at ")[0]
