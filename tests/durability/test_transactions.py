"""SIGKILL at random moments while transactions move messages between queues on several brokers."""

from __future__ import annotations

import asyncio
import logging
import random
from pathlib import Path
from typing import Final

import pytest

from tests.durability.ring import DESCRIPTION, MESSAGES, QUEUES, Mover, client_of, drain, fill
from tests.support.amqp_client import Ended
from tests.support.queues import create_queue
from tests.support.server import Server, running_server

log = logging.getLogger(__name__)

SEED: Final = 20_261_116
MOVERS_PER_WAY: Final = 2
LOAD_S: Final = (0.3, 1.5)


async def load(server: Server, dice: random.Random) -> int:
    """Move messages around in a ring of queues until the server is killed; how many were moved."""
    asyncio.get_running_loop().call_later(dice.uniform(*LOAD_S), server.kill)
    ways = list(zip(QUEUES, QUEUES[1:] + QUEUES[:1], strict=True)) * MOVERS_PER_WAY
    async with asyncio.timeout(60):
        return sum(await asyncio.gather(*(_until_killed(server, way, dice) for way in ways)))


async def _until_killed(server: Server, way: tuple[str, str], dice: random.Random) -> int:
    async with client_of(server) as client:
        mover = Mover(client, *way, dice)
        try:
            await mover.run()
        except Ended:
            return mover.moved
    raise AssertionError("a mover ended before the server did")


@pytest.mark.parametrize(
    ("options", "kills"),
    [((), 3), pytest.param(("--broker-processes",), 2, marks=pytest.mark.release)],
)
def test_messages_that_move_in_transactions_are_conserved(
    tmp_path: Path, options: tuple[str, ...], kills: int
) -> None:
    """R22: whatever moment the server is killed at, each message is in one queue, and once."""
    dice = random.Random(SEED)
    chosen = ("--tls-port", "0", "--brokers", "4", *options)
    with running_server(tmp_path / "data", *chosen) as server:
        for queue in QUEUES:
            create_queue(server, queue, **DESCRIPTION)
        asyncio.run(fill(server))
        moved = 0
        for kill in range(kills):
            now_moved = asyncio.run(load(server, dice))
            moved += now_moved
            log.info("kill %d: %d moved", kill, now_moved)
            server.start()

        found = asyncio.run(drain(server))

    assert sorted(found) == list(range(MESSAGES))
    assert moved > 0, "nothing was moved, so the test proves nothing"
