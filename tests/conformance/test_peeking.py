"""Browsing with the Python SDKs."""

from datetime import UTC, datetime, timedelta

from azure.servicebus import ServiceBusMessage, ServiceBusMessageState

from tests.conformance.conftest import Queue
from tests.conformance.sdk import (
    Received,
    Receiver,
    Sdk,
    fragments,
    pair,
    receive_all,
    send_texts,
    sequence_number,
    texts,
)


async def walk(receiver: Receiver, count: int) -> list[list[Received]]:
    """Every page of the queue, from its start, as a client walks it."""
    pages: list[list[Received]] = []
    from_number = 1
    while page := await receiver.peek(count, from_number):
        pages.append(page)
        from_number = sequence_number(page[-1]) + 1
        assert len(pages) < 1000, "the walk does not end"
    return pages


async def test_walking_in_pages_shows_every_message_once_and_each_fragment_in_order(
    sdk: Sdk, queue: Queue
) -> None:
    """R20."""
    bodies = [f"{number:03}" for number in range(130)]
    async with pair(sdk, queue.name) as (sender, receiver):
        for start in range(0, len(bodies), 10):
            await sender.send([ServiceBusMessage(body) for body in bodies[start : start + 10]])
        pages = await walk(receiver, 40)
    messages = [message for page in pages for message in page]
    assert sorted(texts(messages)) == bodies
    for fragment in set(fragments(messages)):
        numbers = [n for n in map(sequence_number, messages) if n >> 48 == fragment]
        assert numbers == sorted(set(numbers))


async def test_a_peek_from_the_start_shows_the_oldest_message(sdk: Sdk, queue: Queue) -> None:
    """R20: over all fragments, by enqueue time."""
    async with pair(sdk, queue.name) as (sender, receiver):
        for number in range(20):
            await sender.send(ServiceBusMessage(f"{number:02}"))
        [oldest] = await receiver.peek()

    assert texts([oldest]) == ["00"]


async def test_a_page_ends_at_256_kilobytes_and_the_rest_follows(sdk: Sdk, queue: Queue) -> None:
    """R21."""
    bodies = [f"{number:02}" + "x" * 60_000 for number in range(12)]
    async with pair(sdk, queue.name) as (sender, receiver):
        for body in bodies:
            await sender.send(ServiceBusMessage(body))
        pages = await walk(receiver, 100)
    assert all(1 <= len(page) <= 4 for page in pages)
    assert sorted(texts([message for page in pages for message in page])) == bodies


async def test_peeking_locks_nothing_and_shows_locked_messages(sdk: Sdk, queue: Queue) -> None:
    async with pair(sdk, queue.name) as (sender, receiver):
        await sender.send(ServiceBusMessage("seen"))
        [before] = await receiver.peek()
        [message] = await receiver.receive()
        [during] = await receiver.peek()
        await receiver.complete(message)

        assert texts([before, message, during]) == ["seen"] * 3
        assert before.state == ServiceBusMessageState.ACTIVE
        assert before.locked_until_utc is None
        assert message.delivery_count == 0


async def test_peeking_an_empty_queue_gives_nothing(sdk: Sdk, queue: Queue) -> None:
    async with sdk.receiver(queue.name) as receiver:
        assert await receiver.peek(10) == []


async def test_peeking_shows_every_state_and_changes_none(sdk: Sdk, queue: Queue) -> None:
    """R20: active, locked, deferred and scheduled messages, in the order of their numbers."""
    states = {
        "locked": ServiceBusMessageState.ACTIVE,
        "deferred": ServiceBusMessageState.DEFERRED,
        "active": ServiceBusMessageState.ACTIVE,
        "scheduled": ServiceBusMessageState.SCHEDULED,
        "locked again": ServiceBusMessageState.ACTIVE,
    }
    async with pair(sdk, queue.name) as (sender, receiver):
        await send_texts(sender, "locked again")
        [once] = await receiver.receive()
        await receiver.abandon(once)
        [again] = await receiver.receive()
        await send_texts(sender, "locked", "deferred")
        held = {texts([message])[0]: message for message in await receive_all(receiver, 2)}
        await receiver.defer(held["deferred"])
        await send_texts(sender, "active")
        tomorrow = datetime.now(UTC) + timedelta(days=1)
        await sender.send(ServiceBusMessage("scheduled", scheduled_enqueue_time_utc=tomorrow))
        shown = await receiver.peek(10)
        unchanged = await receiver.peek(10)

        assert {texts([message])[0]: message.state for message in shown} == states
        assert texts(unchanged) == texts(shown)
        counts = {texts([message])[0]: message.delivery_count for message in shown}
        assert counts == {name: int(name in ("deferred", "locked again")) for name in states}
        locked_once = {texts([one])[0] for one in shown if one.locked_until_utc is not None}
        assert locked_once == {"deferred"}
        await receiver.complete(held["locked"])
        await receiver.complete(again)


async def test_peeking_goes_on_from_any_number_over_the_fragments(sdk: Sdk, queue: Queue) -> None:
    """R20: what has a number from there on, whichever fragment gave it."""
    async with pair(sdk, queue.name) as (sender, receiver):
        await send_texts(sender, *(str(number) for number in range(48)))
        everything = sorted(sequence_number(message) for message in await receiver.peek(100))
        start = everything[20]
        found: list[int] = []
        while page := await receiver.peek(7, found[-1] + 1 if found else start):
            found += map(sequence_number, page)

        assert len(everything) == 48
        assert found == everything[20:]
