"""Receiving and settling with the Python SDKs."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import MessageLockLostError

from tests.conformance.conftest import DELIVERY_COUNT_MAX, LOCK_SHORT_S, Queue
from tests.conformance.sdk import (
    DEAD_LETTERS,
    DELETING,
    NOTHING_S,
    Received,
    ReceiverOptions,
    Sdk,
    Sender,
    pair,
    receive_all,
    texts,
)


async def send(sender: Sender, *bodies: str) -> None:
    for body in bodies:
        await sender.send(ServiceBusMessage(body))


async def test_an_abandoned_message_comes_back_with_a_higher_count(sdk: Sdk, queue: Queue) -> None:
    async with pair(sdk, queue.name) as (sender, receiver):
        await send(sender, "again")
        [first] = await receiver.receive()
        await receiver.abandon(first)
        [second] = await receiver.receive()

        assert (first.delivery_count, second.delivery_count) == (0, 1)
        assert second.sequence_number == first.sequence_number
        assert second.lock_token != first.lock_token


async def test_a_message_abandoned_too_often_is_dead_lettered(sdk: Sdk, queue: Queue) -> None:
    async with pair(sdk, queue.name) as (sender, receiver):
        await send(sender, "poison")
        [message] = await receiver.receive()
        for _ in range(DELIVERY_COUNT_MAX - 1):
            await receiver.abandon(message)
            [message] = await receiver.receive()
        await receiver.abandon(message)
        assert await receiver.receive(wait_s=NOTHING_S) == []

    async with sdk.receiver(queue.name, DEAD_LETTERS) as receiver:
        [dead] = await receiver.receive()
        await receiver.complete(dead)
        assert texts([dead]) == ["poison"]
        assert dead.dead_letter_reason == "MaxDeliveryCountExceeded"
        assert dead.dead_letter_error_description == (
            f"Message could not be consumed after {DELIVERY_COUNT_MAX} delivery attempts."
        )
        assert dead.sequence_number == message.sequence_number
        assert await receiver.peek() == []


async def test_a_dead_letter_keeps_its_message_and_gains_a_reason(sdk: Sdk, queue: Queue) -> None:
    sent = ServiceBusMessage(
        "unreadable", message_id="m-1", subject="label", application_properties={"tries": 3}
    )
    async with pair(sdk, queue.name) as (sender, receiver):
        await sender.send(sent)
        [message] = await receiver.receive()
        await receiver.dead_letter(message, "NotJson", "expected an object")
        assert await receiver.peek() == []

    async with sdk.receiver(queue.name, DEAD_LETTERS) as receiver:
        [peeked] = await receiver.peek()
        [dead] = await receiver.receive()
        await receiver.complete(dead)
    for found in (peeked, dead):
        assert (found.message_id, found.subject) == ("m-1", "label")
        assert found.dead_letter_reason == "NotJson"
        assert found.dead_letter_error_description == "expected an object"
        assert found.application_properties == {
            b"tries": 3,
            b"DeadLetterReason": b"NotJson",
            b"DeadLetterErrorDescription": b"expected an object",
        }


async def test_a_message_can_be_dead_lettered_without_a_reason(sdk: Sdk, queue: Queue) -> None:
    async with pair(sdk, queue.name) as (sender, receiver):
        await send(sender, "no comment")
        [message] = await receiver.receive()
        await receiver.dead_letter(message)

    async with sdk.receiver(queue.name, DEAD_LETTERS) as receiver:
        [dead] = await receiver.receive()
        assert texts([dead]) == ["no comment"]
        assert dead.dead_letter_reason is None


async def test_an_abandoned_dead_letter_stays_however_often(sdk: Sdk, queue: Queue) -> None:
    async with pair(sdk, queue.name) as (sender, receiver):
        await send(sender, "stays")
        [message] = await receiver.receive()
        await receiver.dead_letter(message, "here", "to stay")

    async with sdk.receiver(queue.name, DEAD_LETTERS) as receiver:
        for _ in range(DELIVERY_COUNT_MAX + 2):
            [dead] = await receiver.receive()
            await receiver.abandon(dead)
        [dead] = await receiver.receive()

        assert texts([dead]) == ["stays"]


async def test_a_lock_ends_when_it_says_unless_it_is_renewed(sdk: Sdk, queue: Queue) -> None:
    """The one that ends returns its message with a higher count, and can settle nothing."""
    async with pair(sdk, queue.name) as (sender, receiver):
        await send(sender, "renewed", "forgotten")
        held = {texts([message])[0]: message for message in await receive_all(receiver, 2)}
        first_end = held["renewed"].locked_until_utc
        assert first_end is not None
        await asyncio.sleep(1)
        renewed_end = await receiver.renew(held["renewed"])
        [returned] = await receiver.receive(2, wait_s=LOCK_SHORT_S + 15)

        assert renewed_end - first_end >= timedelta(seconds=1)
        assert held["renewed"].locked_until_utc == renewed_end
        assert datetime.now(UTC) >= first_end
        await receiver.complete(held["renewed"])
        assert texts([returned]) == ["forgotten"]
        assert (held["forgotten"].delivery_count, returned.delivery_count) == (0, 1)
        with pytest.raises(MessageLockLostError):
            await receiver.complete(held["forgotten"])
        await receiver.complete(returned)
        assert await receiver.peek() == []


async def test_receive_and_delete_takes_the_message_at_once(sdk: Sdk, queue: Queue) -> None:
    async with pair(sdk, queue.name, DELETING) as (sender, receiver):
        await send(sender, "one", "two", "three")
        messages = await receive_all(receiver, 3)

        assert sorted(texts(messages)) == ["one", "three", "two"]
        assert await receiver.peek() == []


async def test_prefetched_messages_that_were_not_used_go_back_uncounted(
    sdk: Sdk, queue: Queue
) -> None:
    """R18: a closed link holds no locks."""
    bodies = [f"{number:02}" for number in range(20)]
    async with sdk.sender(queue.name) as sender:
        await send(sender, *bodies)
    async with sdk.receiver(queue.name, ReceiverOptions(prefetch=50)) as receiver:
        [used] = await receiver.receive()
        await receiver.complete(used)

    async with sdk.receiver(queue.name) as receiver:
        rest = await receive_all(receiver, len(bodies) - 1)
        assert sorted(texts([used, *rest])) == bodies
        assert {message.delivery_count for message in rest} == {0}


async def test_two_receivers_never_hold_the_same_message(sdk: Sdk, queue: Queue) -> None:
    bodies = [f"{number:02}" for number in range(40)]
    async with pair(sdk, queue.name) as (sender, one), sdk.receiver(queue.name) as other:
        await send(sender, *bodies)
        ours = await one.receive(20)
        theirs = await receive_all(other, len(bodies) - len(ours))

        assert ours and theirs
        assert sorted(texts([*ours, *theirs])) == bodies


async def test_a_waiting_receiver_gets_the_next_message_from_whichever_fragment(
    sdk: Sdk, queue: Queue
) -> None:
    """R17, R19: every fragment in turn, each with a receiver that was there first."""
    async with pair(sdk, queue.name) as (sender, receiver):
        for number in range(queue.fragment_count):
            waiting = asyncio.ensure_future(receiver.receive())
            await asyncio.sleep(0.05)
            await sender.send(ServiceBusMessage(str(number)))
            [message] = await waiting
            await receiver.complete(message)

            assert texts([message]) == [str(number)]


async def test_an_expired_message_is_dropped(sdk: Sdk, queue: Queue) -> None:
    """R35: time to live."""
    async with pair(sdk, queue.name) as (sender, receiver):
        await sender.send(ServiceBusMessage("brief", time_to_live=timedelta(milliseconds=300)))
        await sender.send(ServiceBusMessage("lasting", time_to_live=timedelta(minutes=5)))
        await asyncio.sleep(0.5)
        [message] = await receiver.receive(2, wait_s=2)

        assert texts([message]) == ["lasting"]
        assert _expiry(message) - _enqueued(message) == timedelta(minutes=5)


def _expiry(message: Received) -> datetime:
    assert message.expires_at_utc is not None
    return message.expires_at_utc


def _enqueued(message: Received) -> datetime:
    assert message.enqueued_time_utc is not None
    return message.enqueued_time_utc
