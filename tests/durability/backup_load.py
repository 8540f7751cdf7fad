"""Everything that must be whole in a backup, going on while backups are made."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Final

from shardbus.amqp.events import IncomingDelivery
from shardbus.amqp.outcomes import ACCEPTED, Accepted, DeliveryState
from shardbus.amqp.termini import Source
from shardbus.message.sections import encode_data_message
from tests.durability import ring
from tests.support.amqp_client import AmqpClient, Receiver
from tests.support.messages import seen
from tests.support.queues import create_queue
from tests.support.server import Server

WORK: Final = "work"
CHAIN: Final = ("chain-in", "chain-out")
SESSIONS: Final = "sessions"
SESSION_IDS: Final = tuple(f"session-{number}" for number in range(6))
SESSION_FILTER: Final = "com.microsoft:session-filter"
BATCH: Final = 10
PAUSE_S: Final = 0.05
CREDIT: Final = 200
QUIET_S: Final = 2.0
SETTLE_S: Final = 60.0


@dataclass
class Book:
    """What clients know: what was accepted, what was completed, and what may have been."""

    accepted: set[int] = field(default_factory=set)
    completed: set[int] = field(default_factory=set)
    touched: set[int] = field(default_factory=set)

    def copy(self) -> Book:
        return Book(set(self.accepted), set(self.completed), set(self.touched))


class Load:
    """Senders, receivers, transactions over two brokers, forwarding and sessions."""

    def __init__(self, server: Server, dice: random.Random) -> None:
        self._server = server
        self._dice = dice
        self.books = {name: Book() for name in (WORK, CHAIN[0], SESSIONS)}
        self.movers: list[ring.Mover] = []

    def prepare(self) -> None:
        for queue in ring.QUEUES:
            create_queue(self._server, queue, **ring.DESCRIPTION)
        create_queue(self._server, WORK)
        create_queue(self._server, CHAIN[1], EnablePartitioning="false")
        create_queue(self._server, CHAIN[0], ForwardTo=CHAIN[1])
        create_queue(self._server, SESSIONS, RequiresSession="true")

    async def run(self, work: Coroutine[object, object, None]) -> None:
        """Do the work while everything goes on."""
        await ring.fill(self._server)
        ways = zip(ring.QUEUES, ring.QUEUES[1:] + ring.QUEUES[:1], strict=True)
        loads = [
            self._send(WORK),
            self._send(CHAIN[0]),
            self._send(SESSIONS),
            self._complete(),
            *(self._move(*way) for way in ways),
        ]
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(load) for load in loads]
            await work
            for task in running:
                task.cancel()

    def known(self) -> dict[str, Book]:
        return {name: book.copy() for name, book in self.books.items()}

    async def _send(self, queue: str) -> None:
        book = self.books[queue]
        number = 0
        async with ring.client_of(self._server) as client:
            sender = await client.sender(queue)
            while True:
                first = number
                number += BATCH

                def heard(position: int, state: DeliveryState | None, first: int = first) -> None:
                    if isinstance(state, Accepted):
                        book.accepted.add(first + position)

                bodies = range(first, first + BATCH)
                await sender.send_all([_message(queue, body) for body in bodies], heard)
                await asyncio.sleep(PAUSE_S)

    async def _complete(self) -> None:
        """Every other message; the rest is left to its lock."""
        book = self.books[WORK]
        async with ring.client_of(self._server) as client:
            receiver = await client.receiver(WORK, credit=BATCH)
            while True:
                chosen = [one for one in await receiver.take_some() if _number(one) % 2]
                book.touched |= {_number(one) for one in chosen}
                if chosen:
                    for one, state in zip(
                        chosen, await receiver.settle(chosen, ACCEPTED), strict=True
                    ):
                        if isinstance(state, Accepted):
                            book.completed.add(_number(one))
                receiver.grant(BATCH)

    async def _move(self, source: str, target: str) -> None:
        async with ring.client_of(self._server) as client:
            mover = ring.Mover(client, source, target, self._dice)
            self.movers.append(mover)
            await mover.run()


async def drained(server: Server, queue: str, expected: set[int]) -> list[int]:
    """Everything in a queue, in the order in which it comes; what is expected is waited for."""
    async with ring.client_of(server) as client:
        if queue == SESSIONS:
            parts = [_of_session(client, queue, each, expected) for each in SESSION_IDS]
            return [number for part in await asyncio.gather(*parts) for number in part]
        return await _all_of(client, queue, expected)


async def _of_session(
    client: AmqpClient, queue: str, session_id: str, expected: set[int]
) -> list[int]:
    source = Source()
    source.address = queue
    source.filters = {SESSION_FILTER: session_id}
    wanted = {one for one in expected if _session_of(one) == session_id}
    return await _all_of(client, source, wanted)


async def _all_of(client: AmqpClient, source: str | Source, expected: set[int]) -> list[int]:
    loop = asyncio.get_running_loop()
    found: list[int] = []
    receiver: Receiver = await client.receiver(source, credit=CREDIT)
    deadline_s = loop.time() + SETTLE_S
    while loop.time() < deadline_s:
        deliveries = receiver.take_waiting()
        if not deliveries:
            if expected <= set(found):
                # What should not be there is given a moment to show itself.
                deadline_s = min(deadline_s, loop.time() + QUIET_S)
            await asyncio.sleep(0.1)
            continue
        await receiver.settle(deliveries, ACCEPTED)
        found += [_number(one) for one in deliveries]
        receiver.grant(CREDIT)
        deadline_s = loop.time() + SETTLE_S
    return found


def in_order_by_session(found: Sequence[int]) -> bool:
    of_session = [[one for one in found if _session_of(one) == each] for each in SESSION_IDS]
    return all(numbers == sorted(numbers) for numbers in of_session)


def _message(queue: str, number: int) -> bytes:
    session_id = _session_of(number) if queue == SESSIONS else None
    return encode_data_message(b"%d" % number, session_id=session_id)


def _session_of(number: int) -> str:
    return SESSION_IDS[number % len(SESSION_IDS)]


def _number(delivery: IncomingDelivery) -> int:
    return int(seen(delivery.payload).body)
