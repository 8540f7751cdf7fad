"""SIGKILL at random moments while messages travel a chain of queues on several brokers (R27)."""

from __future__ import annotations

import asyncio
import logging
import random
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Final

import pytest

from shardbus.amqp.outcomes import ACCEPTED, Accepted, DeliveryState
from shardbus.app.cli.sas import parse_connection_string
from shardbus.message.sections import encode_data_message
from tests.support.amqp_client import Address, AmqpClient, Ended, connected
from tests.support.messages import seen
from tests.support.queues import create_queue
from tests.support.server import Server, running_server

log = logging.getLogger(__name__)

KILLS: Final = 5
SEED: Final = 20_261_117
BATCH: Final = 50
LOAD_S: Final = (0.3, 1.2)
SETTLE_S: Final = 60.0
CREDIT: Final = 200
# From the first to the last: conventional and partitioned in turn.
CHAIN: Final = (("a", "false"), ("b", "true"), ("c", "true"), ("d", "false"))


class Sending:
    """What was sent into the chain: of some of it nobody knows whether it was accepted."""

    def __init__(self) -> None:
        self.tried = 0
        self.accepted: set[int] = set()

    async def until_killed(self, server: Server, dice: random.Random) -> None:
        asyncio.get_running_loop().call_later(dice.uniform(*LOAD_S), server.kill)
        async with asyncio.timeout(60), _connected(server) as client:
            sender = await client.sender(CHAIN[0][0])
            try:
                while True:
                    first = self.tried
                    self.tried += BATCH
                    payloads = [encode_data_message(b"%d" % (first + at)) for at in range(BATCH)]

                    def heard(
                        position: int, state: DeliveryState | None, first: int = first
                    ) -> None:
                        if isinstance(state, Accepted):
                            self.accepted.add(first + position)

                    await sender.send_all(payloads, heard)
            except Ended:
                return


async def drain(server: Server, expected: int) -> list[int]:
    """Everything that comes out of the chain; what is accepted must, and a little time is given
    for what should not."""
    found: list[int] = []
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + SETTLE_S
    async with _connected(server) as client:
        receiver = await client.receiver(CHAIN[-1][0], credit=CREDIT)
        while loop.time() < deadline_s:
            deliveries = receiver.take_waiting()
            if not deliveries:
                if len(found) >= expected:
                    deadline_s = min(deadline_s, loop.time() + 2)
                await asyncio.sleep(0.1)
                continue
            await receiver.settle(deliveries, ACCEPTED)
            found += [int(seen(delivery.payload).body) for delivery in deliveries]
            receiver.grant(CREDIT)
    return found


def _connected(server: Server) -> AbstractAsyncContextManager[AmqpClient]:
    address = Address(server.host, server.amqp_port)
    return connected(address, parse_connection_string(server.connection_string).credential)


@pytest.mark.parametrize(
    ("options", "kills"),
    [((), KILLS), pytest.param(("--broker-processes",), 2, marks=pytest.mark.release)],
    ids=["one", "processes"],
)
def test_messages_that_are_forwarded_are_neither_lost_nor_doubled(
    tmp_path: Path, options: tuple[str, ...], kills: int
) -> None:
    """R27: whatever moment the server is killed at, what was accepted comes out once."""
    dice = random.Random(SEED)
    sending = Sending()
    chosen = ("--tls-port", "0", "--brokers", "4", *options)
    with running_server(tmp_path / "data", *chosen) as server:
        following: dict[str, str] = {}
        for name, is_partitioned in reversed(CHAIN):
            create_queue(server, name, EnablePartitioning=is_partitioned, **following)
            following = {"ForwardTo": name}
        for kill in range(kills):
            asyncio.run(sending.until_killed(server, dice))
            log.info("kill %d: %d accepted", kill, len(sending.accepted))
            server.start()

        found = asyncio.run(drain(server, len(sending.accepted)))

    assert len(sending.accepted) > kills * BATCH, "too little was sent to prove anything"
    assert len(found) == len(set(found)), "something came out twice"
    assert sending.accepted <= set(found), "something was lost"
    assert set(found) <= set(range(sending.tried))
