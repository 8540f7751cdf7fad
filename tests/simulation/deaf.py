"""A client that fails at every answer it gets, beside all the others."""

import asyncio
from contextlib import suppress
from typing import NoReturn

from shardbus.broker.fragment.answers import Answer
from shardbus.broker.routing.dispatch import FragmentPort
from shardbus.core.message import MAIN_LINE
from shardbus.core.transfers.command import ListTransfers
from tests.simulation.bus import Plan
from tests.simulation.simulation import Simulation
from tests.simulation.tally import befell
from tests.simulation.world import Planted

ASKS_PER_S = 4.0


async def be_deaf(simulation: Simulation, plan: Plan) -> None:
    """Ask what changes nothing, and fail when it is answered; until it is over."""
    chance = simulation.chance
    while not simulation.is_over:
        await asyncio.sleep(chance.expovariate(ASKS_PER_S))
        gates = simulation.gates()
        if gates:
            _ask(chance.choice(chance.choice(gates).ways[plan.entity_id].router.ports))


def _ask(port: FragmentPort) -> None:
    # One that turns it away at once fails nobody but the one who asks.
    with suppress(Planted):
        port.submit(ListTransfers(MAIN_LINE), _fail)


def _fail(answer: Answer) -> NoReturn:
    befell("deaf client")
    raise Planted
