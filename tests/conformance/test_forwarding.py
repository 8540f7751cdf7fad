"""Entities that forward, with the Python SDK (R27)."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest
from azure.core.exceptions import ResourceNotFoundError
from azure.servicebus import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
    ServiceBusSubQueue,
)
from azure.servicebus.exceptions import ServiceBusError
from azure.servicebus.management import ServiceBusAdministrationClient

from tests.conformance.topic_sdk import properties_of
from tests.support.server import Server
from tests.support.waiting import wait_until

WAIT_S = 20.0
HOPS_TEXT = (
    "The maximum number of allowed hops when forwarding between queues has been exceeded. "
    "This value is set to 4."
)

_numbers = itertools.count(1)


class Town:
    """Entities made for one test, and the words to use them with."""

    def __init__(self, server: Server, administration: ServiceBusAdministrationClient) -> None:
        self.administration = administration
        self.client = ServiceBusClient.from_connection_string(
            server.connection_string, retry_total=0
        )
        self._number = next(_numbers)
        self._queues: list[str] = []
        self._topics: list[str] = []

    def queue(
        self,
        name: str,
        *,
        to: str | None = None,
        dead_letters_to: str | None = None,
        is_partitioned: bool = False,
        requires_session: bool = False,
        max_delivery_count: int = 10,
    ) -> str:
        full = f"{name}-{self._number}"
        self.administration.create_queue(
            full,
            forward_to=to,
            forward_dead_lettered_messages_to=dead_letters_to,
            enable_partitioning=is_partitioned,
            requires_session=requires_session,
            max_delivery_count=max_delivery_count,
        )
        self._queues.append(full)
        return full

    def topic(self, name: str, *, is_partitioned: bool = False) -> str:
        full = f"{name}-{self._number}"
        self.administration.create_topic(full, enable_partitioning=is_partitioned)
        self._topics.append(full)
        return full

    def send(self, queue: str, *messages: ServiceBusMessage) -> None:
        with self.client.get_queue_sender(queue) as sender:
            for message in messages:
                sender.send_messages(message)

    def receive(
        self, queue: str, count: int, sub_queue: ServiceBusSubQueue | None = None
    ) -> list[ServiceBusReceivedMessage]:
        """Exactly so many messages, which are gone then."""
        found: list[ServiceBusReceivedMessage] = []
        mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
        with self.client.get_queue_receiver(
            queue, sub_queue=sub_queue, receive_mode=mode
        ) as receiver:
            until_s = time.monotonic() + WAIT_S
            while len(found) < count and time.monotonic() < until_s:
                found += receiver.receive_messages(count - len(found), max_wait_time=5)
        assert len(found) == count
        return found

    def bodies(self, queue: str, count: int) -> list[str]:
        return [str(message) for message in self.receive(queue, count)]

    def transfer_dead_letters(self, queue: str, count: int) -> list[ServiceBusReceivedMessage]:
        return self.receive(queue, count, ServiceBusSubQueue.TRANSFER_DEAD_LETTER)

    def change(self, queue: str, **changes: str | None) -> None:
        self.administration.update_queue(self.administration.get_queue(queue), **changes)

    def close(self) -> None:
        self.client.close()
        for name in reversed(self._queues):
            with suppress(ResourceNotFoundError):
                self.administration.delete_queue(name)
        for name in self._topics:
            with suppress(ResourceNotFoundError):
                self.administration.delete_topic(name)


@pytest.fixture
def town(server: Server, administration: ServiceBusAdministrationClient) -> Iterator[Town]:
    town = Town(server, administration)
    yield town
    town.close()


@pytest.mark.parametrize(
    ("from_partitioned", "to_partitioned"),
    [(False, False), (False, True), (True, False), (True, True)],
)
def test_a_queue_forwards_between_partitioned_and_conventional(
    town: Town, from_partitioned: bool, to_partitioned: bool
) -> None:
    """R27."""
    destination = town.queue("home", is_partitioned=to_partitioned)
    source = town.queue("gate", to=destination, is_partitioned=from_partitioned)

    town.send(source, *[ServiceBusMessage(f"m{number}") for number in range(20)])

    assert sorted(town.bodies(destination, 20)) == sorted(f"m{number}" for number in range(20))
    counts = town.administration.get_queue_runtime_properties(source)
    assert counts.total_message_count == 0


def test_the_partition_key_chooses_the_fragment_of_the_destination(town: Town) -> None:
    """R27."""
    destination = town.queue("home", is_partitioned=True)
    source = town.queue("gate", to=destination, is_partitioned=True)
    keys = [f"key-{number}" for number in range(6)]
    for key in keys:
        town.send(destination, ServiceBusMessage("direct", partition_key=key))
        town.send(source, ServiceBusMessage("forwarded", partition_key=key))

    found = town.receive(destination, 2 * len(keys))

    for key in keys:
        fragments = {
            (message.sequence_number or 0) >> 48
            for message in found
            if message.partition_key == key
        }
        assert len(fragments) == 1


def test_a_chain_leads_through_a_topic_and_a_subscription(town: Town) -> None:
    """R27: queue to queue to topic to subscription to queue."""
    last = town.queue("last")
    topic = town.topic("news", is_partitioned=True)
    town.administration.create_subscription(topic, "all", forward_to=last)
    second = town.queue("second", to=topic, is_partitioned=True)
    first = town.queue("first", to=second)

    message = ServiceBusMessage(
        "hello", message_id="m-1", application_properties={"colour": "blue"}
    )
    town.send(first, message)

    [received] = town.receive(last, 1)
    assert str(received) == "hello"
    assert received.message_id == "m-1"
    assert properties_of(received) == {"colour": "blue"}
    assert received.enqueued_sequence_number == 1
    raw = received.raw_amqp_message.annotations or {}
    assert not [key for key in raw if b"shardbus" in key]


def test_dead_letters_are_forwarded_with_their_reason_and_source(town: Town) -> None:
    """R27."""
    collected = town.queue("collected", is_partitioned=True)
    source = town.queue("work", dead_letters_to=collected)
    town.send(source, ServiceBusMessage("broken"))
    with town.client.get_queue_receiver(source) as receiver:
        [message] = receiver.receive_messages(max_wait_time=WAIT_S)
        receiver.dead_letter_message(message, reason="bad", error_description="very bad")

    [received] = town.receive(collected, 1)

    assert received.dead_letter_source == source
    assert received.dead_letter_reason == "bad"
    assert received.dead_letter_error_description == "very bad"


def test_late_dead_letters_of_a_subscription_are_forwarded_and_publishing_goes_on(
    town: Town,
) -> None:
    """R27: the seventh of ten is forwarded first, then the fifth; its number is still its own."""
    collected, topic = town.queue("late"), town.topic("numbered")
    town.administration.create_subscription(topic, "s", forward_dead_lettered_messages_to=collected)
    with (
        town.client.get_topic_sender(topic) as sender,
        town.client.get_subscription_receiver(topic, "s") as receiver,
    ):
        sender.send_messages([ServiceBusMessage(str(number)) for number in range(1, 11)])
        held: list[ServiceBusReceivedMessage] = []
        while len(held) < 10:
            held += receiver.receive_messages(10, max_wait_time=WAIT_S)
        for number in (7, 5):
            receiver.dead_letter_message(held[number - 1], reason="bad")
            [forwarded] = town.receive(collected, 1)
            assert str(forwarded) == str(number)
            assert forwarded.enqueued_sequence_number == held[number - 1].sequence_number
        sender.send_messages([ServiceBusMessage("11"), ServiceBusMessage("12")])
        receiver.complete_message(held[0])

        fresh: list[ServiceBusReceivedMessage] = []
        while len(fresh) < 2:
            fresh += receiver.receive_messages(2, max_wait_time=WAIT_S)

    assert [str(message) for message in fresh] == ["11", "12"]
    assert fresh[0].sequence_number == (held[9].sequence_number or 0) + 1


def test_a_fifth_hop_is_a_dead_letter(town: Town) -> None:
    """R27."""
    chain = [town.queue("hop-6")]
    for number in range(5, 0, -1):
        chain.append(town.queue(f"hop-{number}", to=chain[-1]))

    town.send(chain[-1], ServiceBusMessage("tired"))

    stopped_at = chain[1]
    [received] = town.receive(stopped_at, 1, ServiceBusSubQueue.DEAD_LETTER)
    assert received.dead_letter_reason == "MaxTransferHopCountExceeded"
    assert received.dead_letter_error_description == HOPS_TEXT


def test_four_hops_are_possible(town: Town) -> None:
    """R27."""
    chain = [town.queue("four-5")]
    for number in range(4, 0, -1):
        chain.append(town.queue(f"four-{number}", to=chain[-1]))

    town.send(chain[-1], ServiceBusMessage("fresh"))

    assert town.bodies(chain[0], 1) == ["fresh"]


def test_what_a_disabled_destination_does_not_take_is_a_transfer_dead_letter(town: Town) -> None:
    """R27."""
    destination = town.queue("home")
    source = town.queue("gate", to=destination)
    town.change(destination, status="Disabled")

    town.send(source, ServiceBusMessage("no"))

    [received] = town.transfer_dead_letters(source, 1)
    assert received.dead_letter_reason == "MessagingEntityDisabled"


def test_what_a_missing_destination_does_not_take_is_a_transfer_dead_letter(town: Town) -> None:
    """R27."""
    destination = town.queue("home")
    source = town.queue("gate", to=destination, is_partitioned=True)
    town.administration.delete_queue(destination)

    town.send(source, ServiceBusMessage("no"))

    [received] = town.transfer_dead_letters(source, 1)
    assert received.dead_letter_reason == "MessagingEntityNotFound"


def test_what_lacks_a_session_is_not_forwarded_to_sessions(town: Town) -> None:
    """R27."""
    destination = town.queue("home", requires_session=True)
    source = town.queue("gate", to=destination)

    town.send(source, ServiceBusMessage("without"))
    town.send(source, ServiceBusMessage("with", session_id="s"))

    [refused] = town.transfer_dead_letters(source, 1)
    assert str(refused) == "without"
    assert refused.dead_letter_reason == "Session id is null."
    with town.client.get_queue_receiver(destination, session_id="s") as receiver:
        assert [str(each) for each in receiver.receive_messages(max_wait_time=WAIT_S)] == ["with"]


def test_nothing_is_received_from_what_forwards(town: Town) -> None:
    """R27."""
    destination = town.queue("home")
    source = town.queue("gate", to=destination)

    with pytest.raises(ServiceBusError, match=destination):
        town.client.get_queue_receiver(source).receive_messages(max_wait_time=5)


def test_forwarding_is_switched_on_and_off_at_run_time(town: Town) -> None:
    """R27."""
    one, other = town.queue("one"), town.queue("other")
    source = town.queue("gate")
    town.send(source, ServiceBusMessage("kept"))
    assert town.bodies(source, 1) == ["kept"]

    for target in (one, other):
        town.change(source, forward_to=target)
        town.send(source, ServiceBusMessage(f"for {target}"))
        assert town.bodies(target, 1) == [f"for {target}"]

    town.change(source, forward_to=None)
    town.send(source, ServiceBusMessage("kept again"))
    assert town.bodies(source, 1) == ["kept again"]


def test_what_waits_is_counted_as_such(town: Town) -> None:
    """R29."""
    source = town.queue("gate")
    destination = town.queue("home", requires_session=True)
    town.send(source, ServiceBusMessage("refused"))
    town.change(source, forward_to=destination)

    def is_refused() -> bool:
        counts = town.administration.get_queue_runtime_properties(source)
        return counts.transfer_dead_letter_message_count == 1

    wait_until(is_refused)
    counts = town.administration.get_queue_runtime_properties(source)
    assert (counts.active_message_count, counts.transfer_message_count) == (0, 0)


def test_a_destination_that_does_not_exist_is_refused(town: Town) -> None:
    """R27."""
    with pytest.raises(ResourceNotFoundError):
        town.queue("lost", to="nowhere-at-all")


@pytest.mark.parametrize("is_partitioned", [False, True])
def test_what_goes_round_in_a_loop_ends_among_the_dead_letters(
    town: Town, is_partitioned: bool
) -> None:
    """R27: as the service takes it; a queue that forwards to itself, and two to each other."""
    itself = town.queue("itself", is_partitioned=is_partitioned)
    town.change(itself, forward_to=itself)
    one = town.queue("one", is_partitioned=is_partitioned)
    two = town.queue("two", to=one, is_partitioned=is_partitioned)
    town.change(one, forward_to=two)
    messages = [ServiceBusMessage(str(number)) for number in range(20)]

    for queue in (itself, one):
        town.send(queue, *messages)
        found = town.receive(queue, len(messages), ServiceBusSubQueue.DEAD_LETTER)
        assert sorted(map(str, found)) == sorted(map(str, range(20)))
        assert {each.dead_letter_reason for each in found} == {"MaxTransferHopCountExceeded"}

    for queue in (itself, one, two):
        counts = town.administration.get_queue_runtime_properties(queue)
        assert counts.total_message_count == 0


def test_a_queue_may_be_created_that_forwards_to_itself(town: Town) -> None:
    """R27."""
    name = f"ring-{time.monotonic_ns()}"
    town.administration.create_queue(name, forward_to=name)

    town.send(name, ServiceBusMessage("round"))

    [found] = town.receive(name, 1, ServiceBusSubQueue.DEAD_LETTER)
    assert found.dead_letter_error_description == HOPS_TEXT
    town.administration.delete_queue(name)


def test_a_loop_through_a_topic_ends_among_the_dead_letters(town: Town) -> None:
    """R27."""
    topic = town.topic("news")
    town.administration.create_subscription(topic, "round", forward_to=topic)

    with town.client.get_topic_sender(topic) as sender:
        sender.send_messages(ServiceBusMessage("again"))

    with town.client.get_subscription_receiver(
        topic, "round", sub_queue=ServiceBusSubQueue.DEAD_LETTER
    ) as receiver:
        [found] = receiver.receive_messages(max_wait_time=WAIT_S)
    assert found.dead_letter_reason == "MaxTransferHopCountExceeded"


def test_sessions_beside_forwarding_are_taken_and_their_messages_stay(town: Town) -> None:
    """R27."""
    destination = town.queue("home")
    source = town.queue("sessions", to=destination, requires_session=True)
    assert str(town.administration.get_queue(source).forward_to).endswith(f"/{destination}")

    town.send(source, ServiceBusMessage("mine", session_id="s"))

    with town.client.get_queue_receiver(source, session_id="s") as receiver:
        [message] = receiver.receive_messages(max_wait_time=WAIT_S)
        receiver.complete_message(message)
    counts = town.administration.get_queue_runtime_properties(source)
    assert (counts.total_message_count, counts.transfer_message_count) == (0, 0)
