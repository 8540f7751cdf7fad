"""A gateway is paused while applications of the official SDK work through it and another one."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Final

import pytest

from tests.chaos.load import Load, until_empty
from tests.chaos.test_gateways import Gateway, soon, two_gateways
from tests.support.queues import create_queue
from tests.support.server import Server

QUEUE: Final = "chaos"
CALM_S: Final = 2.0
PAUSE_S: Final = 5.0
GAP_S_MAX: Final = 3.0
# What each sender and receiver of the paused gateway may have had in flight when it stopped.
IN_FLIGHT_MAX: Final = 2


async def survive(server: Server, gateway: Gateway) -> tuple[Load, Load, float, float]:
    """Both gateways at work; the second stands still for a while; then until nothing is left."""
    through_it = Load(gateway.connection_string, QUEUE)
    beside_it = Load(server.connection_string, QUEUE)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(through_it.send_unkeyed("through"))
        tasks.create_task(through_it.receive())
        tasks.create_task(beside_it.send_unkeyed("beside"))
        tasks.create_task(beside_it.receive())
        await asyncio.sleep(CALM_S)
        start_s = time.monotonic()
        os.kill(gateway.pid, signal.SIGSTOP)
        await asyncio.sleep(PAUSE_S)
        os.kill(gateway.pid, signal.SIGCONT)
        end_s = time.monotonic()
        await asyncio.sleep(CALM_S)
        for load in (through_it, beside_it):
            load.stop_sending()
        await until_empty(server, QUEUE)
        for load in (through_it, beside_it):
            load.stop()
    return through_it, beside_it, start_s, end_s


@pytest.mark.long
def test_a_paused_gateway_loses_nothing_and_stops_nobody_else(tmp_path: Path) -> None:
    """R3: SIGSTOP, and SIGCONT as if nothing had been."""
    with two_gateways(tmp_path) as (server, gateway):
        create_queue(server, QUEUE, LockDuration="PT5S", MaxDeliveryCount="100")
        soon(gateway, QUEUE, exists=True)

        through_it, beside_it, start_s, end_s = asyncio.run(survive(server, gateway))

    received = through_it.ledger.received | beside_it.ledger.received
    for ledger in (through_it.ledger, beside_it.ledger):
        assert ledger.failed == []
        assert ledger.accepted - received == set(), "accepted messages were lost"
        assert len(ledger.accepted) > 50, "too little happened to prove anything"
    completions = through_it.ledger.completions + beside_it.ledger.completions
    assert [number for number, count in completions.items() if count > 1] == []
    assert beside_it.ledger.longest_gap_s(start_s, end_s) < GAP_S_MAX, "the other one stopped"
    bodies = {**through_it.ledger.bodies, **beside_it.ledger.bodies}
    assert len(bodies) - len(set(bodies.values())) <= IN_FLIGHT_MAX
