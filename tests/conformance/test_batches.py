"""R49: batches of several keys with the Python SDKs and over HTTP, each message in its fragment."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.management import ServiceBusAdministrationClient

from shardbus.amqp.outcomes import Accepted
from shardbus.app.cli.sas import Credential
from shardbus.message.sections import BATCH_FORMAT, encode_batch, encode_data_message
from tests.conformance.conftest import Queue, Queues
from tests.conformance.rest import Rest, each_rest
from tests.conformance.sdk import (
    Received,
    Sdk,
    fragments,
    pair,
    receive_all,
    sequence_number,
    texts,
)
from tests.conformance.topic_sdk import Topic, Topics, TopicSdk, each_sdk
from tests.conformance.variants import Each
from tests.support.amqp_client import Address, connected
from tests.support.messages import seen
from tests.support.server import Server

KEYS = [f"key {number}" for number in range(20)]
BATCH = {"Content-Type": "application/vnd.microsoft.servicebus.json"}


@pytest.fixture
def rest(server: Server, credential: Credential) -> Iterator[Each[Rest]]:
    with each_rest(server, credential) as made:
        yield made


@pytest.fixture
def parted_sessions(queues: Queues) -> Each[Queue]:
    return Each(lambda _: queues.make(True, requires_session=True))


@pytest.fixture
def unique_queue(queues: Queues) -> Each[Queue]:
    return Each(lambda _: queues.make(True, requires_duplicate_detection=True))


@pytest.fixture
def topic_sdk(server: Server) -> Each[TopicSdk]:
    return each_sdk(server)


@pytest.fixture
def topics(administration: ServiceBusAdministrationClient) -> Iterator[Topics]:
    made = Topics(administration)
    yield made
    made.delete()


@pytest.fixture
def topic(topics: Topics) -> Each[Topic]:
    return Each(lambda _: topics.make(True))


def check_spread(messages: list[Received], count: int) -> None:
    """Each key has its messages, in the order of the batch, in one fragment."""
    assert len(messages) == count * len(KEYS)
    for key in KEYS:
        mine = sorted((m for m in messages if m.partition_key == key), key=sequence_number)
        assert texts(mine) == [f"{key}/{number}" for number in range(count)]
        assert len(set(fragments(mine))) == 1
    assert len(set(fragments(messages))) > 4


async def test_a_batch_of_many_keys_arrives_whole_in_the_order_of_each(
    sdk: Sdk, partitioned_queue: Queue
) -> None:
    batch = [
        ServiceBusMessage(f"{key}/{number}", partition_key=key)
        for number in range(5)
        for key in KEYS
    ]

    async with pair(sdk, partitioned_queue.name) as (sender, receiver):
        await sender.send(batch)
        check_spread(await receive_all(receiver, len(batch)), 5)


async def test_a_batch_of_many_sessions_arrives_in_each(sdk: Sdk, parted_sessions: Queue) -> None:
    sessions = KEYS[:5]

    async with sdk.sender(parted_sessions.name) as sender:
        await sender.send(
            [
                ServiceBusMessage(f"{session}/{number}", session_id=session)
                for number in range(3)
                for session in sessions
            ]
        )
    assert sorted(await sdk.sessions(parted_sessions.name)) == sessions
    for session in sessions:
        async with sdk.session(parted_sessions.name, session) as receiver:
            mine = await receive_all(receiver, 3)
            assert texts(mine) == [f"{session}/{number}" for number in range(3)]


async def test_where_ids_are_keys_a_batch_is_taken_and_each_copy_dropped_once(
    sdk: Sdk, unique_queue: Queue
) -> None:
    """R13: with duplicate detection and no other key every batch has several."""
    idents = [f"id {number}" for number in range(30)]

    async with pair(sdk, unique_queue.name) as (sender, receiver):
        await sender.send([ServiceBusMessage(f"{i}/0", message_id=i) for i in idents[:20]])
        await sender.send(
            [ServiceBusMessage(f"{i}/1", message_id=i) for i in [*idents[10:], *idents[25:]]]
        )
        received = await receive_all(receiver, 30)

        expected = [*(f"{i}/0" for i in idents[:20]), *(f"{i}/1" for i in idents[20:])]
        assert sorted(texts(received)) == sorted(expected)
        assert len(set(fragments(received))) > 4
        assert len(await receiver.peek(50)) == 30


async def test_what_has_no_key_comes_along(sdk: Sdk, partitioned_queue: Queue) -> None:
    bodies = ["a", "none", "b", "none too"]
    keys = ["a", None, "b", None]

    async with pair(sdk, partitioned_queue.name) as (sender, receiver):
        await sender.send(
            [ServiceBusMessage(b, partition_key=k) for b, k in zip(bodies, keys, strict=True)]
        )
        received = await receive_all(receiver, 4)

        assert sorted(texts(received)) == sorted(bodies)
        assert len(set(fragments(received))) == 2


async def test_many_keys_are_published_to_every_subscription(
    topic_sdk: TopicSdk, topic: Topic
) -> None:
    for name in ("one", "two"):
        topic.subscribe(name)

    async with topic_sdk.publisher(topic.name) as publisher:
        await publisher.send(
            [
                ServiceBusMessage(f"{key}/{number}", partition_key=key)
                for number in range(3)
                for key in KEYS
            ]
        )
    for name in ("one", "two"):
        async with topic_sdk.subscriber(topic.name, name) as receiver:
            check_spread(await receive_all(receiver, 3 * len(KEYS)), 3)


async def test_many_keys_are_scheduled_and_cancelled_by_their_numbers(
    sdk: Sdk, partitioned_queue: Queue
) -> None:
    at = datetime.now(UTC) + timedelta(minutes=10)
    messages = [ServiceBusMessage(f"{key}", partition_key=key) for key in [*KEYS, None]]

    async with pair(sdk, partitioned_queue.name) as (sender, receiver):
        numbers = await sender.schedule(messages, at)
        waiting = await receiver.peek(50)
        known = {sequence_number(message): text for message, text in _with_texts(waiting)}
        assert [known[number] for number in numbers] == [str(message) for message in messages]

        await sender.cancel(numbers[:10])
        assert len(await receiver.peek(50)) == len(messages) - 10


def _with_texts(messages: list[Received]) -> Iterator[tuple[Received, str]]:
    return zip(messages, texts(messages), strict=True)


async def test_one_transfer_in_the_format_of_batches_is_accepted_as_a_whole(
    address: Address, credential: Credential, partitioned_queue: Queue
) -> None:
    bodies = [b"1", b"2", b"3", b"4"]
    messages = [encode_data_message(body, partition_key=body.decode() * 9) for body in bodies]
    async with connected(address, credential) as client:
        sender = await client.sender(partitioned_queue.name)

        outcome = await sender.send(encode_batch(messages), BATCH_FORMAT)

        assert isinstance(outcome, Accepted)
        receiver = await client.receiver(partitioned_queue.name, credit=10)
        taken = await receiver.take_many(len(bodies))
        assert sorted(b"%b" % seen(each.payload).body for each in taken) == bodies


def test_a_batch_over_http_may_have_many_keys(rest: Rest, partitioned_queue: Queue) -> None:
    """R33."""
    name = partitioned_queue.name
    batch = [{"Body": key, "BrokerProperties": {"PartitionKey": key}} for key in KEYS]

    sent = rest.ask("POST", f"/{name}/messages", json.dumps(batch).encode(), BATCH)

    assert sent.status == 201
    received = [rest.ask("DELETE", f"/{name}/messages/head?timeout=20") for _ in batch]
    assert sorted(answer.body.decode() for answer in received) == sorted(KEYS)
    assert all(a.broker()["PartitionKey"] == a.body.decode() for a in received)


def test_over_the_json_api_messages_are_a_batch_if_that_is_said(
    rest: Rest, partitioned_queue: Queue
) -> None:
    path = f"/api/v1/entities/{partitioned_queue.name}/messages"
    messages: list[dict[str, object]] = [{"body": key, "partition_key": key} for key in KEYS]
    asked = {"messages": messages, "all_or_none": True}

    answer = rest.ask("POST", path, json.dumps(asked).encode())

    told = json.loads(answer.body)
    assert (answer.status, told["sent"], told["failures"]) == (200, len(KEYS), [])
    shown = json.loads(rest.ask("GET", f"{path}?top=50").body)["messages"]
    known = {message["sequence_number"]: message["body"] for message in shown}
    assert [known[number] for number in told["sequence_numbers"]] == KEYS


@pytest.mark.parametrize("is_together", [True, False])
def test_over_the_json_api_a_bad_message_spoils_its_batch_alone(
    rest: Rest, partitioned_queue: Queue, is_together: bool
) -> None:
    path = f"/api/v1/entities/{partitioned_queue.name}/messages"
    messages: list[dict[str, object]] = [{"body": key, "partition_key": key} for key in KEYS]
    messages.append({"body": "bad", "partition_key": "one", "session_id": "other"})
    asked = {"messages": messages, "all_or_none": is_together}

    answer = rest.ask("POST", path, json.dumps(asked).encode())

    shown = json.loads(rest.ask("GET", f"{path}?top=50").body)["messages"]
    assert len(shown) == (0 if is_together else len(KEYS))
    assert (answer.status == 200) != is_together
