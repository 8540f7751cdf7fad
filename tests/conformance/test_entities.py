"""Queues through the Python administration clients, over HTTPS on the port of the endpoint."""

from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta

import pytest
from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.aio.management import (
    ServiceBusAdministrationClient as AioAdministrationClient,
)
from azure.servicebus.exceptions import ServiceBusAuthenticationError, ServiceBusError
from azure.servicebus.management import ServiceBusAdministrationClient

from tests.support.server import Server


@pytest.fixture
def name(administration: ServiceBusAdministrationClient, queue_name: str) -> Iterator[str]:
    yield queue_name
    with suppress(ResourceNotFoundError):
        administration.delete_queue(queue_name)


def test_partitioning_is_on_unless_it_is_switched_off(
    administration: ServiceBusAdministrationClient, name: str
) -> None:
    """R5, R9: and the size that is shown is size times fragments."""
    by_default = administration.create_queue(name)
    administration.delete_queue(name)
    switched_off = administration.create_queue(name, enable_partitioning=False)

    assert by_default.enable_partitioning is True
    assert by_default.max_size_in_megabytes == 16 * 1024
    assert switched_off.enable_partitioning is False
    assert switched_off.max_size_in_megabytes == 1024


def test_a_queue_keeps_the_properties_it_was_made_with(
    administration: ServiceBusAdministrationClient, name: str
) -> None:
    administration.create_queue(
        name,
        max_size_in_megabytes=2048,
        enable_partitioning=True,
        lock_duration=timedelta(seconds=45),
        default_message_time_to_live=timedelta(days=2),
        max_delivery_count=7,
        dead_lettering_on_message_expiration=True,
        user_metadata="made by a test & <kept>",
    )

    found = administration.get_queue(name)

    assert found.name == name
    assert found.max_size_in_megabytes == 16 * 2048
    assert found.enable_partitioning is True
    assert found.lock_duration == timedelta(seconds=45)
    assert found.default_message_time_to_live == timedelta(days=2)
    assert found.max_delivery_count == 7
    assert found.dead_lettering_on_message_expiration is True
    assert found.user_metadata == "made by a test & <kept>"


def test_an_update_changes_what_it_names_and_never_the_partitioning(
    administration: ServiceBusAdministrationClient, name: str
) -> None:
    """R6."""
    queue = administration.create_queue(name)
    queue.max_delivery_count = 4
    administration.update_queue(queue)

    found = administration.get_queue(name)
    assert (found.max_delivery_count, found.enable_partitioning) == (4, True)
    found.enable_partitioning = False
    with pytest.raises(HttpResponseError) as refusal:
        administration.update_queue(found)
    assert refusal.value.status_code == 400
    assert "EnablePartitioning" in str(refusal.value)


def test_a_name_can_be_used_once_and_again_after_deletion(
    administration: ServiceBusAdministrationClient, name: str
) -> None:
    administration.create_queue(name)
    with pytest.raises(ResourceExistsError):
        administration.create_queue(name)
    with pytest.raises(ResourceExistsError):
        administration.create_queue(name.upper())

    administration.delete_queue(name)

    with pytest.raises(ResourceNotFoundError):
        administration.get_queue(name)
    with pytest.raises(ResourceNotFoundError):
        administration.delete_queue(name)
    administration.create_queue(name)


def test_listing_shows_every_queue_over_pages(
    administration: ServiceBusAdministrationClient, queue_name: str
) -> None:
    names = [f"{queue_name}-{number:03}" for number in range(120)]
    for name in names:
        administration.create_queue(name, enable_partitioning=False)

    listed = [queue.name for queue in administration.list_queues()]

    assert [name for name in listed if name.startswith(f"{queue_name}-")] == names
    for name in names:
        administration.delete_queue(name)


def test_runtime_properties_add_up_over_the_fragments(
    server: Server, administration: ServiceBusAdministrationClient, name: str
) -> None:
    """R29."""
    administration.create_queue(name)
    with (
        ServiceBusClient.from_connection_string(server.connection_string) as client,
        client.get_queue_sender(name) as sender,
        client.get_queue_receiver(name) as receiver,
    ):
        for number in range(20):
            sender.send_messages(ServiceBusMessage(str(number)))
        [message] = receiver.receive_messages(1)
        receiver.dead_letter_message(message, "bad", "very")

    found = administration.get_queue_runtime_properties(name)

    assert (found.active_message_count, found.dead_letter_message_count) == (19, 1)
    assert found.total_message_count == 20
    assert found.size_in_bytes is not None
    assert found.size_in_bytes > 20


def test_the_namespace_tells_its_tier(administration: ServiceBusAdministrationClient) -> None:
    assert administration.get_namespace_properties().messaging_sku == "Standard"


async def test_the_asynchronous_administration_client_works_too(
    server: Server, queue_name: str
) -> None:
    client = AioAdministrationClient.from_connection_string(
        server.connection_string, connection_verify=str(server.ca_file)
    )
    async with client:
        created = await client.create_queue(queue_name)
        found = await client.get_queue(queue_name)
        listed = [queue.name async for queue in client.list_queues()]
        await client.delete_queue(queue_name)

    assert created.name == found.name == queue_name
    assert queue_name in listed


def test_deleting_a_queue_ends_the_links_to_it(
    server: Server, administration: ServiceBusAdministrationClient, name: str
) -> None:
    administration.create_queue(name)
    with (
        ServiceBusClient.from_connection_string(server.connection_string, retry_total=0) as client,
        client.get_queue_sender(name) as sender,
    ):
        sender.send_messages(ServiceBusMessage("first"))
        administration.delete_queue(name)

        with pytest.raises(ServiceBusError):
            sender.send_messages(ServiceBusMessage("second"))
        # What $cbs refuses is an error of the token to this SDK, whatever the reason.
        with pytest.raises(ServiceBusAuthenticationError):
            sender.send_messages(ServiceBusMessage("third"))
