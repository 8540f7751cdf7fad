"""What the bus does not do yet is refused in so many words, never silently ignored.

Each test here is to be replaced by one that the feature passes.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from azure.core.exceptions import HttpResponseError
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError
from azure.servicebus.management import ServiceBusAdministrationClient

from shardbus.amqp.termini import Coordinator
from shardbus.app.sas import Credential
from tests.conformance.conftest import Queue
from tests.support.amqp_client import Address, Ended, Sender, connected
from tests.support.server import Server

TOMORROW = datetime.now(UTC) + timedelta(days=1)


def test_scheduled_messages_are_refused(server: Server, queue: Queue) -> None:
    with (
        ServiceBusClient.from_connection_string(server.connection_string, retry_total=0) as client,
        client.get_queue_sender(queue.name) as sender,
        client.get_queue_receiver(queue.name) as receiver,
    ):
        with pytest.raises(ServiceBusError, match=r"not available yet|not-implemented"):
            sender.send_messages(ServiceBusMessage("x", scheduled_enqueue_time_utc=TOMORROW))
        with pytest.raises(ServiceBusError):
            sender.schedule_messages(ServiceBusMessage("x"), TOMORROW)

        assert receiver.peek_messages(1, sequence_number=1) == []


def test_deferring_is_refused_and_the_message_stays(server: Server, queue: Queue) -> None:
    with (
        ServiceBusClient.from_connection_string(server.connection_string, retry_total=0) as client,
        client.get_queue_sender(queue.name) as sender,
        client.get_queue_receiver(queue.name) as receiver,
    ):
        sender.send_messages(ServiceBusMessage("x"))
        [message] = receiver.receive_messages(1, 20)
        with pytest.raises(ServiceBusError):
            receiver.defer_message(message)

        assert len(receiver.peek_messages(1, sequence_number=1)) == 1


def test_queues_that_need_what_is_missing_are_not_made(
    administration: ServiceBusAdministrationClient, queue_name: str
) -> None:
    with pytest.raises(HttpResponseError, match="not"):
        administration.create_queue(queue_name, requires_session=True)
    with pytest.raises(HttpResponseError, match="not"):
        administration.create_queue(queue_name, requires_duplicate_detection=True)
    with pytest.raises(HttpResponseError, match="not"):
        administration.create_queue(queue_name, forward_to="elsewhere")

    assert queue_name not in [queue.name for queue in administration.list_queues()]


async def test_transactions_are_refused(address: Address, credential: Credential) -> None:
    async with connected(address, credential) as client:
        link = client.session.attach_sender("coordinator", target=Coordinator())
        end = Sender(client, link)
        client.flush()
        with pytest.raises(Ended) as refusal:
            await end.opened

        assert refusal.value.condition == "amqp:not-implemented"
