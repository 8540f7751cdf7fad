"""A test moves the time of its bus: everything that depends on time follows, nothing else does."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

import pytest
from azure.servicebus import (
    AutoLockRenewer,
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiver,
    ServiceBusSubQueue,
)
from azure.servicebus.exceptions import (
    MessageLockLostError,
    ServiceBusError,
    SessionLockLostError,
)
from azure.servicebus.management import ServiceBusAdministrationClient

from shardbus.testing import BusFailed, PrivateBus, WarmProcess
from shardbus.testing.warm_client import BusOptions

WAIT_S: Final = 20


@pytest.fixture
def client(bus: PrivateBus) -> Iterator[ServiceBusClient]:
    with ServiceBusClient.from_connection_string(bus.connection_string) as client:
        yield client


def send(client: ServiceBusClient, queue: str, *messages: ServiceBusMessage) -> None:
    with client.get_queue_sender(queue) as sender:
        sender.send_messages(list(messages))


def receive(receiver: ServiceBusReceiver) -> ServiceBusReceivedMessage:
    (message,) = receiver.receive_messages(max_wait_time=WAIT_S)
    return message


def test_a_lock_is_lost_as_soon_as_its_time_has_passed(
    bus: PrivateBus, client: ServiceBusClient
) -> None:
    bus.declare(queues={"q": {"LockDuration": "PT1M"}})
    send(client, "q", ServiceBusMessage("x"))
    with client.get_queue_receiver("q") as receiver:
        message = receive(receiver)
        # Seconds pass by themselves, too, on a busy machine.
        bus.advance(seconds=45)
        receiver.renew_message_lock(message)
        bus.advance(seconds=45)
        # Renewed, so it is held; and the client, whose clock follows, agrees.
        assert message.locked_until_utc is not None
        assert message.locked_until_utc > bus.now
        bus.advance(seconds=16)
        with pytest.raises(MessageLockLostError):
            receiver.complete_message(message)
        again = receive(receiver)
        assert again.delivery_count == 1
        receiver.complete_message(again)


def test_locks_are_renewed_by_the_client_after_time_was_moved(
    bus: PrivateBus, client: ServiceBusClient
) -> None:
    """The SDK decides by its own clock when to renew: that clock must follow the bus."""
    bus.declare(queues={"q": {"LockDuration": "PT5S"}})
    bus.advance(hours=1)
    send(client, "q", ServiceBusMessage("x"))
    with client.get_queue_receiver("q") as receiver, AutoLockRenewer() as renewer:
        message = receive(receiver)
        first = message.locked_until_utc
        renewer.register(receiver, message, max_lock_renewal_duration=60)
        deadline = datetime.now(UTC) + timedelta(seconds=WAIT_S)
        while message.locked_until_utc == first:
            assert datetime.now(UTC) < deadline, "the lock was never renewed"
        receiver.complete_message(message)


def test_what_is_scheduled_comes_at_its_moment_and_expires_from_then_on(
    bus: PrivateBus, client: ServiceBusClient
) -> None:
    """The message is enqueued at its moment, although time moves far beyond that in one step."""
    bus.declare(queues={"q": {"DeadLetteringOnMessageExpiration": True}})
    bus.freeze()
    moment = bus.now + timedelta(days=3)
    message = ServiceBusMessage("x", time_to_live=timedelta(minutes=10))
    with client.get_queue_sender("q") as sender:
        sender.schedule_messages(message, moment)
    with client.get_queue_receiver("q") as receiver:
        assert bus.advance_to(moment - timedelta(seconds=1)) == moment - timedelta(seconds=1)
        assert receiver.peek_messages()[0].enqueued_time_utc != moment
        bus.advance(days=1)
        assert receiver.peek_messages() == []
    with client.get_queue_receiver("q", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as dead:
        (expired,) = dead.peek_messages()
        assert expired.enqueued_time_utc == moment
        assert expired.dead_letter_reason == "TTLExpiredException"


def test_a_session_passes_to_the_next_when_its_lock_has_ended(
    bus: PrivateBus, client: ServiceBusClient
) -> None:
    bus.declare(queues={"s": {"RequiresSession": True, "LockDuration": "PT1M"}})
    send(client, "s", ServiceBusMessage("x", session_id="1"))
    with client.get_queue_receiver("s", session_id="1") as receiver:
        message = receive(receiver)
        bus.advance(minutes=2)
        with pytest.raises((SessionLockLostError, ServiceBusError)):
            receiver.complete_message(message)
        with client.get_queue_receiver("s", session_id="1") as other:
            assert receive(other).delivery_count == 1


def test_an_id_is_forgotten_when_its_window_has_ended(
    bus: PrivateBus, client: ServiceBusClient
) -> None:
    window = {"RequiresDuplicateDetection": True, "DuplicateDetectionHistoryTimeWindow": "PT1H"}
    bus.declare(queues={"q": window})
    send(client, "q", ServiceBusMessage("first", message_id="1"))
    bus.advance(minutes=59)
    send(client, "q", ServiceBusMessage("duplicate", message_id="1"))
    bus.advance(minutes=2)
    send(client, "q", ServiceBusMessage("another", message_id="1"))
    with client.get_queue_receiver("q") as receiver:
        assert [str(message) for message in receiver.peek_messages(9)] == ["first", "another"]


def test_an_idle_entity_is_deleted_and_one_in_use_is_not(
    bus: PrivateBus, client: ServiceBusClient
) -> None:
    bus.declare(queues={"idle": {"AutoDeleteOnIdle": "PT1H"}, "used": {"AutoDeleteOnIdle": "PT1H"}})
    for _ in range(3):
        bus.advance(minutes=25)
        send(client, "used", ServiceBusMessage("x"))
    with ServiceBusAdministrationClient.from_connection_string(
        bus.connection_string, connection_verify=bus.ca_file
    ) as administration:
        assert [queue.name for queue in administration.list_queues()] == ["used"]


def test_clients_keep_their_access_however_far_time_is_moved(
    bus: PrivateBus, client: ServiceBusClient
) -> None:
    bus.declare(queues=["q"])
    with client.get_queue_sender("q") as sender, client.get_queue_receiver("q") as receiver:
        sender.send_messages(ServiceBusMessage("before"))
        receiver.complete_message(receive(receiver))
        bus.advance(days=365)
        sender.send_messages(ServiceBusMessage("after"))
        receiver.complete_message(receive(receiver))


def test_a_bus_may_start_in_the_past_with_its_time_stopped(warm: WarmProcess) -> None:
    bus = warm.start(BusOptions(now="2020-02-29T12:00Z", is_frozen=True))
    try:
        bus.declare(queues=["q"])
        with ServiceBusClient.from_connection_string(bus.connection_string) as client:
            send(client, "q", ServiceBusMessage("x"))
            with client.get_queue_receiver("q") as receiver:
                (message,) = receiver.peek_messages()
        assert message.enqueued_time_utc == datetime(2020, 2, 29, 12, tzinfo=UTC) == bus.now
    finally:
        bus.close()


def test_time_does_not_move_back_and_a_refusal_says_so(bus: PrivateBus) -> None:
    with pytest.raises(BusFailed, match="2020-01-01"):
        bus.advance_to(datetime(2020, 1, 1, tzinfo=UTC))
    with pytest.raises(BusFailed, match=">="):
        bus.advance(-1)
    with pytest.raises(BusFailed, match="<="):
        bus.advance(days=40_000)
    with pytest.raises(ValueError, match="zone"):
        bus.advance_to(datetime(2099, 1, 1))  # noqa: DTZ001 - that is what is refused


@pytest.mark.parametrize("token", ["", "Bearer", "Bearer x", "SharedAccessSignature sr=x"])
def test_only_who_has_the_token_of_the_bus_can_move_its_time(bus: PrivateBus, token: str) -> None:
    for path in ("/test-server/time", "/test-server/entities", "/test-server"):
        connection = http.client.HTTPConnection("localhost", bus.http_port, timeout=WAIT_S)
        headers = {"Authorization": token} if token else {}
        connection.request("POST", path, '{"advanceMs": 1}', headers)
        response = connection.getresponse()
        response.read()
        connection.close()
        assert response.status == 401


def test_buses_know_nothing_of_each_other(warm: WarmProcess) -> None:
    one, other = warm.start(), warm.start()
    try:
        one.declare(queues=["q"])
        one.freeze()
        one.advance(days=1)
        assert one.now - other.now > timedelta(hours=23)
        with ServiceBusAdministrationClient.from_connection_string(
            other.connection_string, connection_verify=other.ca_file
        ) as administration:
            assert list(administration.list_queues()) == []
    finally:
        one.close()
        other.close()
