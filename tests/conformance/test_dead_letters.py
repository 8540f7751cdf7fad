"""The dead-letter queue with the Python SDKs: how messages get there, and how they leave."""

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageState
from azure.servicebus.exceptions import ServiceBusError
from azure.servicebus.management import ServiceBusAdministrationClient

from tests.conformance.conftest import DELIVERY_COUNT_MAX, Queue
from tests.conformance.sdk import (
    DEAD_LETTERS,
    NOTHING_S,
    ReceiverOptions,
    Sdk,
    fragments,
    pair,
    receive_all,
    send_texts,
    texts,
)


async def test_dead_letters_come_from_every_fragment_and_keep_their_numbers(
    sdk: Sdk, queue: Queue, administration: ServiceBusAdministrationClient
) -> None:
    """R4, R29: and do not tell a source, which only forwarding gives them."""
    bodies = [f"{number:02}" for number in range(20)]
    async with pair(sdk, queue.name) as (sender, receiver):
        await send_texts(sender, *bodies)
        messages = await receive_all(receiver, len(bodies))
        for message in messages:
            await receiver.dead_letter(message, "Reason", "description")
    numbers = {message.sequence_number for message in messages}
    found = administration.get_queue_runtime_properties(queue.name)
    async with sdk.receiver(queue.name, DEAD_LETTERS) as receiver:
        peeked = await receiver.peek(len(bodies))
        dead = await receive_all(receiver, len(bodies))

    assert (found.active_message_count, found.dead_letter_message_count) == (0, len(bodies))
    assert sorted(texts(dead)) == sorted(texts(peeked)) == bodies
    assert {message.sequence_number for message in dead} == numbers
    assert len(set(fragments(dead))) == queue.fragment_count
    assert {message.state for message in peeked} == {ServiceBusMessageState.ACTIVE}
    assert {message.dead_letter_source for message in dead} == {None}


async def test_a_dead_letter_is_resubmitted_by_sending_it_again(sdk: Sdk, queue: Queue) -> None:
    """R4: with all that the sender had said."""
    async with pair(sdk, queue.name) as (sender, receiver):
        await sender.send(
            ServiceBusMessage(
                "retry me", message_id="m", application_properties={"tries": 1}, partition_key="key"
            )
        )
        [message] = await receiver.receive()
        await receiver.dead_letter(message, "Later", "the other side was down")
        async with sdk.receiver(queue.name, DEAD_LETTERS) as dead_letters:
            [dead] = await dead_letters.receive()
            await sender.send(
                ServiceBusMessage(
                    b"".join(dead.body),
                    message_id=dead.message_id,
                    application_properties={"tries": 2},
                    partition_key=dead.partition_key,
                )
            )
            await dead_letters.complete(dead)
            assert await dead_letters.peek() == []
        [again] = await receiver.receive()

        assert (texts([again]), again.message_id) == (["retry me"], "m")
        assert again.application_properties == {b"tries": 2}
        assert (again.delivery_count, again.dead_letter_reason) == (0, None)


async def test_dead_letters_of_a_session_queue_are_read_without_a_session(
    sdk: Sdk, session_queue: Queue
) -> None:
    """R26: and keep their session's id."""
    async with sdk.sender(session_queue.name) as sender:
        for name in ("a", "b"):
            await send_texts(sender, f"by the receiver {name}", f"too often {name}", session=name)
    for name in ("a", "b"):
        async with sdk.session(session_queue.name, name) as session:
            [message] = await session.receive()
            await session.dead_letter(message, "Bad", "very")
            for _ in range(DELIVERY_COUNT_MAX):
                [message] = await session.receive()
                await session.abandon(message)
            assert await session.receive(wait_s=NOTHING_S) == []
    async with sdk.receiver(session_queue.name, DEAD_LETTERS) as receiver:
        dead = await receive_all(receiver, 4)
        for message in dead:
            await receiver.complete(message)

        assert {(m.session_id, texts([m])[0], m.dead_letter_reason) for m in dead} == {
            (name, f"{how} {name}", reason)
            for name in ("a", "b")
            for how, reason in (
                ("by the receiver", "Bad"),
                ("too often", "MaxDeliveryCountExceeded"),
            )
        }
        assert await receiver.peek() == []


async def test_the_delivery_count_does_not_grow_among_dead_letters(sdk: Sdk, queue: Queue) -> None:
    async with pair(sdk, queue.name) as (sender, receiver):
        await send_texts(sender, "dead")
        [message] = await receiver.receive()
        await receiver.abandon(message)
        [message] = await receiver.receive()
        await receiver.dead_letter(message)
    async with sdk.receiver(queue.name, DEAD_LETTERS) as receiver:
        for _ in range(DELIVERY_COUNT_MAX + 1):
            [message] = await receiver.receive()
            assert message.delivery_count == 1
            await receiver.abandon(message)


async def test_a_dead_letter_cannot_be_dead_lettered_again(sdk: Sdk, queue: Queue) -> None:
    """It stays where it is, and comes back when its lock is over."""
    async with pair(sdk, queue.name) as (sender, receiver):
        await send_texts(sender, "dead")
        [message] = await receiver.receive()
        await receiver.dead_letter(message, "First", "reason")
    async with sdk.receiver(queue.name, DEAD_LETTERS) as receiver:
        [message] = await receiver.receive()
        with pytest.raises(ServiceBusError):
            await receiver.dead_letter(message, "Second", "reason")
        [peeked] = await receiver.peek()
        [again] = await receiver.receive()
        await receiver.complete(again)

        assert peeked.dead_letter_reason == again.dead_letter_reason == "First"
        assert again.delivery_count == 0
        assert await receiver.peek() == []


async def test_dead_letters_can_be_received_and_deleted_and_prefetched(
    sdk: Sdk, queue: Queue
) -> None:
    """R4."""
    async with pair(sdk, queue.name) as (sender, receiver):
        await send_texts(sender, "one", "two", "three")
        for message in await receive_all(receiver, 3):
            await receiver.dead_letter(message)
    options = ReceiverOptions(is_dead_letter=True, is_deleting=True, prefetch=10)
    async with sdk.receiver(queue.name, options) as receiver:
        dead = await receive_all(receiver, 3)

        assert sorted(texts(dead)) == ["one", "three", "two"]
        assert await receiver.peek() == []
