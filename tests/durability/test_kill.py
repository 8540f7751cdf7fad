"""SIGKILL at random moments under load: what was promised before must hold after."""

from __future__ import annotations

import asyncio
import logging
import random
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from shardbus.amqp.events import IncomingDelivery
from shardbus.amqp.outcomes import ACCEPTED, Accepted, DeliveryState, Modified
from shardbus.app.cli.sas import Credential, parse_connection_string
from shardbus.message.sections import BATCH_FORMAT, encode_batch, encode_data_message
from tests.support.amqp_client import Address, AmqpClient, Ended, Receiver, connected
from tests.support.messages import seen
from tests.support.queues import create_queue, describe_queue
from tests.support.server import Server, running_server

log = logging.getLogger(__name__)

KILLS: Final = 20
SEED: Final = 20_240_229
BATCH: Final = 7
WINDOW: Final = 200
CREDIT: Final = 100
# What one receiver can have settled and not heard about: at most what its credit let it have.
UNKNOWN_PER_KILL_MAX: Final = 2 * CREDIT
QUEUES: Final = ("partitioned", "conventional")
LOAD_S: Final = (0.05, 0.8)


@dataclass
class Ledger:
    """What clients were told, and what therefore must be true for ever.

    A message whose completion was asked for and never confirmed may be there or not: unknown.
    """

    attempted: set[int] = field(default_factory=set)
    accepted: set[int] = field(default_factory=set)
    unknown: set[int] = field(default_factory=set)
    completed: set[int] = field(default_factory=set)
    returned: list[int] = field(default_factory=list)
    next_number: int = 0

    def new_numbers(self, count: int) -> list[int]:
        numbers = list(range(self.next_number, self.next_number + count))
        self.next_number += count
        self.attempted.update(numbers)
        return numbers

    def note_delivery(self, number: int) -> None:
        assert number in self.attempted, f"{number} was never sent"
        if number in self.completed:
            self.returned.append(number)


async def send_singles(client: AmqpClient, queue: str, ledger: Ledger) -> None:
    sender = await client.sender(queue)
    while True:
        numbers = ledger.new_numbers(WINDOW)

        def then(position: int, state: DeliveryState | None, numbers: list[int] = numbers) -> None:
            assert isinstance(state, Accepted), state
            ledger.accepted.add(numbers[position])

        await sender.send_all([_message(number) for number in numbers], then)


async def send_batches(client: AmqpClient, queue: str, ledger: Ledger) -> None:
    sender = await client.sender(queue)
    while True:
        batches = [ledger.new_numbers(BATCH) for _ in range(20)]

        def then(
            position: int, state: DeliveryState | None, batches: list[list[int]] = batches
        ) -> None:
            assert isinstance(state, Accepted), state
            ledger.accepted.update(batches[position])

        payloads = [encode_batch([_message(number) for number in batch]) for batch in batches]
        await sender.send_all(payloads, then, BATCH_FORMAT)


async def receive(client: AmqpClient, queue: str, ledger: Ledger, dice: random.Random) -> None:
    """Complete most messages, abandon some, and keep some locked until the end."""
    receiver = await client.receiver(queue, credit=CREDIT)
    while True:
        deliveries = await receiver.take_some()
        numbers = [int(seen(delivery.payload).body) for delivery in deliveries]
        for number in numbers:
            ledger.note_delivery(number)
        if dice.random() < 0.1:
            await receiver.settle(deliveries, Modified(delivery_failed=True))
        elif dice.random() < 0.9:
            ledger.unknown.update(numbers)
            states = await receiver.settle(deliveries, ACCEPTED)
            assert all(isinstance(state, Accepted) for state in states)
            ledger.unknown.difference_update(numbers)
            ledger.completed.update(numbers)
        if receiver.link.credit <= CREDIT // 2:
            receiver.grant(CREDIT)


async def load(server: Server, ledgers: dict[str, Ledger], dice: random.Random) -> None:
    """Senders and receivers on every queue until the server is killed under them."""
    address, credential = _address(server), _credential(server)
    async with asyncio.timeout(60), AsyncExitStack() as clients:
        # A kill before the first message would prove nothing, so clients are there before it.
        works = [
            _until_killed(
                await clients.enter_async_context(connected(address, credential)),
                queue,
                ledger,
                dice,
            )
            for queue, ledger in ledgers.items()
        ]
        asyncio.get_running_loop().call_later(dice.uniform(*LOAD_S), server.kill)
        await asyncio.gather(*works)


async def _until_killed(
    client: AmqpClient, queue: str, ledger: Ledger, dice: random.Random
) -> None:
    works = [
        send_singles(client, queue, ledger),
        send_batches(client, queue, ledger),
        receive(client, queue, ledger, dice),
    ]
    for result in await asyncio.gather(*works, return_exceptions=True):
        if not isinstance(result, Ended):
            raise result if isinstance(result, BaseException) else AssertionError(result)


async def drain(server: Server, queue: str, ledger: Ledger) -> list[int]:
    """Everything that is left, completed one by one."""
    found: list[int] = []
    async with connected(_address(server), _credential(server)) as client:
        receiver = await client.receiver(queue)
        while deliveries := await _next(receiver):
            numbers = [int(seen(delivery.payload).body) for delivery in deliveries]
            for number in numbers:
                ledger.note_delivery(number)
            found.extend(numbers)
            await receiver.settle(deliveries, ACCEPTED)
    return found


async def _next(receiver: Receiver) -> list[IncomingDelivery]:
    """What there is for the credit; empty when the queue is."""
    receiver.grant(1_000, drain=True)
    await receiver.drained()
    return receiver.take_waiting()


@pytest.mark.long
def test_nothing_accepted_is_lost_and_nothing_completed_returns(tmp_path: Path) -> None:
    """R10, R28 and the promises of the design: twenty times, without a repair step."""
    dice = random.Random(SEED)
    ledgers = {queue: Ledger() for queue in QUEUES}
    with running_server(tmp_path / "data") as server:
        for queue in QUEUES:
            is_partitioned = "true" if queue == "partitioned" else "false"
            create_queue(server, queue, EnablePartitioning=is_partitioned, MaxDeliveryCount="2000")

        for _ in range(KILLS):
            asyncio.run(load(server, ledgers, dice))
            server.start()

        for queue, ledger in ledgers.items():
            left = asyncio.run(drain(server, queue, ledger))
            log.info(
                "%s: %d accepted, %d completed, %d unknown, %d left",
                queue, len(ledger.accepted), len(ledger.completed), len(ledger.unknown), len(left),
            )  # fmt: skip
            assert ledger.returned == []
            assert len(left) == len(set(left)), "a message was stored twice"
            assert ledger.accepted - ledger.completed - ledger.unknown - set(left) == set()
            assert len(ledger.unknown) <= KILLS * UNKNOWN_PER_KILL_MAX
            assert ledger.completed, "the load completed nothing, so the test proves nothing"
            assert describe_queue(server, queue).message_count == 0


def test_a_clean_restart_keeps_everything(tmp_path: Path) -> None:
    ledger = Ledger()

    async def send(server: Server) -> None:
        async with connected(_address(server), _credential(server)) as client:
            sender = await client.sender("kept")
            numbers = ledger.new_numbers(500)
            payloads = [_message(number) for number in numbers]
            await sender.send_all(payloads, lambda position, _: ledger.accepted.add(position))

    with running_server(tmp_path / "data") as server:
        created = create_queue(server, "kept", LockDuration="PT45S")
        asyncio.run(send(server))
        server.restart()

        found = describe_queue(server, "kept")
        assert found.elements["LockDuration"] == created.elements["LockDuration"] == "PT45S"
        assert found.message_count == 500
        assert set(asyncio.run(drain(server, "kept", ledger))) == ledger.accepted


def test_a_key_keeps_its_fragment_over_restarts(tmp_path: Path) -> None:
    """R10: always, across restarts."""
    keys = [f"key-{number}" for number in range(40)]

    async def send(server: Server) -> None:
        async with connected(_address(server), _credential(server)) as client:
            sender = await client.sender("pinned")
            for key in keys:
                state = await sender.send(encode_data_message(b"1", partition_key=key))
                assert isinstance(state, Accepted)

    async def fragments(server: Server) -> set[tuple[str | None, int]]:
        async with connected(_address(server), _credential(server)) as client:
            receiver = await client.receiver("pinned", credit=2 * len(keys))
            messages = [seen(one.payload) for one in await receiver.take_many(2 * len(keys))]
            return {(message.partition_key, message.fragment) for message in messages}

    with running_server(tmp_path / "data") as server:
        create_queue(server, "pinned", EnablePartitioning="true")
        asyncio.run(send(server))
        server.kill()
        server.start()
        asyncio.run(send(server))
        found = asyncio.run(fragments(server))

    assert len(found) == len(keys), "one fragment for each key"
    assert len({fragment for _, fragment in found}) > 1


def _address(server: Server) -> Address:
    return Address(server.host, server.amqp_port)


def _credential(server: Server) -> Credential:
    return parse_connection_string(server.connection_string).credential


def _message(number: int) -> bytes:
    return encode_data_message(b"%d" % number)
