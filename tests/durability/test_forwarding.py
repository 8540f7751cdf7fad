"""SIGKILL at random moments while messages travel a chain of queues on several brokers (R27)."""

from __future__ import annotations

import asyncio
import json
import logging
import random
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Final

import pytest

from shardbus.amqp.outcomes import ACCEPTED, Accepted, DeliveryState
from shardbus.app.cli.sas import parse_connection_string
from shardbus.message.sections import encode_data_message
from tests.conformance.rest import Answer
from tests.durability.test_repartition import asked
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
KEYS: Final = 20
COUNTS: Final = (1, 2, 3, 5)


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
                    payloads = [payload(number) for number in range(first, first + BATCH)]

                    def heard(
                        position: int, state: DeliveryState | None, first: int = first
                    ) -> None:
                        if isinstance(state, Accepted):
                            self.accepted.add(first + position)

                    await sender.send_all(payloads, heard)
            except Ended:
                return


def payload(number: int) -> bytes:
    return encode_data_message(b"%d" % number, partition_key=f"key-{number % KEYS}")


class Changing:
    """Gives the entities of the chain other fragments, one after another."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names
        self.changes = 0

    async def until_killed(self, server: Server, dice: random.Random) -> None:
        while self._names:
            name, count = dice.choice(self._names), dice.choice(COUNTS)
            answer = await asyncio.to_thread(repartition, server, count, name)
            if answer is None:
                return
            self.changes += answer.status == 200
            # Refused while messages wait in former fragments.
            assert answer.status == 200 or b"former" in answer.body or b"already" in answer.body
            await asyncio.sleep(0.02)


def repartition(server: Server, count: int, name: str) -> Answer | None:
    body = json.dumps({"fragments": count}).encode()
    return asked(server, "POST", f"/api/v1/entities/{name}/repartition", body)


async def load(server: Server, sending: Sending, changing: Changing, dice: random.Random) -> None:
    async with asyncio.TaskGroup() as clients:
        clients.create_task(changing.until_killed(server, dice))
        clients.create_task(sending.until_killed(server, dice))


def are_in_order(numbers: list[int]) -> bool:
    """Whether the messages of each key came in their order."""
    for key in range(KEYS):
        of_key = [number for number in numbers if number % KEYS == key]
        if of_key != sorted(of_key):
            return False
    return True


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
    ("options", "kills", "is_changing"),
    [
        ((), KILLS, False),
        pytest.param(("--broker-processes",), 2, False, marks=pytest.mark.release),
        pytest.param((), KILLS, True, marks=pytest.mark.long),
        pytest.param(("--broker-processes",), KILLS, True, marks=pytest.mark.release),
    ],
    ids=["one", "processes", "one with other maps", "processes with other maps"],
)
def test_messages_that_are_forwarded_are_neither_lost_nor_doubled(
    tmp_path: Path, options: tuple[str, ...], kills: int, is_changing: bool
) -> None:
    """R27, P6: whatever moment the server is killed at, what was accepted comes out once, and the
    messages of each key in their order, also if the queues get other fragments.
    """
    names = tuple(name for name, _ in CHAIN) if is_changing else ()
    changing = Changing(names)
    dice = random.Random(SEED)
    sending = Sending()
    chosen = ("--tls-port", "0", "--brokers", "4", *options)
    with running_server(tmp_path / "data", *chosen) as server:
        following: dict[str, str] = {}
        for name, is_partitioned in reversed(CHAIN):
            create_queue(server, name, EnablePartitioning=is_partitioned, **following)
            following = {"ForwardTo": name}
        for kill in range(kills):
            asyncio.run(load(server, sending, changing, dice))
            log.info("kill %d: %d accepted", kill, len(sending.accepted))
            log.info("%d changes of maps", changing.changes)
            server.start()

        found = asyncio.run(drain(server, len(sending.accepted)))

    assert len(sending.accepted) > kills * BATCH, "too little was sent to prove anything"
    assert len(found) == len(set(found)), "something came out twice"
    assert sending.accepted <= set(found), "something was lost"
    assert set(found) <= set(range(sending.tried))
    assert are_in_order(found)
    assert changing.changes >= len(names)
