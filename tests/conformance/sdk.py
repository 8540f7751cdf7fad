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
from typing import Final, Protocol, TypeVar

from azure.servicebus import (
    NEXT_AVAILABLE_SESSION,
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusMessageBatch,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
    ServiceBusReceiver,
    ServiceBusSender,
    ServiceBusSession,
    ServiceBusSessionFilter,
    ServiceBusSubQueue,
)
from azure.servicebus.aio import ServiceBusClient as AioClient
from azure.servicebus.aio import ServiceBusReceiver as AioReceiver
from azure.servicebus.aio import ServiceBusSender as AioSender
from azure.servicebus.aio import ServiceBusSession as AioSession
from azure.servicebus.amqp import AmqpAnnotatedMessage

Sendable = ServiceBusMessage | AmqpAnnotatedMessage | list[ServiceBusMessage]
Received = ServiceBusReceivedMessage
Which = str | ServiceBusSessionFilter
"""A session's id, or whichever is next available."""

T = TypeVar("T")

WAIT_S: Final = 20.0
"""How long to wait for what must come: generous, because it is only spent when a test fails."""
NOTHING_S: Final = 0.5
"""How long to wait for what must not come."""


class Sender(Protocol):
    """Sends to one queue."""

    async def send(self, message: Sendable | ServiceBusMessageBatch) -> None: ...

    async def new_batch(self) -> ServiceBusMessageBatch: ...

    async def schedule(
        self, messages: ServiceBusMessage | list[ServiceBusMessage], at: datetime
    ) -> list[int]: ...

    async def cancel(self, numbers: int | list[int]) -> None: ...


class Receiver(Protocol):
    """Receives from one queue; `receive` gives what is there, at most `count`.

    `peek` starts at the beginning unless told otherwise: the SDKs' own default is to go on after
    the last message that was received, where a message that should be gone would not show.
    """

    async def receive(self, count: int = 1, wait_s: float = WAIT_S) -> list[Received]: ...

    async def complete(self, message: Received) -> None: ...

    async def abandon(self, message: Received) -> None: ...

    async def defer(self, message: Received) -> None: ...

    async def receive_deferred(self, numbers: int | list[int]) -> list[Received]: ...

    async def dead_letter(
        self, message: Received, reason: str | None = None, description: str | None = None
    ) -> None: ...

    async def renew(self, message: Received) -> datetime: ...

    async def peek(self, count: int = 1, from_number: int = 1) -> list[Received]: ...


class SessionReceiver(Receiver, Protocol):
    """Receives from one session, which it holds; `session_id` and `held_until` are the bus's."""

    @property
    def session_id(self) -> str: ...

    @property
    def held_until(self) -> datetime: ...

    async def renew_session(self) -> datetime: ...

    async def state(self) -> bytes | None: ...

    async def set_state(self, state: bytes | str | None) -> None: ...


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
    """A client of one namespace. Opening a sender or receiver connects it.

    `session` accepts the named session, or waits for one that has messages.
    """

    def sender(self, queue: str) -> AbstractAsyncContextManager[Sender]: ...

    def receiver(
        self, queue: str, options: ReceiverOptions = LOCKING
    ) -> AbstractAsyncContextManager[Receiver]: ...

    def session(
        self,
        queue: str,
        which: Which = NEXT_AVAILABLE_SESSION,
        options: ReceiverOptions = LOCKING,
        wait_s: float = WAIT_S,
    ) -> AbstractAsyncContextManager[SessionReceiver]: ...

    async def sessions(self, queue: str, updated_after: datetime | None = None) -> list[str]: ...


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

    @asynccontextmanager
    async def session(
        self,
        queue: str,
        which: Which = NEXT_AVAILABLE_SESSION,
        options: ReceiverOptions = LOCKING,
        wait_s: float = WAIT_S,
    ) -> AsyncIterator[SessionReceiver]:
        with self._client() as client:
            receiver = client.get_queue_receiver(
                queue,
                session_id=which,
                max_wait_time=wait_s,
                receive_mode=options.mode,
                prefetch_count=options.prefetch,
            )
            await asyncio.to_thread(receiver.__enter__)
            try:
                yield SyncSessionReceiver(receiver)
            finally:
                await asyncio.to_thread(receiver.close)

    async def sessions(self, queue: str, updated_after: datetime | None = None) -> list[str]:
        with self._client() as client:
            pages = client.list_queue_sessions(queue, state_updated_after=updated_after)
            return await asyncio.to_thread(list, pages)

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

    async def schedule(
        self, messages: ServiceBusMessage | list[ServiceBusMessage], at: datetime
    ) -> list[int]:
        return await asyncio.to_thread(self._sender.schedule_messages, messages, at)

    async def cancel(self, numbers: int | list[int]) -> None:
        await asyncio.to_thread(self._sender.cancel_scheduled_messages, numbers)


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

    async def defer(self, message: Received) -> None:
        await asyncio.to_thread(self._receiver.defer_message, message)

    async def receive_deferred(self, numbers: int | list[int]) -> list[Received]:
        return await asyncio.to_thread(self._receiver.receive_deferred_messages, numbers)

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


class SyncSessionReceiver(SyncReceiver):
    """A `SessionReceiver` of the synchronous SDK."""

    def __init__(self, receiver: ServiceBusReceiver) -> None:
        super().__init__(receiver)
        self._session: ServiceBusSession = receiver.session

    @property
    def session_id(self) -> str:
        return self._session.session_id

    @property
    def held_until(self) -> datetime:
        return _known(self._session.locked_until_utc)

    async def renew_session(self) -> datetime:
        return await asyncio.to_thread(self._session.renew_lock)

    async def state(self) -> bytes | None:
        return await asyncio.to_thread(self._session.get_state)

    async def set_state(self, state: bytes | str | None) -> None:
        await asyncio.to_thread(self._session.set_state, state)


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

    @asynccontextmanager
    async def session(
        self,
        queue: str,
        which: Which = NEXT_AVAILABLE_SESSION,
        options: ReceiverOptions = LOCKING,
        wait_s: float = WAIT_S,
    ) -> AsyncIterator[SessionReceiver]:
        async with self._client() as client:
            receiver = client.get_queue_receiver(
                queue,
                session_id=which,
                max_wait_time=wait_s,
                receive_mode=options.mode,
                prefetch_count=options.prefetch,
            )
            async with receiver:
                yield AsyncSessionReceiver(receiver)

    async def sessions(self, queue: str, updated_after: datetime | None = None) -> list[str]:
        async with self._client() as client:
            pages = client.list_queue_sessions(queue, state_updated_after=updated_after)
            return [session_id async for session_id in pages]

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

    async def schedule(
        self, messages: ServiceBusMessage | list[ServiceBusMessage], at: datetime
    ) -> list[int]:
        return await self._sender.schedule_messages(messages, at)

    async def cancel(self, numbers: int | list[int]) -> None:
        await self._sender.cancel_scheduled_messages(numbers)


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

    async def defer(self, message: Received) -> None:
        await self._receiver.defer_message(message)

    async def receive_deferred(self, numbers: int | list[int]) -> list[Received]:
        return await self._receiver.receive_deferred_messages(numbers)

    async def dead_letter(
        self, message: Received, reason: str | None = None, description: str | None = None
    ) -> None:
        await self._receiver.dead_letter_message(message, reason, description)

    async def renew(self, message: Received) -> datetime:
        return await self._receiver.renew_message_lock(message)

    async def peek(self, count: int = 1, from_number: int = 1) -> list[Received]:
        return await self._receiver.peek_messages(count, sequence_number=from_number)


class AsyncSessionReceiver(AsyncReceiver):
    """A `SessionReceiver` of the asynchronous SDK."""

    def __init__(self, receiver: AioReceiver) -> None:
        super().__init__(receiver)
        self._session: AioSession = receiver.session

    @property
    def session_id(self) -> str:
        return self._session.session_id

    @property
    def held_until(self) -> datetime:
        return _known(self._session.locked_until_utc)

    async def renew_session(self) -> datetime:
        return await self._session.renew_lock()

    async def state(self) -> bytes | None:
        return await self._session.get_state()

    async def set_state(self, state: bytes | str | None) -> None:
        await self._session.set_state(state)


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


@asynccontextmanager
async def waiting_for(opening: AbstractAsyncContextManager[T]) -> AsyncIterator[asyncio.Task[T]]:
    """Opens while the test goes on; what was opened is closed at the end."""
    task = asyncio.create_task(opening.__aenter__())
    try:
        yield task
    finally:
        await task
        await opening.__aexit__(None, None, None)


async def send_texts(sender: Sender, *bodies: str, session: str | None = None) -> None:
    """One message for each text, each in a send of its own."""
    for body in bodies:
        await sender.send(ServiceBusMessage(body, session_id=session))


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


def enqueued(message: Received) -> datetime:
    return _known(message.enqueued_time_utc)


def expiry(message: Received) -> datetime:
    return _known(message.expires_at_utc)


def _known(moment: datetime | None) -> datetime:
    assert moment is not None
    return moment
