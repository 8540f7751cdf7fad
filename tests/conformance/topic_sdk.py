"""The words that the two Python SDKs have for topics and subscriptions, and topics to try them on.

They give the same senders and receivers as those for queues (`tests.conformance.sdk`).
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, Protocol, TypedDict, Unpack

from azure.core.exceptions import ResourceNotFoundError
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusClient
from azure.servicebus.aio import ServiceBusClient as AioClient
from azure.servicebus.management import (
    CorrelationRuleFilter,
    FalseRuleFilter,
    ServiceBusAdministrationClient,
    SqlRuleAction,
    SqlRuleFilter,
    TrueRuleFilter,
)

from tests.conformance.sdk import (
    LOCKING,
    WAIT_S,
    AsyncReceiver,
    AsyncSender,
    AsyncSessionReceiver,
    Received,
    Receiver,
    ReceiverOptions,
    Sender,
    SessionReceiver,
    SyncReceiver,
    SyncSender,
    SyncSessionReceiver,
    Which,
)
from tests.conformance.variants import Each, Variant
from tests.support.server import Server

LOCK_SHORT_S: Final = 5
DELIVERY_COUNT_MAX: Final = 3
DEFAULT_RULE: Final = "$Default"

Filter = CorrelationRuleFilter | FalseRuleFilter | SqlRuleFilter | TrueRuleFilter

_numbers = itertools.count(1)


class TopicOptions(TypedDict, total=False):
    """What a test may ask of a topic, in the SDK's words."""

    default_message_time_to_live: timedelta
    requires_duplicate_detection: bool
    duplicate_detection_history_time_window: timedelta


class SubscriptionOptions(TypedDict, total=False):
    """What a test may ask of a subscription, in the SDK's words."""

    lock_duration: str
    max_delivery_count: int
    requires_session: bool
    default_message_time_to_live: timedelta
    dead_lettering_on_message_expiration: bool
    dead_lettering_on_filter_evaluation_exceptions: bool


@dataclass(frozen=True)
class Topic:
    """A topic made for one test; its subscriptions have locks of 5 s and 3 deliveries."""

    name: str
    is_partitioned: bool
    administration: ServiceBusAdministrationClient

    def subscribe(
        self,
        name: str,
        filter: Filter | None = None,
        action: str | None = None,
        **options: Unpack[SubscriptionOptions],
    ) -> str:
        """Make a subscription with one rule, `rule` if a filter is given; its name."""
        asked = SubscriptionOptions(
            lock_duration=f"PT{LOCK_SHORT_S}S", max_delivery_count=DELIVERY_COUNT_MAX
        )
        asked.update(options)
        self.administration.create_subscription(self.name, name, **asked)
        if filter is not None:
            self.add_rule(name, "rule", filter, action)
            self.remove_rule(name, DEFAULT_RULE)
        return name

    def add_rule(
        self, subscription: str, name: str, filter: Filter, action: str | None = None
    ) -> None:
        made = None if action is None else SqlRuleAction(action)
        self.administration.create_rule(self.name, subscription, name, filter=filter, action=made)

    def remove_rule(self, subscription: str, name: str) -> None:
        self.administration.delete_rule(self.name, subscription, name)


@dataclass
class Topics:
    """Makes topics for one test; `delete` removes those that are left."""

    administration: ServiceBusAdministrationClient
    _made: list[str] = field(default_factory=list)

    def make(self, is_partitioned: bool, **options: Unpack[TopicOptions]) -> Topic:
        name = f"topic-{next(_numbers)}"
        self.administration.create_topic(name, enable_partitioning=is_partitioned, **options)
        self._made.append(name)
        return Topic(name, is_partitioned, self.administration)

    def each_kind(self, **options: Unpack[TopicOptions]) -> Each[Topic]:
        return Each(lambda variant: self.make(variant.is_partitioned, **options), by_kind=True)

    def delete(self) -> None:
        for name in self._made:
            with suppress(ResourceNotFoundError):
                self.administration.delete_topic(name)


class TopicSdk(Protocol):
    """A client of one namespace. Opening a publisher or subscriber connects it."""

    def publisher(self, topic: str) -> AbstractAsyncContextManager[Sender]: ...

    def subscriber(
        self, topic: str, subscription: str, options: ReceiverOptions = LOCKING
    ) -> AbstractAsyncContextManager[Receiver]: ...

    def session(
        self, topic: str, subscription: str, which: Which = NEXT_AVAILABLE_SESSION
    ) -> AbstractAsyncContextManager[SessionReceiver]: ...

    async def sessions(self, topic: str, subscription: str) -> list[str]: ...


class SyncTopicSdk:
    """`azure.servicebus`."""

    def __init__(self, connection_string: str) -> None:
        self._connection_string = connection_string

    @asynccontextmanager
    async def publisher(self, topic: str) -> AsyncIterator[Sender]:
        with self._client() as client:
            sender = await asyncio.to_thread(client.get_topic_sender(topic).__enter__)
            try:
                yield SyncSender(sender)
            finally:
                await asyncio.to_thread(sender.close)

    @asynccontextmanager
    async def subscriber(
        self, topic: str, subscription: str, options: ReceiverOptions = LOCKING
    ) -> AsyncIterator[Receiver]:
        with self._client() as client:
            receiver = client.get_subscription_receiver(
                topic, subscription, sub_queue=options.sub_queue, receive_mode=options.mode
            )
            await asyncio.to_thread(receiver.__enter__)
            try:
                yield SyncReceiver(receiver)
            finally:
                await asyncio.to_thread(receiver.close)

    @asynccontextmanager
    async def session(
        self, topic: str, subscription: str, which: Which = NEXT_AVAILABLE_SESSION
    ) -> AsyncIterator[SessionReceiver]:
        with self._client() as client:
            receiver = client.get_subscription_receiver(
                topic, subscription, session_id=which, max_wait_time=WAIT_S
            )
            await asyncio.to_thread(receiver.__enter__)
            try:
                yield SyncSessionReceiver(receiver)
            finally:
                await asyncio.to_thread(receiver.close)

    async def sessions(self, topic: str, subscription: str) -> list[str]:
        with self._client() as client:
            pages = client.list_subscription_sessions(topic, subscription)
            return await asyncio.to_thread(list, pages)

    def _client(self) -> ServiceBusClient:
        return ServiceBusClient.from_connection_string(self._connection_string, retry_total=0)


class AioTopicSdk:
    """`azure.servicebus.aio`."""

    def __init__(self, connection_string: str) -> None:
        self._connection_string = connection_string

    @asynccontextmanager
    async def publisher(self, topic: str) -> AsyncIterator[Sender]:
        async with self._client() as client, client.get_topic_sender(topic) as sender:
            yield AsyncSender(sender)

    @asynccontextmanager
    async def subscriber(
        self, topic: str, subscription: str, options: ReceiverOptions = LOCKING
    ) -> AsyncIterator[Receiver]:
        async with self._client() as client:
            receiver = client.get_subscription_receiver(
                topic, subscription, sub_queue=options.sub_queue, receive_mode=options.mode
            )
            async with receiver:
                yield AsyncReceiver(receiver)

    @asynccontextmanager
    async def session(
        self, topic: str, subscription: str, which: Which = NEXT_AVAILABLE_SESSION
    ) -> AsyncIterator[SessionReceiver]:
        async with self._client() as client:
            receiver = client.get_subscription_receiver(
                topic, subscription, session_id=which, max_wait_time=WAIT_S
            )
            async with receiver:
                yield AsyncSessionReceiver(receiver)

    async def sessions(self, topic: str, subscription: str) -> list[str]:
        async with self._client() as client:
            pages = client.list_subscription_sessions(topic, subscription)
            return [session_id async for session_id in pages]

    def _client(self) -> AioClient:
        return AioClient.from_connection_string(self._connection_string, retry_total=0)


def each_sdk(server: Server) -> Each[TopicSdk]:
    """A client of each SDK, for a fixture to give."""

    def make(variant: Variant) -> TopicSdk:
        kind = SyncTopicSdk if variant.sdk == "sync" else AioTopicSdk
        return kind(server.connection_string)

    return Each(make, by_sdk=True)


def properties_of(message: Received) -> dict[str, object]:
    """The application properties with texts, of which the SDKs give the bytes."""
    found = message.application_properties or {}
    return {str(_plain(key)): _plain(value) for key, value in found.items()}


def _plain(value: object) -> object:
    return value.decode() if isinstance(value, bytes) else value
