"""Senders and receivers over AMQP that go on whatever happens, and note what they were told."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final, final

from spark.tests.bus import Bus
from spark.tests.storm.books import Books, body_of

from shardbus.amqp.outcomes import ACCEPTED, Accepted, DeliveryState
from shardbus.app.cli.sas import parse_connection_string
from shardbus.message.sections import encode_data_message
from tests.support.amqp_client import Address, AmqpClient, Ended, Receiver, connected
from tests.support.messages import seen

SENDERS: Final = 2
RECEIVERS: Final = 2
WINDOW: Final = 100
CREDIT: Final = 100
PAUSE_S: Final = 0.2
SLOW_S: Final = 1.0
SLOW_PARTS: Final = 500
LOOK_S: Final = 1.0
Work = Callable[[AmqpClient], Awaitable[None]]


@final
class Crowd:
    """Sends until `messages` were accepted and it `is_ending`. Who is ahead of `hurry` messages
    goes on slowly, so that a storm which takes its time has senders to its end; receivers take
    about `share` of it all.
    """

    def __init__(self, bus: Bus, queue: str, books: Books, *, messages: int, share: float) -> None:
        self._address = Address(bus.server.host, bus.server.amqp_port)
        self._credential = parse_connection_string(bus.server.connection_string).credential
        self._queue = queue
        self._books = books
        self._messages = messages
        self._share = share
        self._few = max(min(messages // SLOW_PARTS, WINDOW), 1)
        self._ended = threading.Event()
        self._working: Future[None] | None = None
        self.hurry = 0
        self.is_ending = False

    def sent(self) -> float:
        """How much of what is to be sent was; raises what has ended the crowd, if so."""
        if self._working is not None and self._working.done():
            self._working.result()
        return self._books.accepted / self._messages

    @contextmanager
    def running(self) -> Iterator[None]:
        with ThreadPoolExecutor(1, "crowd") as pool:
            self._working = pool.submit(asyncio.run, self._work())
            try:
                yield
            finally:
                self._ended.set()
            self._working.result()

    async def _work(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(SENDERS):
                tasks.create_task(self._connected(self._send))
            for _ in range(RECEIVERS):
                tasks.create_task(self._connected(self._receive))

    async def _connected(self, work: Work) -> None:
        while not self._ended.is_set():
            try:
                async with connected(self._address, self._credential) as client:
                    await work(client)
                    return
            except (Ended, OSError, TimeoutError):
                await asyncio.sleep(PAUSE_S)

    async def _send(self, client: AmqpClient) -> None:
        sender = await client.sender(self._queue)
        while not self._ended.is_set() and not (self.is_ending and self.sent() >= 1):
            # Who only goes on must not send more than a slow driver takes.
            is_slow = self._books.accepted > self.hurry
            numbers = self._books.attempt(self._few if is_slow else WINDOW)
            assert numbers, "far more sends failed than a storm can explain"

            def then(at: int, state: DeliveryState | None, numbers: range = numbers) -> None:
                if isinstance(state, Accepted):
                    self._books.accept(numbers[at])

            payloads = [
                encode_data_message(body_of(number, self._books.size_bytes)) for number in numbers
            ]
            await sender.send_all(payloads, then)
            if is_slow:
                await asyncio.sleep(SLOW_S)

    async def _receive(self, client: AmqpClient) -> None:
        receiver = await client.receiver(self._queue)
        while not self._ended.is_set():
            is_hungry = self._books.completed < self._share * self._books.accepted
            if is_hungry and receiver.link.credit <= CREDIT // 2:
                receiver.grant(CREDIT)
            if receiver.link.credit or receiver.waiting:
                await self._complete_some(receiver)
            else:
                await asyncio.sleep(PAUSE_S)

    async def _complete_some(self, receiver: Receiver) -> None:
        try:
            async with asyncio.timeout(LOOK_S):
                deliveries = await receiver.take_some()
        except TimeoutError:
            return
        found = [self._books.number_in(seen(delivery.payload).body) for delivery in deliveries]
        for number in found:
            if number is not None:
                self._books.settle(number)
        states = await receiver.settle(deliveries, ACCEPTED)
        for number, state in zip(found, states, strict=True):
            if number is not None and isinstance(state, Accepted):
                self._books.complete(number)
