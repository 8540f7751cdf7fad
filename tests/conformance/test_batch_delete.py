"""Deleting the oldest messages at once, at the management node: no SDK here has a word for it."""

from __future__ import annotations

import asyncio
import time

from shardbus.amqp.outcomes import Modified
from shardbus.amqp.termini import Source
from shardbus.app.cli.sas import Credential
from shardbus.codec.types import Int
from shardbus.message.sections import encode_data_message
from tests.conformance.conftest import Queue
from tests.conformance.management import management_of
from tests.support.amqp_client import Address, AmqpClient, connected
from tests.support.messages import seen

DELETE_MAX = 4_000
SESSION_FILTER = "com.microsoft:session-filter"


async def send(client: AmqpClient, queue: str, bodies: list[bytes]) -> None:
    sender = await client.sender(queue)
    for body in bodies:
        await sender.send(encode_data_message(body))


async def test_the_oldest_messages_are_deleted_first_over_all_fragments(
    address: Address, credential: Credential, queue: Queue
) -> None:
    """R32: going beyond the original, which cannot do it on partitioned queues."""
    bodies = [b"%02d" % number for number in range(48)]
    async with connected(address, credential) as client:
        await send(client, queue.name, bodies[:32])
        await asyncio.sleep(0.01)
        await send(client, queue.name, bodies[32:])
        management = await management_of(client, queue.name)
        some = await management.delete(32)
        left = sorted(seen(payload).body for payload in await management.peek(100))
        rest = await management.delete(DELETE_MAX)
        none = await management.delete(DELETE_MAX)

        assert (some.status, some.body["message-count"]) == (200, Int(32))
        assert left == bodies[32:]
        assert (rest.status, rest.body["message-count"]) == (200, Int(16))
        assert none.status == 204


async def test_what_was_enqueued_later_than_the_given_time_stays(
    address: Address, credential: Credential, queue: Queue
) -> None:
    """R32."""
    async with connected(address, credential) as client:
        await send(client, queue.name, [b"old"] * 20)
        await asyncio.sleep(0.01)
        until_ms = int(time.time() * 1000)
        await asyncio.sleep(0.01)
        await send(client, queue.name, [b"new"] * 20)
        management = await management_of(client, queue.name)
        answer = await management.delete(DELETE_MAX, until_ms)
        left = [seen(payload).body for payload in await management.peek(100)]

        assert answer.body["message-count"] == Int(20)
        assert left == [b"new"] * 20


async def test_locked_and_deferred_messages_are_not_deleted(
    address: Address, credential: Credential, queue: Queue
) -> None:
    """R32."""
    async with connected(address, credential) as client:
        await send(client, queue.name, [b"%d" % number for number in range(20)])
        receiver = await client.receiver(queue.name, credit=2)
        locked, deferred = await receiver.take_many(2)
        await receiver.settle([deferred], Modified(True, undeliverable_here=True))
        management = await management_of(client, queue.name)
        answer = await management.delete(DELETE_MAX)
        left = [seen(payload).body for payload in await management.peek(100)]

        assert answer.body["message-count"] == Int(18)
        assert sorted(left) == sorted(seen(one.payload).body for one in (locked, deferred))


async def test_dead_letters_are_deleted_at_their_own_node(
    address: Address, credential: Credential, queue: Queue
) -> None:
    """R32, R4."""
    dead_letters = f"{queue.name}/$DeadLetterQueue"
    async with connected(address, credential) as client:
        await send(client, queue.name, [b"%d" % number for number in range(20)])
        receiver = await client.receiver(queue.name, credit=10)
        management = await management_of(client, queue.name)
        await management.settle("suspended", await receiver.take_many(10))
        dead = await management_of(client, dead_letters)
        answer = await dead.delete(DELETE_MAX)

        assert answer.body["message-count"] == Int(10)
        assert await dead.peek(10) == []
        assert len(await management.peek(100)) == 10


async def test_a_count_beyond_the_limit_or_below_one_is_refused(
    address: Address, credential: Credential, queue: Queue
) -> None:
    """R35: SDKs ask for 4000 at once when they empty an entity."""
    async with connected(address, credential) as client:
        await send(client, queue.name, [b"x"])
        management = await management_of(client, queue.name)
        for count in (DELETE_MAX + 1, 0, -1):
            answer = await management.delete(count)
            assert answer.status == 400
            assert answer.condition in (
                "com.microsoft:argument-error",
                "com.microsoft:argument-out-of-range",
            )
        assert len(await management.peek(10)) == 1


async def test_in_a_session_queue_the_holder_deletes_from_its_session(
    address: Address, credential: Credential, session_queue: Queue
) -> None:
    """R26, R32."""
    async with connected(address, credential) as client:
        sender = await client.sender(session_queue.name)
        for number in range(6):
            name = ("mine", "other")[number % 2]
            await sender.send(encode_data_message(b"%d" % number, session_id=name))
        source = Source()
        source.address = session_queue.name
        source.filters = {SESSION_FILTER: "mine"}
        holder = await client.receiver(source)
        management = await management_of(client, session_queue.name)
        deleted = await management.delete(2, session="mine", link=holder.link.name)
        refused = await management.delete(2, session="other", link=holder.link.name)
        left = sorted(seen(payload).body for payload in await management.peek(100))

        assert (deleted.status, deleted.body["message-count"]) == (200, Int(2))
        assert (refused.status, refused.condition) == (410, "com.microsoft:session-lock-lost")
        assert left == [b"1", b"3", b"4", b"5"]
