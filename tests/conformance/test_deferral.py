"""Deferring with the Python SDKs: set aside, and given only to who asks for the number."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageState
from azure.servicebus.exceptions import (
    MessageLockLostError,
    MessageNotFoundError,
    ServiceBusError,
)
from azure.servicebus.management import ServiceBusAdministrationClient

from tests.conformance.conftest import DELIVERY_COUNT_MAX, Queue
from tests.conformance.sdk import (
    DEAD_LETTERS,
    DELETING,
    NOTHING_S,
    Receiver,
    Sdk,
    fragments,
    pair,
    receive_all,
    send_texts,
    sequence_number,
    texts,
)

UNKNOWN_NUMBER = 4_000_000


async def defer(receiver: Receiver, count: int = 1) -> list[int]:
    """Receive so many messages and defer them; their numbers in the order they came."""
    messages = await receive_all(receiver, count)
    for message in messages:
        await receiver.defer(message)
    return [sequence_number(message) for message in messages]


async def test_a_deferred_message_comes_only_to_who_asks_for_its_number(
    sdk: Sdk, queue: Queue
) -> None:
    """R32, R4."""
    async with pair(sdk, queue.name) as (sender, receiver):
        await sender.send(
            ServiceBusMessage("later", message_id="m-1", application_properties={"k": 1})
        )
        [number] = await defer(receiver)
        assert await receiver.receive(wait_s=NOTHING_S) == []
        [peeked] = await receiver.peek()
        [message] = await receiver.receive_deferred(number)
        assert message.lock_token is not None
        await receiver.complete(message)

        assert peeked.state == message.state == ServiceBusMessageState.DEFERRED
        assert (message.message_id, message.application_properties) == ("m-1", {b"k": 1})
        assert (message.sequence_number, message.delivery_count) == (number, 1)
        assert texts([message]) == ["later"]
        assert await receiver.peek() == []


async def test_several_deferred_messages_come_in_the_order_asked_over_all_fragments(
    sdk: Sdk, queue: Queue, administration: ServiceBusAdministrationClient
) -> None:
    """R32, R4: going beyond the original, whose numbers must be of one fragment."""
    async with pair(sdk, queue.name) as (sender, receiver):
        await send_texts(sender, *(str(number) for number in range(20)))
        numbers = await defer(receiver, 20)
        during = administration.get_queue_runtime_properties(queue.name)
        asked = numbers[::-2]
        messages = await receiver.receive_deferred(asked)
        for message in messages:
            await receiver.complete(message)

        assert [sequence_number(message) for message in messages] == asked
        assert len({number >> 48 for number in numbers}) == queue.fragment_count
        assert len(set(fragments(messages))) == min(10, queue.fragment_count)
        assert during.total_message_count == 20
        assert {m.state for m in await receiver.peek(20)} == {ServiceBusMessageState.DEFERRED}
        assert administration.get_queue_runtime_properties(queue.name).total_message_count == 10


async def test_an_unknown_number_is_not_found_and_the_others_stay_unlocked(
    sdk: Sdk, queue: Queue
) -> None:
    """R32: all or none; an active, a locked and a completed message are not deferred ones."""
    async with pair(sdk, queue.name) as (sender, receiver):
        await send_texts(sender, "deferred")
        [number] = await defer(receiver)
        await send_texts(sender, "active")
        [_, active] = await receiver.peek(2)
        for missing in (UNKNOWN_NUMBER, sequence_number(active)):
            with pytest.raises(MessageNotFoundError):
                await receiver.receive_deferred([number, missing])
        [message] = await receiver.receive_deferred([number])
        with pytest.raises(MessageNotFoundError):
            await receiver.receive_deferred([number])
        await receiver.complete(message)
        with pytest.raises(MessageNotFoundError):
            await receiver.receive_deferred([number])


async def test_an_abandoned_deferred_message_stays_deferred_until_it_failed_too_often(
    sdk: Sdk, queue: Queue
) -> None:
    """R4, R35: the delivery after which it was deferred counts, too."""
    async with pair(sdk, queue.name) as (sender, receiver):
        await send_texts(sender, "hard")
        [number] = await defer(receiver)
        for attempt in range(1, DELIVERY_COUNT_MAX):
            [message] = await receiver.receive_deferred(number)
            assert message.delivery_count == attempt
            await (receiver.abandon(message) if attempt % 2 else receiver.defer(message))
        with pytest.raises(MessageNotFoundError):
            await receiver.receive_deferred(number)
        assert await receiver.receive(wait_s=NOTHING_S) == []

    async with sdk.receiver(queue.name, DEAD_LETTERS) as receiver:
        [dead] = await receiver.receive()
        assert (texts([dead]), dead.state) == (["hard"], ServiceBusMessageState.ACTIVE)
        assert dead.dead_letter_reason == "MaxDeliveryCountExceeded"
        assert dead.delivery_count == DELIVERY_COUNT_MAX


async def test_a_deferred_message_can_be_dead_lettered_and_deferred_again(
    sdk: Sdk, queue: Queue
) -> None:
    """R32: and the dead-letter queue defers too."""
    async with pair(sdk, queue.name) as (sender, receiver):
        await send_texts(sender, "moved")
        [number] = await defer(receiver)
        [message] = await receiver.receive_deferred(number)
        await receiver.defer(message)
        [message] = await receiver.receive_deferred(number)
        await receiver.dead_letter(message, "Moved", "by its number")
        assert await receiver.peek() == []

    async with sdk.receiver(queue.name, DEAD_LETTERS) as receiver:
        [number] = await defer(receiver)
        assert await receiver.receive(wait_s=NOTHING_S) == []
        [dead] = await receiver.receive_deferred(number)
        await receiver.complete(dead)

        assert dead.dead_letter_reason == "Moved"
        assert dead.dead_letter_error_description == "by its number"
        assert (dead.state, dead.delivery_count) == (ServiceBusMessageState.DEFERRED, 2)
        assert await receiver.peek() == []


async def test_a_deferred_message_can_be_received_and_deleted(sdk: Sdk, queue: Queue) -> None:
    """R32."""
    async with pair(sdk, queue.name) as (sender, receiver):
        await send_texts(sender, "gone")
        [number] = await defer(receiver)
        async with sdk.receiver(queue.name, DELETING) as deleting:
            [message] = await deleting.receive_deferred(number)

        assert texts([message]) == ["gone"]
        assert await receiver.peek() == []


async def test_more_than_250_numbers_are_refused_and_nothing_is_deleted(
    sdk: Sdk, queue: Queue
) -> None:
    async with pair(sdk, queue.name) as (sender, receiver):
        await send_texts(sender, "a", "b")
        numbers = await defer(receiver, 2)
        async with sdk.receiver(queue.name, DELETING) as deleting:
            with pytest.raises(ServiceBusError):
                await deleting.receive_deferred([*numbers, *range(10_000, 10_249)])
            assert len(await receiver.peek(5)) == 2
            assert len(await deleting.receive_deferred(numbers)) == 2


async def test_a_deferred_message_of_a_session_belongs_to_that_session(
    sdk: Sdk, session_queue: Queue
) -> None:
    """R26: and the rest of the session goes on without it."""
    async with sdk.sender(session_queue.name) as sender:
        await send_texts(sender, "later", "now", session="mine")
    async with (
        sdk.session(session_queue.name, "mine") as mine,
        sdk.session(session_queue.name, "other") as other,
    ):
        [number] = await defer(mine)
        [message] = await mine.receive()
        assert texts([message]) == ["now"]
        await mine.complete(message)
        with pytest.raises(MessageNotFoundError):
            await other.receive_deferred(number)
        [deferred] = await mine.receive_deferred(number)
        await mine.complete(deferred)

        assert texts([deferred]) == ["later"]
        assert await mine.peek() == []


async def test_the_lock_on_a_deferred_message_ends_unless_it_is_renewed(
    sdk: Sdk, queue: Queue
) -> None:
    """R4: then it is deferred still, and has failed once more."""
    async with pair(sdk, queue.name) as (sender, receiver):
        await send_texts(sender, "renewed", "forgotten")
        numbers = await defer(receiver, 2)
        held = {texts([m])[0]: m for m in await receiver.receive_deferred(numbers)}
        first_end = held["renewed"].locked_until_utc
        assert first_end is not None
        await asyncio.sleep(1)
        renewed_end = await receiver.renew(held["renewed"])
        assert renewed_end - first_end >= timedelta(seconds=0.9)
        await asyncio.sleep((first_end - datetime.now(UTC)).total_seconds() + 0.3)
        [again] = await receiver.receive_deferred(sequence_number(held["forgotten"]))

        assert (again.delivery_count, again.state) == (2, ServiceBusMessageState.DEFERRED)
        with pytest.raises(MessageLockLostError):
            await receiver.complete(held["forgotten"])
        await receiver.complete(again)
        await receiver.complete(held["renewed"])
        assert await receiver.peek() == []
