"""Duplicate detection with the Python SDKs: the second copy is accepted and dropped."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.management import ServiceBusAdministrationClient

from shardbus.amqp.outcomes import Accepted
from shardbus.app.cli.sas import Credential
from shardbus.message.sections import encode_data_message
from tests.conformance.conftest import Queue, Queues, each_kind
from tests.conformance.sdk import (
    Sdk,
    fragments,
    pair,
    receive_all,
    texts,
)
from tests.conformance.variants import Each
from tests.support.amqp_client import Address, connected

WINDOW_S = 20
"""The smallest that a queue can have."""


@pytest.fixture
def unique_queue(queues: Queues) -> Each[Queue]:
    return each_kind(queues, requires_duplicate_detection=True)


async def test_a_second_message_with_the_same_id_is_accepted_and_dropped(
    sdk: Sdk, unique_queue: Queue
) -> None:
    """R13, R35: also after the first was completed, and in one batch."""
    async with pair(sdk, unique_queue.name) as (sender, receiver):
        await sender.send(ServiceBusMessage("first", message_id="one"))
        await sender.send(ServiceBusMessage("copy", message_id="one"))
        [message] = await receiver.receive()
        await receiver.complete(message)
        await sender.send(ServiceBusMessage("late copy", message_id="one"))
        await sender.send(
            [
                ServiceBusMessage(body, message_id=ident, partition_key="key")
                for body, ident in (("two", "2"), ("three", "3"), ("two again", "2"))
            ]
        )
        rest = await receive_all(receiver, 2)

        assert texts([message]) == ["first"]
        assert texts(rest) == ["two", "three"]
        assert len(await receiver.peek(10)) == 2


async def test_copies_meet_in_one_fragment_whatever_their_number(
    sdk: Sdk, unique_queue: Queue
) -> None:
    """R13: without another key the id is the key, so ids are spread and their copies are not."""
    idents = [f"id {number}" for number in range(30)]
    async with pair(sdk, unique_queue.name) as (sender, receiver):
        for _ in range(3):
            for ident in idents:
                await sender.send(ServiceBusMessage(ident, message_id=ident))
        found = await receiver.peek(100)

        assert sorted(texts(found)) == sorted(idents)
        assert (len(set(fragments(found))) > 1) == unique_queue.is_partitioned


async def test_a_copy_with_another_partition_key_is_a_copy_only_where_fragments_are_one(
    sdk: Sdk, unique_queue: Queue
) -> None:
    """R13: on a partitioned queue a duplicate has the same id and the same key."""
    async with pair(sdk, unique_queue.name) as (sender, receiver):
        for key in ("a", "b", "a", "c", "b"):
            await sender.send(ServiceBusMessage(key, message_id="same", partition_key=key))
        found = sorted(texts(await receiver.peek(10)))

        assert found == (["a", "b", "c"] if unique_queue.is_partitioned else ["a"])


async def test_a_scheduled_message_is_a_duplicate_from_the_moment_it_is_scheduled(
    sdk: Sdk, unique_queue: Queue
) -> None:
    """R35: and what it becomes is no duplicate of itself."""
    async with pair(sdk, unique_queue.name) as (sender, receiver):
        moment = datetime.now(UTC) + timedelta(seconds=1)
        await sender.schedule(ServiceBusMessage("scheduled", message_id="one"), moment)
        await sender.send(ServiceBusMessage("copy", message_id="one"))
        await sender.send(
            ServiceBusMessage("late copy", message_id="one", scheduled_enqueue_time_utc=moment)
        )
        [message] = await receiver.receive()
        await receiver.complete(message)

        assert texts([message]) == ["scheduled"]
        assert await receiver.peek() == []


async def test_in_a_session_queue_copies_are_dropped_too(
    sdk: Sdk, queues: Queues, is_partitioned: bool
) -> None:
    """R11, R13: the session is the key."""
    queue = queues.make(is_partitioned, requires_duplicate_detection=True, requires_session=True)
    async with sdk.sender(queue.name) as sender:
        for body in ("first", "copy"):
            await sender.send(ServiceBusMessage(body, message_id="one", session_id="s"))
    async with sdk.session(queue.name, "s") as session:
        assert texts(await session.peek(10)) == ["first"]


async def test_without_an_id_nothing_is_a_duplicate(
    address: Address, credential: Credential, unique_queue: Queue
) -> None:
    """R13: the Python SDK makes ids up, so this one sends without."""
    async with connected(address, credential) as client:
        sender = await client.sender(unique_queue.name)
        for _ in range(4):
            assert isinstance(await sender.send(encode_data_message(b"same")), Accepted)
        receiver = await client.receiver(unique_queue.name, credit=4)

        assert len(await receiver.take_many(4)) == 4


async def test_where_duplicates_are_not_detected_none_is_dropped(sdk: Sdk, queue: Queue) -> None:
    """R13."""
    async with pair(sdk, queue.name) as (sender, receiver):
        for body in ("first", "second"):
            await sender.send(ServiceBusMessage(body, message_id="same"))

        assert sorted(texts(await receiver.peek(10))) == ["first", "second"]


@pytest.mark.release
async def test_an_id_is_free_again_when_the_window_has_passed_since_it_was_accepted(
    administration: ServiceBusAdministrationClient,
    sdk: Sdk,
    queues: Queues,
    is_partitioned: bool,
) -> None:
    """R35: a copy inside the window does not prolong it."""
    window = timedelta(seconds=WINDOW_S)
    queue = queues.make(
        is_partitioned,
        requires_duplicate_detection=True,
        duplicate_detection_history_time_window=window,
    )
    shown = administration.get_queue(queue.name)
    async with sdk.sender(queue.name) as sender:
        await sender.send(ServiceBusMessage("first", message_id="one"))
        await asyncio.sleep(WINDOW_S / 2)
        await sender.send(ServiceBusMessage("copy", message_id="one"))
        await asyncio.sleep(WINDOW_S / 2 + 0.5)
        await sender.send(ServiceBusMessage("second", message_id="one"))
    async with sdk.receiver(queue.name) as receiver:
        assert texts(await receiver.peek(10)) == ["first", "second"]
    assert shown.duplicate_detection_history_time_window == window
