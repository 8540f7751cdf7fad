"""What a sender wrote is what a receiver reads: properties, their types, and every kind of body."""

import uuid
from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageBodyType, AmqpMessageHeader

from tests.conformance.conftest import Queue, Queues
from tests.conformance.sdk import DELETING, Received, Sdk, Sendable, enqueued, pair

SENT_PROPERTIES: dict[str, object] = {
    "text": "Grüße, 世界",
    "empty": "",
    "yes": True,
    "no": False,
    "small": 7,
    "negative": -5,
    "int": 2**31 - 1,
    "double": 2.5,
    "id": uuid.UUID("12345678-1234-5678-1234-567812345678"),
}
MOMENT = datetime(2024, 2, 29, 12, 30, 15, 250_000, tzinfo=UTC)


async def through(sdk: Sdk, queue: Queue, *messages: Sendable) -> list[Received]:
    """The messages as a receiver gets them, each completed before the next is sent."""
    received: list[Received] = []
    async with pair(sdk, queue.name) as (sender, receiver):
        for message in messages:
            await sender.send(message)
            received.extend(await receiver.receive())
            await receiver.complete(received[-1])
    return received


async def test_application_properties_keep_their_types(sdk: Sdk, queue: Queue) -> None:
    properties = {**SENT_PROPERTIES, "moment": MOMENT}
    message = AmqpAnnotatedMessage(data_body=b"x", application_properties=properties)

    [received] = await through(sdk, queue, message)

    # The SDK shows text as bytes, and moments as milliseconds.
    expected: dict[str | bytes, object] = {
        name.encode(): value.encode() if isinstance(value, str) else value
        for name, value in SENT_PROPERTIES.items()
    }
    expected[b"moment"] = int(MOMENT.timestamp() * 1000)
    found = received.application_properties
    assert found == expected
    assert found is not None
    assert {name: type(found[name]) for name in expected} == {
        name: type(value) for name, value in expected.items()
    }


async def test_message_properties_come_back_as_sent(sdk: Sdk, queue: Queue) -> None:
    message = ServiceBusMessage(
        "x",
        message_id="id-1",
        correlation_id="correlation-1",
        subject="subject-1",
        content_type="application/json",
        reply_to="somewhere",
        reply_to_session_id="their session",
        to="someone",
        partition_key="pinned",
        time_to_live=timedelta(hours=1),
    )
    started = datetime.now(UTC) - timedelta(seconds=5)

    [received] = await through(sdk, queue, message)

    assert received.message_id == "id-1"
    assert received.correlation_id == "correlation-1"
    assert received.subject == "subject-1"
    assert received.content_type == "application/json"
    assert received.reply_to == "somewhere"
    assert received.reply_to_session_id == "their session"
    assert received.to == "someone"
    assert received.partition_key == "pinned"
    assert received.time_to_live == timedelta(hours=1)
    assert received.enqueued_time_utc is not None
    assert started <= received.enqueued_time_utc <= datetime.now(UTC)
    assert received.enqueued_sequence_number == 0


async def test_the_header_comes_back_as_it_was_sent(sdk: Sdk, queue: Queue) -> None:
    """But for the delivery count, which is ours; a false flag is sent, too."""
    sent = [
        AmqpMessageHeader(durable=flag, first_acquirer=flag, priority=priority, delivery_count=7)
        for flag, priority in ((True, 9), (False, 0))
    ]
    messages = [AmqpAnnotatedMessage(data_body=b"x", header=header) for header in sent]

    received = await through(sdk, queue, *messages)

    headers = [message.raw_amqp_message.header for message in received]
    told = {(h.priority, h.durable, h.first_acquirer, h.delivery_count) for h in headers if h}
    assert told == {(9, True, True, 0), (0, False, False, 0)}


async def test_delivery_annotations_arrive_beside_the_token_of_a_lock(
    sdk: Sdk, queue: Queue
) -> None:
    """The SDK's own reading of the section, which it does not merge into anything else."""
    mine = {"mine": "Grüße", "count": 7}
    sent: list[Sendable] = [
        AmqpAnnotatedMessage(data_body=b"x", delivery_annotations=mine),
        ServiceBusMessage("y"),
    ]

    shown = {b"mine": "Grüße".encode(), b"count": 7}
    async with pair(sdk, queue.name) as (sender, receiver):
        for message, expected in zip(sent, (shown, {}), strict=True):
            await sender.send(message)
            [locked] = await receiver.receive()
            assert isinstance(locked.lock_token, uuid.UUID)
            assert annotations_in(locked) == {**expected, b"x-opt-lock-token": locked.lock_token}
            await receiver.complete(locked)
    async with pair(sdk, queue.name, DELETING) as (sender, receiver):
        await sender.send(sent[0])
        [deleted] = await receiver.receive()

    assert annotations_in(deleted) == shown


def annotations_in(message: Received) -> dict[str | bytes, object]:
    """The delivery annotations; the SDK has none for an empty section."""
    return dict(message.raw_amqp_message.delivery_annotations or {})


@pytest.mark.parametrize("days", [20, 100])
async def test_the_time_to_live_of_the_queue_is_told_to_the_millisecond(
    sdk: Sdk, queues: Queues, days: int
) -> None:
    """A header ends at 49.7 days: beyond, two times tell it."""
    life = timedelta(days=days)
    queue = queues.make(is_partitioned=False, default_message_time_to_live=life)

    [received] = await through(sdk, queue, ServiceBusMessage("x"))

    properties = received.raw_amqp_message.properties
    assert properties is not None
    if days > 49:
        assert properties.absolute_expiry_time is not None
        assert properties.creation_time is not None
        told_ms = properties.absolute_expiry_time - properties.creation_time
        assert timedelta(milliseconds=told_ms) == life
        assert properties.creation_time == round(enqueued(received).timestamp() * 1000)
    else:
        assert received.expires_at_utc == enqueued(received) + life
        assert received.time_to_live == life


async def test_a_session_id_is_a_partition_key_on_a_plain_queue(sdk: Sdk, queue: Queue) -> None:
    """R11: SessionId pins the fragment even where sessions are not required."""
    messages = [ServiceBusMessage(body, session_id="s") for body in ("1", "2")]
    first, second = await through(sdk, queue, *messages)

    assert first.session_id == second.session_id == "s"
    assert first.sequence_number is not None
    assert second.sequence_number is not None
    assert first.sequence_number >> 48 == second.sequence_number >> 48


async def test_several_data_sections_stay_several(sdk: Sdk, queue: Queue) -> None:
    message = AmqpAnnotatedMessage(data_body=[b"one", b"", b"three"])

    [received] = await through(sdk, queue, message)

    assert received.body_type == AmqpMessageBodyType.DATA
    assert list(received.body) == [b"one", b"", b"three"]


async def test_a_value_body_keeps_its_value(sdk: Sdk, queue: Queue) -> None:
    values = [
        ("text", b"text"),
        (42, 42),
        (2.5, 2.5),
        (True, True),
        (b"\x00\x01", b"\x00\x01"),
        ({"key": [1, "two", {"three": 3.0}]}, {b"key": [1, b"two", {b"three": 3.0}]}),
    ]
    sent = [AmqpAnnotatedMessage(value_body=value) for value, _ in values]

    received = await through(sdk, queue, *sent)

    assert {message.body_type for message in received} == {AmqpMessageBodyType.VALUE}
    assert [message.body for message in received] == [expected for _, expected in values]


async def test_a_sequence_body_keeps_its_lists(sdk: Sdk, queue: Queue) -> None:
    message = AmqpAnnotatedMessage(sequence_body=[[1, 2, "three"], [4.0, None]])

    [received] = await through(sdk, queue, message)

    assert received.body_type == AmqpMessageBodyType.SEQUENCE
    assert list(received.body) == [[1, 2, b"three"], [4.0, None]]


async def test_header_annotations_and_footer_come_back(sdk: Sdk, queue: Queue) -> None:
    message = AmqpAnnotatedMessage(
        data_body=b"x",
        header=AmqpMessageHeader(priority=7, durable=True, time_to_live=60_000),
        annotations={"x-opt-custom": "kept", "x-opt-sequence-number": 99},
        footer={"checksum": 12345},
    )

    [whole] = await through(sdk, queue, message)

    received = whole.raw_amqp_message
    assert received.header is not None
    assert received.annotations is not None
    assert (received.header.priority, received.header.durable) == (7, True)
    assert received.header.time_to_live == 60_000
    assert received.annotations[b"x-opt-custom"] == b"kept"
    assert received.annotations[b"x-opt-sequence-number"] != 99, "the bus owns this one"
    assert received.footer == {b"checksum": 12345}


async def test_a_large_message_comes_back_whole(sdk: Sdk, queue: Queue) -> None:
    body = bytes(range(256)) * 1000

    [received] = await through(sdk, queue, ServiceBusMessage(body))

    assert b"".join(received.body) == body


async def test_a_partitioned_queue_tells_the_fragment(sdk: Sdk, queue: Queue) -> None:
    [received] = await through(sdk, queue, ServiceBusMessage("where"))

    annotations = received.raw_amqp_message.annotations
    assert annotations is not None
    assert received.sequence_number is not None
    fragment = received.sequence_number >> 48
    assert annotations.get(b"x-opt-partition-id") == (fragment if queue.is_partitioned else None)
