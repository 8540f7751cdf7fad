"""Sending with the Python SDKs: one, a list, a batch, with a key."""

from azure.servicebus import ServiceBusMessage

from tests.conformance.conftest import Queue
from tests.conformance.sdk import Sdk, fragments, pair, receive_all, sequence_number, texts


async def test_one_message_arrives_and_a_completed_one_is_gone(sdk: Sdk, queue: Queue) -> None:
    """R4, R32."""
    async with pair(sdk, queue.name) as (sender, receiver):
        await sender.send(ServiceBusMessage("hello"))
        [message] = await receiver.receive()
        await receiver.complete(message)

        assert texts([message]) == ["hello"]
        assert message.delivery_count == 0
        assert await receiver.peek() == []


async def test_a_list_arrives_whole_and_keeps_its_order_in_its_fragment(
    sdk: Sdk, queue: Queue
) -> None:
    bodies = [f"message {number}" for number in range(50)]

    async with pair(sdk, queue.name) as (sender, receiver):
        await sender.send([ServiceBusMessage(body) for body in bodies])
        messages = await receive_all(receiver, len(bodies))
        for message in messages:
            await receiver.complete(message)
    in_order = sorted(messages, key=sequence_number)
    assert sorted(texts(messages)) == sorted(bodies)
    assert len(set(fragments(messages))) == 1, "a batch is stored as a whole, so in one fragment"
    assert texts(in_order) == bodies


async def test_a_batch_object_fills_up_to_the_size_of_the_link(sdk: Sdk, queue: Queue) -> None:
    body = "x" * 20_000

    async with pair(sdk, queue.name) as (sender, receiver):
        batch = await sender.new_batch()
        count = 0
        try:
            while count < 100:
                batch.add_message(ServiceBusMessage(body))
                count += 1
        except ValueError:
            pass
        await sender.send(batch)

        assert count == 262_144 // 20_100
        assert texts(await receive_all(receiver, count)) == [body] * count


async def test_messages_with_one_key_share_a_fragment_and_their_order(
    sdk: Sdk, queue: Queue
) -> None:
    """R10, R12."""
    async with pair(sdk, queue.name) as (sender, receiver):
        for number in range(20):
            key = f"key {number % 4}"
            await sender.send(ServiceBusMessage(f"{key}/{number:02}", partition_key=key))
        messages = await receive_all(receiver, 20)
    for key in ("key 0", "key 1", "key 2", "key 3"):
        of_key = [message for message in messages if message.partition_key == key]
        assert len(of_key) == 5
        assert len(set(fragments(of_key))) == 1
        assert texts(of_key) == sorted(texts(of_key))


async def test_messages_without_a_key_are_spread_evenly(sdk: Sdk, queue: Queue) -> None:
    """R10: round robin."""
    async with pair(sdk, queue.name) as (sender, receiver):
        for number in range(32):
            await sender.send(ServiceBusMessage(str(number)))
        messages = await receive_all(receiver, 32)
    counts = [fragments(messages).count(number) for number in range(queue.fragment_count)]
    assert counts == [32 // queue.fragment_count] * queue.fragment_count


async def test_an_empty_body_is_a_message_too(sdk: Sdk, queue: Queue) -> None:
    async with pair(sdk, queue.name) as (sender, receiver):
        await sender.send(ServiceBusMessage(b""))
        [message] = await receiver.receive()

        assert texts([message]) == [""]
