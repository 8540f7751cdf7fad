"""Time to live with the Python SDKs: when it ends, and what becomes of the message then."""

import asyncio
import time
from collections.abc import Callable
from datetime import timedelta

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import MessageNotFoundError
from azure.servicebus.management import QueueRuntimeProperties, ServiceBusAdministrationClient

from shardbus.app.cli.sas import Credential
from shardbus.codec.types import Timestamp, Uint, Value, integer_of
from shardbus.codec.value import encode
from shardbus.message.sections import (
    BATCH_FORMAT,
    decode_message,
    encode_batch,
    encode_data_message,
)
from tests.conformance.conftest import Queue, Queues
from tests.conformance.management import management_of
from tests.conformance.sdk import (
    DEAD_LETTERS,
    NOTHING_S,
    Sdk,
    enqueued,
    expiry,
    pair,
    send_texts,
    sequence_number,
    texts,
)
from tests.support.amqp_client import Address, connected
from tests.support.messages import annotations_of

BRIEF = timedelta(seconds=1)
PASSED_S = 1.4
WAIT_S = 15.0


async def until(
    administration: ServiceBusAdministrationClient,
    queue: str,
    holds: Callable[[QueueRuntimeProperties], bool],
) -> QueueRuntimeProperties:
    """The numbers of a queue as soon as they say so; they are asked for without touching it."""
    for _ in range(int(WAIT_S / 0.1)):
        found = await asyncio.to_thread(administration.get_queue_runtime_properties, queue)
        if holds(found):
            return found
        await asyncio.sleep(0.1)
    raise AssertionError(f"not within {WAIT_S} s")


async def test_the_shorter_of_queue_and_message_decides(
    sdk: Sdk, queues: Queues, is_partitioned: bool
) -> None:
    """R35: a message cannot outlive what its queue allows."""
    queue = queues.make(is_partitioned, default_message_time_to_live=timedelta(minutes=10))
    async with pair(sdk, queue.name) as (sender, receiver):
        for life in (None, timedelta(minutes=1), timedelta(hours=1)):
            await sender.send(ServiceBusMessage("x", time_to_live=life, partition_key="one"))
        lives = [expiry(message) - enqueued(message) for message in await receiver.peek(3)]

        assert lives == [timedelta(minutes=minutes) for minutes in (10, 1, 10)]


async def test_messages_expire_by_the_life_that_their_queue_gives_them(
    sdk: Sdk, queues: Queues, is_partitioned: bool
) -> None:
    """R35: and are dropped, where nothing else is said."""
    queue = queues.make(is_partitioned, default_message_time_to_live=BRIEF)
    async with pair(sdk, queue.name) as (sender, receiver):
        await send_texts(sender, "one", "two")
        await asyncio.sleep(PASSED_S)
        assert await receiver.receive(wait_s=NOTHING_S) == []
        assert await receiver.peek() == []
    async with sdk.receiver(queue.name, DEAD_LETTERS) as receiver:
        assert await receiver.peek() == []


async def test_expired_messages_are_dead_lettered_where_the_queue_says_so(
    sdk: Sdk, queues: Queues, is_partitioned: bool
) -> None:
    """R35: with the reason; and a dead letter does not expire again."""
    queue = queues.make(is_partitioned, dead_lettering_on_message_expiration=True)
    async with sdk.sender(queue.name) as sender:
        await sender.send(
            ServiceBusMessage("late", message_id="m", time_to_live=BRIEF, subject="label")
        )
    async with sdk.receiver(queue.name, DEAD_LETTERS) as receiver:
        [dead] = await receiver.receive()
        await receiver.abandon(dead)
        await asyncio.sleep(PASSED_S)
        [again] = await receiver.receive()

        assert (texts([dead]), dead.message_id, dead.subject) == (["late"], "m", "label")
        assert dead.dead_letter_reason == "TTLExpiredException"
        assert dead.dead_letter_error_description == "The message expired and was dead lettered."
        assert again.sequence_number == dead.sequence_number


async def test_a_message_behind_a_long_queue_expires_without_anybody_looking(
    administration: ServiceBusAdministrationClient,
    address: Address,
    credential: Credential,
    queues: Queues,
    sdk: Sdk,
    is_partitioned: bool,
) -> None:
    """R35: whether it is dead-lettered or dropped; what is in front of it stays."""
    made = [
        queues.make(is_partitioned, dead_lettering_on_message_expiration=is_kept)
        for is_kept in (True, False)
    ]
    batch = encode_batch([encode_data_message(b"in front", partition_key="key")] * 500)
    async with connected(address, credential) as client:
        for queue in made:
            raw = await client.sender(queue.name)
            for _ in range(6):
                await raw.send(batch, BATCH_FORMAT)
            async with sdk.sender(queue.name) as sender:
                await sender.send(
                    ServiceBusMessage("behind", time_to_live=BRIEF, partition_key="key")
                )
    kept, dropped = [
        await until(administration, queue.name, lambda found: found.active_message_count == 3000)
        for queue in made
    ]

    assert (kept.dead_letter_message_count, kept.total_message_count) == (1, 3001)
    assert (dropped.dead_letter_message_count, dropped.total_message_count) == (0, 3000)


async def test_a_deferred_message_that_expires_is_gone_and_not_dead_lettered(
    administration: ServiceBusAdministrationClient,
    sdk: Sdk,
    queues: Queues,
    is_partitioned: bool,
) -> None:
    """R35."""
    queue = queues.make(is_partitioned, dead_lettering_on_message_expiration=True)
    async with pair(sdk, queue.name) as (sender, receiver):
        await sender.send(ServiceBusMessage("deferred", time_to_live=BRIEF))
        [message] = await receiver.receive()
        await receiver.defer(message)
        assert len(await receiver.peek()) == 1
        found = await until(
            administration, queue.name, lambda found: found.total_message_count == 0
        )
        with pytest.raises(MessageNotFoundError):
            await receiver.receive_deferred(sequence_number(message))

        assert found.dead_letter_message_count == 0


async def test_a_locked_message_may_be_completed_after_its_expiry_and_expires_when_it_is_not(
    sdk: Sdk, queues: Queues, is_partitioned: bool
) -> None:
    """R35."""
    queue = queues.make(is_partitioned)
    async with pair(sdk, queue.name) as (sender, receiver):
        for body in ("completed", "abandoned"):
            await sender.send(ServiceBusMessage(body, time_to_live=BRIEF, partition_key="key"))
        completed, abandoned = await receiver.receive(2)
        await asyncio.sleep(PASSED_S)
        await receiver.complete(completed)
        await receiver.abandon(abandoned)

        assert await receiver.receive(wait_s=NOTHING_S) == []
        assert await receiver.peek() == []


async def test_a_life_longer_than_the_header_can_say_is_kept(
    address: Address, credential: Credential, queue: Queue
) -> None:
    """Beyond 49 days by the two times in the properties; Python cannot send it."""
    life_ms = 100 * 24 * 3600 * 1000
    now_ms = int(time.time() * 1000)
    header: list[Value] = [None, None, Uint(0xFFFF_FFFF)]
    properties: list[Value] = [*[None] * 8, Timestamp(now_ms + life_ms), Timestamp(now_ms)]
    sent = b"\x00\x53\x70" + encode(header) + b"\x00\x53\x73" + encode(properties)
    async with connected(address, credential) as client:
        sender = await client.sender(queue.name)
        await sender.send(sent + encode_data_message(b"x"))
        management = await management_of(client, queue.name)
        [payload] = await management.peek(1)
        head = decode_message(payload).head
        enqueued_ms = integer_of(annotations_of(payload, head)["x-opt-enqueued-time"])

        assert enqueued_ms is not None
        assert head.absolute_expiry_ms == enqueued_ms + life_ms
