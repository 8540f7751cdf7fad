"""What a queue's description can be told while it lives, and what that does to its clients."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import (
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    ServiceBusAuthenticationError,
)
from azure.servicebus.management import (
    EntityStatus,
    QueueProperties,
    ServiceBusAdministrationClient,
)

from shardbus.amqp.outcomes import Accepted
from shardbus.app.cli.sas import Credential
from shardbus.message.sections import encode_data_message
from tests.conformance.conftest import Queue, QueueOptions, Queues
from tests.conformance.management import management_of
from tests.conformance.sdk import (
    DEAD_LETTERS,
    NOTHING_S,
    Sdk,
    pair,
    send_texts,
    sequence_number,
    texts,
)
from tests.support.amqp_client import Address, Ended, connected
from tests.support.answers import refused_with
from tests.support.messages import seen
from tests.support.server import Server


def update(
    administration: ServiceBusAdministrationClient,
    queue: str,
    change: Callable[[QueueProperties], None],
) -> QueueProperties:
    """Change a queue as a client does: read, alter, write back; what it then says of itself."""
    properties = administration.get_queue(queue)
    change(properties)
    administration.update_queue(properties)
    return administration.get_queue(queue)


def set_status(
    administration: ServiceBusAdministrationClient, queue: str, status: EntityStatus
) -> None:
    def change(properties: QueueProperties) -> None:
        properties.status = status

    assert update(administration, queue, change).status == status


async def test_who_uses_a_queue_that_is_deleted_is_told_that_it_is_not_there(
    sdk: Sdk, administration: ServiceBusAdministrationClient, queue: Queue
) -> None:
    async with pair(sdk, queue.name) as (sender, receiver):
        await send_texts(sender, "x")
        await receiver.receive()
        await asyncio.to_thread(administration.delete_queue, queue.name)
        with pytest.raises(MessagingEntityNotFoundError):
            await receiver.receive(wait_s=5)


def test_who_sends_to_a_queue_that_is_deleted_is_told_that_it_is_not_there(
    server: Server, administration: ServiceBusAdministrationClient, queue: Queue
) -> None:
    """The SDK does not look why its link ended, but tries again, and is told with its token: what
    `$cbs` answers (404) is an error of authentication to this one.
    """
    with (
        ServiceBusClient.from_connection_string(
            server.connection_string, retry_backoff_factor=0.05
        ) as client,
        client.get_queue_sender(queue.name) as sender,
    ):
        sender.send_messages(ServiceBusMessage("x"))
        administration.delete_queue(queue.name)
        with pytest.raises(ServiceBusAuthenticationError):
            sender.send_messages(ServiceBusMessage("y"))


async def test_links_to_a_queue_that_is_deleted_end_with_not_found(
    administration: ServiceBusAdministrationClient,
    address: Address,
    credential: Credential,
    queue: Queue,
) -> None:
    async with connected(address, credential) as client:
        sender = await client.sender(queue.name)
        receiver = await client.receiver(queue.name)
        await asyncio.to_thread(administration.delete_queue, queue.name)
        for end in (sender, receiver):
            with pytest.raises(Ended) as detached:
                await end.change()
            assert detached.value.condition == "amqp:not-found"


@pytest.mark.parametrize(
    "status", [EntityStatus.DISABLED, EntityStatus.SEND_DISABLED, EntityStatus.RECEIVE_DISABLED]
)
async def test_a_status_ends_the_links_it_forbids_and_active_brings_all_back(
    administration: ServiceBusAdministrationClient,
    address: Address,
    credential: Credential,
    queue: Queue,
    status: EntityStatus,
) -> None:
    """R35: what is open is detached, what is new is refused, nothing is lost."""
    sends = status == EntityStatus.RECEIVE_DISABLED
    receives = status == EntityStatus.SEND_DISABLED
    async with connected(address, credential) as client:
        sender = await client.sender(queue.name)
        receiver = await client.receiver(queue.name)
        await asyncio.to_thread(set_status, administration, queue.name, status)
        for end, is_allowed in ((sender, sends), (receiver, receives)):
            if is_allowed:
                assert end.error is None
                continue
            with pytest.raises(Ended) as detached:
                await end.change()
            assert detached.value.condition == "com.microsoft:entity-disabled"
        for attach, is_allowed in ((client.sender, sends), (client.receiver, receives)):
            if is_allowed:
                await attach(queue.name)
                continue
            with pytest.raises(Ended) as refusal:
                await attach(queue.name)
            assert refusal.value.condition == "com.microsoft:entity-disabled"
        await asyncio.to_thread(set_status, administration, queue.name, EntityStatus.ACTIVE)
        sender = await client.sender(queue.name)
        assert isinstance(await sender.send(encode_data_message(b"alive")), Accepted)
        receiver = await client.receiver(queue.name, credit=1)
        [delivery] = await receiver.take_many(1)
        assert seen(delivery.payload).body == b"alive"


async def test_the_sdk_is_told_that_a_queue_is_disabled(
    administration: ServiceBusAdministrationClient, sdk: Sdk, queue: Queue
) -> None:
    """R35: by its own error; what was deferred before is there afterwards."""
    async with pair(sdk, queue.name) as (sender, receiver):
        await send_texts(sender, "deferred")
        [message] = await receiver.receive()
        await receiver.defer(message)
    await asyncio.to_thread(set_status, administration, queue.name, EntityStatus.DISABLED)
    with pytest.raises(MessagingEntityDisabledError):
        async with sdk.sender(queue.name) as sender:
            await send_texts(sender, "x")
    with pytest.raises(MessagingEntityDisabledError):
        async with sdk.receiver(queue.name) as receiver:
            await receiver.receive(wait_s=NOTHING_S)
    await asyncio.to_thread(set_status, administration, queue.name, EntityStatus.ACTIVE)
    async with sdk.receiver(queue.name) as receiver:
        assert texts(await receiver.receive_deferred(sequence_number(message))) == ["deferred"]


async def test_what_a_status_forbids_is_refused_at_the_management_node_too(
    administration: ServiceBusAdministrationClient,
    address: Address,
    credential: Credential,
    queue: Queue,
) -> None:
    """R35: its links stay, because the node serves both directions."""
    async with connected(address, credential) as client:
        management = await management_of(client, queue.name)
        scheduling = {"messages": [{"message-id": "m", "message": encode_data_message(b"x")}]}
        await asyncio.to_thread(
            set_status, administration, queue.name, EntityStatus.RECEIVE_DISABLED
        )
        by_number = await management.receive_deferred([1])
        scheduled = await management.ask("schedule-message", {**scheduling})
        await asyncio.to_thread(set_status, administration, queue.name, EntityStatus.SEND_DISABLED)
        refused = await management.ask("schedule-message", {**scheduling})
        unknown = await management.receive_deferred([1])

        assert by_number.condition == refused.condition == "com.microsoft:entity-disabled"
        assert scheduled.status == 200
        assert unknown.condition == "com.microsoft:message-not-found"


async def test_changes_of_a_queue_hold_for_what_happens_next(
    administration: ServiceBusAdministrationClient, sdk: Sdk, queue: Queue
) -> None:
    """R35: lock duration, delivery count, time to live, dead-lettering, metadata; links stay."""

    def change(properties: QueueProperties) -> None:
        properties.lock_duration = timedelta(minutes=2)
        properties.max_delivery_count = 1
        properties.default_message_time_to_live = timedelta(seconds=1)
        properties.dead_lettering_on_message_expiration = True
        properties.user_metadata = "changed"

    async with pair(sdk, queue.name) as (sender, receiver):
        await send_texts(sender, "failing")
        found = await asyncio.to_thread(update, administration, queue.name, change)
        [message] = await receiver.receive()
        assert message.locked_until_utc is not None
        locked_for = message.locked_until_utc - datetime.now(UTC)
        await receiver.abandon(message)
        await send_texts(sender, "expiring")
    async with sdk.receiver(queue.name, DEAD_LETTERS) as receiver:
        dead = [message for _ in range(2) for message in await receiver.receive()]
        reasons = {texts([message])[0]: message.dead_letter_reason for message in dead}

    assert (found.user_metadata, found.max_delivery_count) == ("changed", 1)
    assert found.lock_duration == timedelta(minutes=2)
    assert timedelta(seconds=110) < locked_for <= timedelta(minutes=2)
    assert reasons == {"failing": "MaxDeliveryCountExceeded", "expiring": "TTLExpiredException"}


@pytest.mark.parametrize(
    ("name", "element"),
    [
        ("requires_session", "RequiresSession"),
        ("requires_duplicate_detection", "RequiresDuplicateDetection"),
        ("enable_partitioning", "EnablePartitioning"),
    ],
)
def test_what_a_queue_is_made_as_it_stays(
    administration: ServiceBusAdministrationClient, queue: Queue, name: str, element: str
) -> None:
    """R6, R35: the refusal names what cannot be changed."""

    def change(properties: QueueProperties) -> None:
        setattr(properties, name, not getattr(properties, name))

    with refused_with(400, element) as refusal:
        update(administration, queue.name, change)
    assert refusal.value.status_code == 400
    assert "cannot be changed" in str(refusal.value)


def test_sessions_duplicates_and_idle_life_come_back_as_they_were_asked_for(
    administration: ServiceBusAdministrationClient, queues: Queues, is_partitioned: bool
) -> None:
    """R35."""
    queue = queues.make(
        is_partitioned,
        requires_session=True,
        requires_duplicate_detection=True,
        duplicate_detection_history_time_window=timedelta(minutes=3),
        auto_delete_on_idle=timedelta(hours=1),
    )

    def change(properties: QueueProperties) -> None:
        properties.auto_delete_on_idle = timedelta(minutes=5)
        properties.duplicate_detection_history_time_window = timedelta(minutes=4)

    made = administration.get_queue(queue.name)
    changed = update(administration, queue.name, change)

    assert (made.requires_session, made.requires_duplicate_detection) == (True, True)
    assert made.duplicate_detection_history_time_window == timedelta(minutes=3)
    assert made.auto_delete_on_idle == timedelta(hours=1)
    assert changed.auto_delete_on_idle == timedelta(minutes=5)
    assert changed.duplicate_detection_history_time_window == timedelta(minutes=4)


@pytest.mark.parametrize(
    ("options", "element"),
    [
        ({"auto_delete_on_idle": timedelta(seconds=299)}, "AutoDeleteOnIdle"),
        ({"lock_duration": "PT4S"}, "LockDuration"),
        ({"lock_duration": "PT301S"}, "LockDuration"),
        ({"max_delivery_count": 0}, "MaxDeliveryCount"),
        ({"default_message_time_to_live": timedelta(milliseconds=999)}, "DefaultMessageTimeToLive"),
        (
            {"duplicate_detection_history_time_window": timedelta(seconds=19)},
            "DuplicateDetectionHistoryTimeWindow",
        ),
        (
            {"duplicate_detection_history_time_window": timedelta(days=8)},
            "DuplicateDetectionHistoryTimeWindow",
        ),
    ],
)
def test_numbers_out_of_range_are_refused_by_name(
    administration: ServiceBusAdministrationClient,
    queue_name: str,
    options: QueueOptions,
    element: str,
) -> None:
    """R35."""
    with refused_with(400, element) as refusal:
        administration.create_queue(queue_name, **options)
    assert refusal.value.status_code == 400


async def test_the_times_of_a_queue_tell_when_it_was_made_changed_and_used(
    administration: ServiceBusAdministrationClient, sdk: Sdk, queue: Queue
) -> None:
    """R29, R35."""

    def change(properties: QueueProperties) -> None:
        properties.user_metadata = "x"

    before = administration.get_queue_runtime_properties(queue.name)
    await asyncio.sleep(0.01)
    update(administration, queue.name, change)
    async with sdk.sender(queue.name) as sender:
        await sender.send(ServiceBusMessage("used"))
    after = administration.get_queue_runtime_properties(queue.name)

    assert before.created_at_utc == after.created_at_utc
    assert before.updated_at_utc is not None and after.updated_at_utc is not None
    assert before.updated_at_utc < after.updated_at_utc
    assert after.accessed_at_utc is not None
    assert abs(after.accessed_at_utc - datetime.now(UTC)) < timedelta(minutes=1)
