"""Scheduling with the Python SDKs: invisible to receivers until the moment, and then at once."""

from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageState
from azure.servicebus.exceptions import MessageNotFoundError
from azure.servicebus.management import ServiceBusAdministrationClient

from tests.conformance.conftest import Queue
from tests.conformance.sdk import (
    NOTHING_S,
    Received,
    Sdk,
    enqueued,
    expiry,
    pair,
    receive_all,
    send_texts,
    sequence_number,
    texts,
    waiting_for,
)

LATE = timedelta(seconds=1)
"""How much later than its moment a message may come (R32: to within a second)."""


def soon(seconds: float = 1.5) -> datetime:
    """A moment as the wire tells it, in whole milliseconds."""
    moment = datetime.now(UTC) + timedelta(seconds=seconds)
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


TOMORROW = soon(86_400)


def came_in_time(message: Received, moment: datetime) -> bool:
    return moment <= enqueued(message) <= moment + LATE


async def test_a_scheduled_message_comes_at_its_moment_with_a_new_number(
    sdk: Sdk, queue: Queue
) -> None:
    """R32: to a receiver that waits; until then it is seen by browsing only."""
    async with pair(sdk, queue.name) as (sender, receiver):
        moment = soon()
        before = soon(0)
        [number] = await sender.schedule(ServiceBusMessage("later", message_id="m"), moment)
        [peeked] = await receiver.peek()
        [message] = await receiver.receive()
        received_at = datetime.now(UTC)
        await receiver.complete(message)

        assert (peeked.state, peeked.sequence_number) == (ServiceBusMessageState.SCHEDULED, number)
        assert peeked.scheduled_enqueue_time_utc == message.scheduled_enqueue_time_utc == moment
        assert before <= enqueued(peeked) < moment
        assert (message.state, message.message_id) == (ServiceBusMessageState.SCHEDULED, "m")
        assert came_in_time(message, moment)
        assert moment <= received_at <= moment + LATE
        assert sequence_number(message) > number
        assert message.delivery_count == 0
        assert await receiver.peek() == []


async def test_many_messages_are_scheduled_at_once_and_numbered_in_order(
    sdk: Sdk, queue: Queue, administration: ServiceBusAdministrationClient
) -> None:
    """R32, R29: counted as scheduled, not as active."""
    bodies = [f"{number:02}" for number in range(40)]
    async with pair(sdk, queue.name) as (sender, receiver):
        numbers = await sender.schedule([ServiceBusMessage(body) for body in bodies], TOMORROW)
        found = administration.get_queue_runtime_properties(queue.name)
        shown = {sequence_number(message): message for message in await receiver.peek(100)}

        assert len(set(numbers)) == len(bodies)
        assert texts([shown[number] for number in numbers]) == bodies
        assert (found.scheduled_message_count, found.active_message_count) == (len(bodies), 0)
        assert await receiver.receive(wait_s=NOTHING_S) == []


async def test_a_cancelled_message_never_comes(sdk: Sdk, queue: Queue) -> None:
    """R32: one, and several over all fragments; what is gone cannot be cancelled."""
    async with pair(sdk, queue.name) as (sender, receiver):
        moment = soon(2.5)
        numbers = await sender.schedule([ServiceBusMessage(str(n)) for n in range(20)], moment)
        separate = [(await sender.schedule(ServiceBusMessage("x"), moment))[0] for _ in range(8)]
        [kept] = await sender.schedule(ServiceBusMessage("kept"), moment)
        await sender.cancel(numbers[0])
        await sender.cancel([*numbers[1:], *separate])
        with pytest.raises(MessageNotFoundError):
            await sender.cancel(numbers[0])
        [message] = await receiver.receive(5)
        with pytest.raises(MessageNotFoundError):
            await sender.cancel(kept)
        await receiver.complete(message)

        assert texts([message]) == ["kept"]
        assert await receiver.peek(10) == []


async def test_a_message_may_carry_the_time_itself_alone_and_in_a_batch(
    sdk: Sdk, queue: Queue
) -> None:
    """R32: `ScheduledEnqueueTimeUtc` on an ordinary send; one that has passed means now."""
    async with pair(sdk, queue.name) as (sender, receiver):
        moment = soon(2)
        batch = await sender.new_batch()
        batch.add_message(ServiceBusMessage("in a batch", scheduled_enqueue_time_utc=moment))
        batch.add_message(ServiceBusMessage("of now"))
        await sender.send(batch)
        await sender.send(ServiceBusMessage("alone", scheduled_enqueue_time_utc=moment))
        await sender.send(ServiceBusMessage("passed", scheduled_enqueue_time_utc=soon(-3600)))
        early = await receive_all(receiver, 2)
        late = await receive_all(receiver, 2)

        assert sorted(texts(early)) == ["of now", "passed"]
        assert all(enqueued(message) < moment for message in early)
        assert sorted(texts(late)) == ["alone", "in a batch"]
        assert all(came_in_time(message, moment) for message in late)
        assert {message.scheduled_enqueue_time_utc for message in late} == {moment}


async def test_the_life_of_a_scheduled_message_begins_at_its_moment(sdk: Sdk, queue: Queue) -> None:
    """R35: time to live is counted from there."""
    async with pair(sdk, queue.name) as (sender, receiver):
        life = timedelta(seconds=2)
        await sender.schedule(ServiceBusMessage("alive", time_to_live=life), soon(1.5))
        [message] = await receiver.receive()

        assert texts([message]) == ["alive"]
        assert expiry(message) - enqueued(message) == life


async def test_a_scheduled_message_wakes_who_waits_for_its_session(
    sdk: Sdk, session_queue: Queue
) -> None:
    """R26: the session is not available before."""
    async with (
        sdk.sender(session_queue.name) as sender,
        waiting_for(sdk.session(session_queue.name)) as accepting,
    ):
        moment = soon()
        await sender.schedule(ServiceBusMessage("later", session_id="timed"), moment)
        await send_texts(sender, "at once", session="ready")
        ready = await accepting
        async with sdk.session(session_queue.name) as session:
            [message] = await session.receive()

        assert ready.session_id == "ready"
        assert session.session_id == "timed"
        assert came_in_time(message, moment)
        assert message.state == ServiceBusMessageState.SCHEDULED


async def test_keys_place_scheduled_messages_too(sdk: Sdk, partitioned_queue: Queue) -> None:
    """R10, R12: before and after their moment."""
    async with pair(sdk, partitioned_queue.name) as (sender, receiver):
        messages = [ServiceBusMessage("x", partition_key=f"key {n % 4}") for n in range(12)]
        numbers = await sender.schedule(messages, soon(1))
        before: dict[str | None, set[int]] = {}
        for message, number in zip(messages, numbers, strict=True):
            before.setdefault(message.partition_key, set()).add(number >> 48)
        found = await receive_all(receiver, len(messages))

        assert all(len(places) == 1 for places in before.values())
        for message in found:
            assert {sequence_number(message) >> 48} == before[message.partition_key]
