"""What forwards, and what is forwarded to, gets other fragments again and again (P6, R27).

Beside the gateway with its two forwarders there is another one, which only forwards and learns late
what has changed; and at times no source learns what has become of its messages. So many are on
their way to maps that are former ones already.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from shardbus.broker.forwarding.forwarder import Forwarder
from shardbus.broker.operations.asking import ask
from shardbus.core.errors import Unavailable
from shardbus.core.message import MAIN_LINE
from shardbus.core.messages.command import COMPLETE, Settle
from shardbus.core.transfers.command import RefuseTransfers, ReturnTransfers, TransfersDone
from tests.simulation.forward_book import forwarded
from tests.simulation.forward_scenario import ForwardTown, play_forwarding, ports_of, received
from tests.simulation.sending import Violation
from tests.simulation.town import Gateway, outcome_of

# Destinations, sources, both at once, and topics of which both a copy and a dead letter is moved.
CHANGING: Final = ("end", "wide", "morgue", "b", "p", "a", "d", "h2", "t", "n")
ENDS: Final = ("end", "wide", "morgue")
COUNTS: Final = (1, 2, 3)
# How a source learns what has become of what it gave out.
RESULTS: Final = (TransfersDone, ReturnTransfers, RefuseTransfers)


def run_forward_maps(seed: int) -> ForwardTown:
    """Play one seed to its end; a broken promise raises Violation."""
    town = ForwardTown(seed)
    others = [_repartition(town), _lag(town), _lose(town), *(_empty(town, name) for name in ENDS)]
    town.play(play_forwarding(town, others, _finish))
    return town


async def _repartition(town: ForwardTown) -> None:
    while not town.is_over:
        await asyncio.sleep(town.chance.expovariate(2.5))
        gateway = await town.open_gateway()
        await _change(town, gateway, town.chance.choice(CHANGING), town.chance.choice(COUNTS))


async def _change(town: ForwardTown, gateway: Gateway, name: str, count: int) -> str:
    answer = await town.attempt(gateway, gateway.namespace.maps.change(name, count))
    outcome = outcome_of(answer)
    town.events[f"repartitioned {outcome}"] += 1
    town.note(f"{name} with {count} fragments: {outcome}")
    return outcome


async def _lag(town: ForwardTown) -> None:
    """A gateway that reads the catalogue now and then, and is told nothing."""
    while not town.is_over:
        gateway = Gateway(town)
        gateway.start(Forwarder(gateway.bus, forwarded).run())
        for _ in range(town.chance.randint(1, 5)):
            with suppress(Unavailable):
                await gateway.namespace.reload()
            await asyncio.sleep(town.chance.expovariate(0.5))
        gateway.die()


async def _lose(town: ForwardTown) -> None:
    """For a moment no source learns that its messages have arrived, so that they are on their way
    for long enough to see another map.
    """
    while not town.is_over:
        await asyncio.sleep(town.chance.expovariate(0.5))
        site = town.chance.choice(town.sites)
        site.lost = RESULTS
        await asyncio.sleep(town.chance.uniform(0.1, 2.0))
        site.lost = ()


async def _empty(town: ForwardTown, name: str) -> None:
    """Receive what has arrived, so that the entity can get yet another map."""
    while not town.is_over:
        await asyncio.sleep(town.chance.expovariate(3.0))
        gateway = await town.open_gateway()
        for port in ports_of(gateway, name):
            deliveries = await received(town, gateway, port, MAIN_LINE)
            if deliveries:
                tokens = [delivery.token for delivery in deliveries]
                await town.attempt(gateway, ask(port, Settle(COMPLETE, tokens)))


async def _finish(town: ForwardTown, gateway: Gateway) -> None:
    # A broker may have returned before the gateway was open, which has not told it who subscribes.
    await gateway.namespace.sweep()
    for name in CHANGING:
        if await _change(town, gateway, name, 5) != "accepted":
            raise Violation(f"without faults '{name}' cannot be repartitioned")
