"""The two Python SDKs behind one set of words, so that one test is run with both.

Every word is one call of the unmodified SDK. The synchronous SDK runs in threads, so that a test
can wait with one client and act with another.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

from azure.servicebus import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusMessageBatch,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
    ServiceBusReceiver,
    ServiceBusSender,
    ServiceBusSubQueue,
)
from azure.servicebus.aio import ServiceBusClient as AioClient
from azure.servicebus.aio import ServiceBusReceiver as AioReceiver
from azure.servicebus.aio import ServiceBusSender as AioSender
from azure.servicebus.amqp import AmqpAnnotatedMessage

Sendable = ServiceBusMessage | AmqpAnnotatedMessage | list[ServiceBusMessage]
Received = ServiceBusReceivedMessage

WAIT_S: Final = 20.0
"""How long to wait for what must come: generous, because it is only spent when a test fails."""
NOTHING_S: Final = 0.5
"""How long to wait for what must not come."""


class Sender(Protocol):
    """Sends to one queue."""

    async def send(self, message: Sendable | ServiceBusMessageBatch) -> None: ...

    async def new_batch(self) -> ServiceBusMessageBatch: ...


class Receiver(Protocol):
    """Receives from one queue; `receive` gives what is there, at most `count`.

    `peek` starts at the beginning unless told otherwise: the SDKs' own default is to go on after
    the last message that was received, where a message that should be gone would not show.
    """

    async def receive(self, count: int = 1, wait_s: float = WAIT_S) -> list[Received]: ...

    async def complete(self, message: Received) -> None: ...

    async def abandon(self, message: Received) -> None: ...

    async def dead_letter(
        self, message: Received, reason: str | None = None, description: str | None = None
    ) -> None: ...

    async def renew(self, message: Received) -> datetime: ...

    async def peek(self, count: int = 1, from_number: int = 1) -> list[Received]: ...


@dataclass(frozen=True)
class ReceiverOptions:
    """How to receive: whether from the dead-letter queue, deleting, and how far ahead."""

    is_dead_letter: bool = False
    is_deleting: bool = False
    prefetch: int = 0

    @property
    def mode(self) -> ServiceBusReceiveMode:
        if self.is_deleting:
            return ServiceBusReceiveMode.RECEIVE_AND_DELETE
        return ServiceBusReceiveMode.PEEK_LOCK

    @property
    def sub_queue(self) -> ServiceBusSubQueue | None:
        return ServiceBusSubQueue.DEAD_LETTER if self.is_dead_letter else None


LOCKING: Final = ReceiverOptions()
DELETING: Final = ReceiverOptions(is_deleting=True)
DEAD_LETTERS: Final = ReceiverOptions(is_dead_letter=True)


class Sdk(Protocol):
    """A client of one namespace. Opening a sender or receiver connects it."""

    def sender(self, queue: str) -> AbstractAsyncContextManager[Sender]: ...

    def receiver(
        self, queue: str, options: ReceiverOptions = LOCKING
    ) -> AbstractAsyncContextManager[Receiver]: ...


class SyncSdk:
    """`azure.servicebus`."""

    def __init__(self, connection_string: str) -> None:
        self._connection_string = connection_string

    @asynccontextmanager
    async def sender(self, queue: str) -> AsyncIterator[Sender]:
        with self._client() as client:
            sender = await asyncio.to_thread(client.get_queue_sender(queue).__enter__)
            try:
                yield SyncSender(sender)
            finally:
                await asyncio.to_thread(sender.close)

    @asynccontextmanager
    async def receiver(
        self, queue: str, options: ReceiverOptions = LOCKING
    ) -> AsyncIterator[Receiver]:
        with self._client() as client:
            receiver = client.get_queue_receiver(
                queue,
                sub_queue=options.sub_queue,
                receive_mode=options.mode,
                prefetch_count=options.prefetch,
            )
            await asyncio.to_thread(receiver.__enter__)
            try:
                yield SyncReceiver(receiver)
            finally:
                await asyncio.to_thread(receiver.close)

    def _client(self) -> ServiceBusClient:
        return ServiceBusClient.from_connection_string(self._connection_string, retry_total=0)


class SyncSender:
    """A `Sender` of the synchronous SDK."""

    def __init__(self, sender: ServiceBusSender) -> None:
        self._sender = sender

    async def send(self, message: Sendable | ServiceBusMessageBatch) -> None:
        await asyncio.to_thread(self._sender.send_messages, message)

    async def new_batch(self) -> ServiceBusMessageBatch:
        return await asyncio.to_thread(self._sender.create_message_batch)


class SyncReceiver:
    """A `Receiver` of the synchronous SDK."""

    def __init__(self, receiver: ServiceBusReceiver) -> None:
        self._receiver = receiver

    async def receive(self, count: int = 1, wait_s: float = WAIT_S) -> list[Received]:
        return await asyncio.to_thread(self._receiver.receive_messages, count, wait_s)

    async def complete(self, message: Received) -> None:
        await asyncio.to_thread(self._receiver.complete_message, message)

    async def abandon(self, message: Received) -> None:
        await asyncio.to_thread(self._receiver.abandon_message, message)

    async def dead_letter(
        self, message: Received, reason: str | None = None, description: str | None = None
    ) -> None:
        await asyncio.to_thread(self._receiver.dead_letter_message, message, reason, description)

    async def renew(self, message: Received) -> datetime:
        return await asyncio.to_thread(self._receiver.renew_message_lock, message)

    async def peek(self, count: int = 1, from_number: int = 1) -> list[Received]:
        return await asyncio.to_thread(
            self._receiver.peek_messages, count, sequence_number=from_number
        )


class AioSdk:
    """`azure.servicebus.aio`."""

    def __init__(self, connection_string: str) -> None:
        self._connection_string = connection_string

    @asynccontextmanager
    async def sender(self, queue: str) -> AsyncIterator[Sender]:
        async with self._client() as client, client.get_queue_sender(queue) as sender:
            yield AsyncSender(sender)

    @asynccontextmanager
    async def receiver(
        self, queue: str, options: ReceiverOptions = LOCKING
    ) -> AsyncIterator[Receiver]:
        async with self._client() as client:
            receiver = client.get_queue_receiver(
                queue,
                sub_queue=options.sub_queue,
                receive_mode=options.mode,
                prefetch_count=options.prefetch,
            )
            async with receiver:
                yield AsyncReceiver(receiver)

    def _client(self) -> AioClient:
        return AioClient.from_connection_string(self._connection_string, retry_total=0)


class AsyncSender:
    """A `Sender` of the asynchronous SDK."""

    def __init__(self, sender: AioSender) -> None:
        self._sender = sender

    async def send(self, message: Sendable | ServiceBusMessageBatch) -> None:
        await self._sender.send_messages(message)

    async def new_batch(self) -> ServiceBusMessageBatch:
        return await self._sender.create_message_batch()


class AsyncReceiver:
    """A `Receiver` of the asynchronous SDK."""

    def __init__(self, receiver: AioReceiver) -> None:
        self._receiver = receiver

    async def receive(self, count: int = 1, wait_s: float = WAIT_S) -> list[Received]:
        return await self._receiver.receive_messages(count, wait_s)

    async def complete(self, message: Received) -> None:
        await self._receiver.complete_message(message)

    async def abandon(self, message: Received) -> None:
        await self._receiver.abandon_message(message)

    async def dead_letter(
        self, message: Received, reason: str | None = None, description: str | None = None
    ) -> None:
        await self._receiver.dead_letter_message(message, reason, description)

    async def renew(self, message: Received) -> datetime:
        return await self._receiver.renew_message_lock(message)

    async def peek(self, count: int = 1, from_number: int = 1) -> list[Received]:
        return await self._receiver.peek_messages(count, sequence_number=from_number)


@asynccontextmanager
async def pair(
    sdk: Sdk, queue: str, options: ReceiverOptions = LOCKING
) -> AsyncIterator[tuple[Sender, Receiver]]:
    """Both ends of a queue. Opening and closing cost the SDKs half a second each, so at once."""
    sending, receiving = sdk.sender(queue), sdk.receiver(queue, options)
    sender, receiver = await asyncio.gather(sending.__aenter__(), receiving.__aenter__())
    try:
        yield sender, receiver
    finally:
        await asyncio.gather(
            sending.__aexit__(None, None, None), receiving.__aexit__(None, None, None)
        )


async def receive_all(receiver: Receiver, count: int) -> list[Received]:
    """Exactly so many messages, in as many receives as it takes; fewer when no more come."""
    messages: list[Received] = []
    while len(messages) < count:
        found = await receiver.receive(count - len(messages))
        if not found:
            break
        messages.extend(found)
    return messages


def texts(messages: Sequence[Received]) -> list[str]:
    """The bodies of data messages, as text."""
    return [b"".join(message.body).decode() for message in messages]


def fragments(messages: Sequence[Received]) -> list[int]:
    """The fragment of each message, as its sequence number tells."""
    return [sequence_number(message) >> 48 for message in messages]


def sequence_number(message: Received) -> int:
    assert message.sequence_number is not None
    return message.sequence_number
