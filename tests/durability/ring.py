"""Messages that are moved around in a ring of queues on several brokers, in transactions."""

from __future__ import annotations

import asyncio
import random
from contextlib import AbstractAsyncContextManager
from typing import Final

from shardbus.amqp.events import IncomingDelivery
from shardbus.amqp.outcomes import ACCEPTED, Accepted, Declared, TransactionalState
from shardbus.amqp.termini import Coordinator
from shardbus.app.cli.sas import parse_connection_string
from shardbus.codec import codes
from shardbus.codec.types import Described, Ulong, Value
from shardbus.message.sections import build_message, encode_data_message
from tests.support.amqp_client import Address, AmqpClient, Sender, connected
from tests.support.messages import seen
from tests.support.server import Server

MESSAGES: Final = 120
PER_TRANSACTION: Final = 3
# A transaction that nobody decided is rolled back after ten seconds, a lock ends after five.
SETTLE_S: Final = 60.0
DESCRIPTION: Final = {
    "EnablePartitioning": "false",
    "LockDuration": "PT5S",
    "MaxDeliveryCount": "2000",
}
QUEUES: Final = ("left", "right", "middle", "top")


def client_of(server: Server) -> AbstractAsyncContextManager[AmqpClient]:
    address = Address(server.host, server.amqp_port)
    return connected(address, parse_connection_string(server.connection_string).credential)


class Mover:
    """Moves messages from one queue to another, a few in each transaction."""

    def __init__(self, client: AmqpClient, source: str, target: str, dice: random.Random) -> None:
        self._client = client
        self._source, self._target = source, target
        self._dice = dice
        self.moved = 0

    async def run(self) -> None:
        """Until the server is killed."""
        coordinator = await self._coordinator()
        receiver = await self._client.receiver(self._source, credit=PER_TRANSACTION)
        sender = await self._client.sender(self._target)
        while True:
            deliveries = await receiver.take_some()
            transaction_id = await _declare(coordinator)
            for delivery in deliveries:
                await _send(sender, seen(delivery.payload).body, transaction_id)
            settled = TransactionalState(transaction_id, ACCEPTED)
            await receiver.settle(deliveries, settled)
            is_failed = self._dice.random() < 0.1
            state = await _ask(
                coordinator, Described(Ulong(codes.DISCHARGE), [transaction_id, is_failed])
            )
            if isinstance(state, Accepted) and not is_failed:
                self.moved += len(deliveries)
            receiver.grant(PER_TRANSACTION)

    async def _coordinator(self) -> Sender:
        name = f"coordinator-{self._dice.getrandbits(60)}"
        link = self._client.session.attach_sender(name, target=Coordinator())
        sender = Sender(self._client, link)
        self._client.flush()
        await sender.opened
        return sender


async def _declare(coordinator: Sender) -> bytes:
    state = await _ask(coordinator, Described(Ulong(codes.DECLARE), [None]))
    assert isinstance(state, Declared)
    return state.transaction_id


async def _ask(coordinator: Sender, body: Value) -> object:
    return await coordinator.send(build_message(body=body))


async def _send(sender: Sender, content: bytes, transaction_id: bytes) -> None:
    state = TransactionalState(transaction_id, None)
    outcome = await sender.send(encode_data_message(content), state=state)
    assert outcome == TransactionalState(transaction_id, ACCEPTED)


async def fill(server: Server) -> None:
    async with client_of(server) as client:
        sender = await client.sender(QUEUES[0])
        for number in range(MESSAGES):
            assert isinstance(await sender.send(encode_data_message(b"%d" % number)), Accepted)


async def drain(server: Server) -> list[int]:
    """Everything that is in any queue, once nothing is locked or promised any more."""
    found: list[int] = []
    deadline_s = asyncio.get_running_loop().time() + SETTLE_S
    async with client_of(server) as client:
        receivers = [await client.receiver(queue, credit=MESSAGES) for queue in QUEUES]
        while asyncio.get_running_loop().time() < deadline_s:
            for receiver in receivers:
                deliveries: list[IncomingDelivery] = receiver.take_waiting()
                if deliveries:
                    await receiver.settle(deliveries, ACCEPTED)
                    found += [int(seen(delivery.payload).body) for delivery in deliveries]
                    receiver.grant(MESSAGES)
            if len(found) >= MESSAGES:
                # What comes beyond is there twice: give it a moment to show itself.
                deadline_s = min(deadline_s, asyncio.get_running_loop().time() + 2)
            await asyncio.sleep(0.2)
    return found
