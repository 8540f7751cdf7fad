"""What the official SDKs do although the specification does not allow it (R36)."""

import asyncio
from datetime import UTC, datetime, timedelta

from azure.servicebus import (
    AutoLockRenewer,
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
)
from azure.servicebus.aio import AutoLockRenewer as AioRenewer
from azure.servicebus.aio import ServiceBusClient as AioClient

from tests.conformance.conftest import Queue, Queues
from tests.conformance.sdk import Sdk, pair
from tests.support.server import Server

MESSAGES = 20


async def test_a_received_message_can_be_sent_again(sdk: Sdk, queues: Queues) -> None:
    """The SDK sends text that it received as binary.

    It cannot encode the sequence numbers of partitioned queues itself, so there it sends nothing.
    """
    queue = queues.make(is_partitioned=False)
    message = ServiceBusMessage(
        "again",
        message_id="id-1",
        correlation_id="corr",
        subject="label",
        to="somebody",
        reply_to="me",
        reply_to_session_id="s",
        content_type="text/plain",
        partition_key="key",
        application_properties={"colour": "red"},
    )
    async with pair(sdk, queue.name) as (sender, receiver):
        await sender.send(message)
        [first] = await receiver.receive()
        await sender.send(first)
        await receiver.complete(first)
        [second] = await receiver.receive()
        await receiver.complete(second)

    for name in ("message_id", "correlation_id", "subject", "to", "reply_to", "partition_key"):
        assert getattr(second, name) == getattr(message, name), name
    assert (second.content_type, second.reply_to_session_id) == ("text/plain", "s")
    assert second.application_properties == {b"colour": b"red"}
    assert str(second) == "again"
    assert second.sequence_number != first.sequence_number


def test_locks_of_many_messages_are_renewed_by_threads(server: Server, queue: Queue) -> None:
    """Threads that share a management link send requests under one delivery-id."""
    failures: list[object] = []
    with (
        ServiceBusClient.from_connection_string(server.connection_string) as client,
        client.get_queue_sender(queue.name) as sender,
        client.get_queue_receiver(queue.name) as receiver,
        AutoLockRenewer(max_workers=MESSAGES) as renewer,
    ):
        for number in range(MESSAGES):
            sender.send_messages(ServiceBusMessage(str(number)))
        held: list[ServiceBusReceivedMessage] = []
        while len(held) < MESSAGES:
            held += receiver.receive_messages(MESSAGES - len(held), max_wait_time=5)
        for message in held:
            renewer.register(
                receiver,
                message,
                max_lock_renewal_duration=60,
                on_lock_renew_failure=lambda *_: failures.append(1),
            )
            receiver.renew_message_lock(message)
        for message in held:
            receiver.complete_message(message)

    assert not failures


async def test_concurrent_requests_on_one_management_link_are_all_answered(
    server: Server, queue: Queue
) -> None:
    async with (
        AioClient.from_connection_string(server.connection_string) as client,
        client.get_queue_sender(queue.name) as sender,
        client.get_queue_receiver(queue.name) as receiver,
        AioRenewer() as renewer,
    ):
        await sender.send_messages([ServiceBusMessage(str(n)) for n in range(MESSAGES)])
        held: list[ServiceBusReceivedMessage] = []
        while len(held) < MESSAGES:
            held += await receiver.receive_messages(MESSAGES - len(held), max_wait_time=5)
        for message in held:
            renewer.register(receiver, message, max_lock_renewal_duration=60)
        renewed = await asyncio.gather(*(receiver.renew_message_lock(one) for one in held))
        peeked = await asyncio.gather(
            *(receiver.peek_messages(1, sequence_number=1) for _ in range(10))
        )
        for message in held:
            await receiver.complete_message(message)

    now = datetime.now(UTC)
    assert all(until > now - timedelta(seconds=1) for until in renewed)
    assert all(len(found) == 1 for found in peeked)
