"""Applications at work: senders and receivers of the official SDK, and what they were told."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver, ServiceBusSender
from azure.servicebus.exceptions import ServiceBusError, ServiceBusServerBusyError

from shardbus.core.namespace.placement import even_hash_starts, fragment_at, hash_point
from tests.support.queues import describe_queue
from tests.support.server import Server

FRAGMENTS: Final = 16
PAUSE_S: Final = 0.01
KEYED_PAUSE_S: Final = 0.05
RECEIVE_COUNT: Final = 50
RECEIVE_WAIT_S: Final = 1.0
DRAIN_S_MAX: Final = 60


@dataclass
class Ledger:
    """What the applications were told. A body is a message's name; senders may repeat it."""

    accepted: set[str] = field(default_factory=set)
    failed: list[str] = field(default_factory=list)
    received: set[str] = field(default_factory=set)
    completions: Counter[int] = field(default_factory=Counter)
    bodies: dict[int, str] = field(default_factory=dict)
    received_at_s: list[float] = field(default_factory=list)
    busy_at_s: list[float] = field(default_factory=list)
    keyed_ok_at_s: list[float] = field(default_factory=list)

    def completed_twice(self) -> list[int]:
        return [number for number, count in self.completions.items() if count > 1]

    def stored_twice(self) -> int:
        """Messages that were sent once and are there twice, whoever sent them again."""
        return len(self.bodies) - len(set(self.bodies.values()))

    def longest_gap_s(self, start_s: float, end_s: float) -> float:
        """The longest time without any message between two moments."""
        moments = [start_s, *(t for t in self.received_at_s if start_s < t < end_s), end_s]
        return max(after - before for before, after in pairwise(moments))


def keys_of(fragments: set[int], count: int) -> list[str]:
    """Partition keys whose messages go to these fragments."""
    starts = even_hash_starts(FRAGMENTS)
    keys = (f"key-{number}" for number in range(100_000))
    return [key for key in keys if fragment_at(hash_point(key), starts) in fragments][:count]


class Load:
    """Senders without a key, senders with keys, and receivers, until told to stop."""

    def __init__(self, connection_string: str, queue: str) -> None:
        self.ledger = Ledger()
        self._connection_string = connection_string
        self._queue = queue
        self._stopping = asyncio.Event()
        self._draining = asyncio.Event()

    async def send_unkeyed(self, name: str) -> None:
        """No send may fail, whatever happens to a broker (R14); the SDK may try again itself."""
        async with self._client() as client, client.get_queue_sender(self._queue) as sender:
            number = 0
            while not self._stopping.is_set():
                await self._send_one(sender, f"{name}-{number}", None)
                number += 1
                await asyncio.sleep(PAUSE_S)

    async def send_keyed(self, name: str, keys: list[str]) -> None:
        """No send to a fragment that lives may fail."""
        async with self._client() as client, client.get_queue_sender(self._queue) as sender:
            number = 0
            while not self._stopping.is_set():
                await self._send_one(sender, f"{name}-{number}", keys[number % len(keys)])
                number += 1
                await asyncio.sleep(KEYED_PAUSE_S)

    async def send_to_the_victim(self, name: str, keys: list[str], wait_s: float = 0) -> None:
        """A send to a dead fragment gets the retryable error, never another fragment (R15).

        One that was under way when the fragment died is answered when it is back.
        """
        await asyncio.sleep(wait_s)
        async with (
            self._client(retry_total=0) as client,
            client.get_queue_sender(self._queue) as sender,
        ):
            number = 0
            while not self._stopping.is_set():
                body, key = f"{name}-{number}", keys[number % len(keys)]
                number += 1
                try:
                    await sender.send_messages(ServiceBusMessage(body, partition_key=key))
                    self.ledger.accepted.add(body)
                    self.ledger.keyed_ok_at_s.append(time.monotonic())
                except ServiceBusServerBusyError:
                    self.ledger.busy_at_s.append(time.monotonic())
                await asyncio.sleep(KEYED_PAUSE_S)

    async def receive(self) -> None:
        # Without retries, so that a settlement that cannot be made now (the SDK would wait four
        # seconds for each) does not keep this application from the next message.
        async with (
            self._client(retry_total=0) as client,
            client.get_queue_receiver(self._queue) as receiver,
        ):
            while not self._draining.is_set():
                messages = await receiver.receive_messages(RECEIVE_COUNT, RECEIVE_WAIT_S)
                for message in messages:
                    await self._complete(receiver, message)

    def stop_sending(self) -> None:
        self._stopping.set()

    def stop(self) -> None:
        self._stopping.set()
        self._draining.set()

    async def _send_one(self, sender: ServiceBusSender, body: str, key: str | None) -> None:
        try:
            await sender.send_messages(ServiceBusMessage(body, partition_key=key))
            self.ledger.accepted.add(body)
        except ServiceBusError as error:
            self.ledger.failed.append(f"{body}: {error!r}")

    async def _complete(
        self, receiver: ServiceBusReceiver, message: ServiceBusReceivedMessage
    ) -> None:
        body, number = b"".join(message.body).decode(), message.sequence_number
        assert number is not None
        self.ledger.received.add(body)
        self.ledger.bodies[number] = body
        self.ledger.received_at_s.append(time.monotonic())
        try:
            await receiver.complete_message(message)
        except ServiceBusError:
            # Unknown: it is completed, or it comes back.
            return
        self.ledger.completions[number] += 1

    def _client(self, retry_total: int = 5) -> ServiceBusClient:
        return ServiceBusClient.from_connection_string(
            self._connection_string, retry_total=retry_total
        )


@asynccontextmanager
async def at_work(
    load: Load, living: list[str], victims: list[str], late_s: float
) -> AsyncIterator[None]:
    """Applications that work while the block lasts; whoever fails, fails the block.

    One of them begins `late_s` after the others.
    """
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(load.send_unkeyed("u0"))
        tasks.create_task(load.send_unkeyed("u1"))
        tasks.create_task(load.send_keyed("living", living))
        tasks.create_task(load.send_to_the_victim("victim", victims))
        tasks.create_task(load.send_to_the_victim("late", victims, late_s))
        for _ in range(2):
            tasks.create_task(load.receive())
        try:
            yield
        finally:
            load.stop()


async def until_empty(server: Server, queue: str) -> None:
    """Wait until every message was received and completed."""
    left = 0
    for _ in range(DRAIN_S_MAX * 2):
        left = (await asyncio.to_thread(describe_queue, server, queue)).message_count
        if not left:
            return
        await asyncio.sleep(0.5)
    raise AssertionError(f"{left} messages are never delivered")
