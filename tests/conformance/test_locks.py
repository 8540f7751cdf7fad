"""Locks and what settling changes, frame by frame: for what the Python SDKs have no words."""

from __future__ import annotations

import asyncio
import time

import pytest

from shardbus.amqp.outcomes import ACCEPTED, RELEASED, AmqpError, Modified, Rejected
from shardbus.app.cli.sas import Credential
from shardbus.codec.types import Array, Int, Symbol, Uint, Value, integer_of
from shardbus.codec.value import encode
from shardbus.message.sections import decode_message, encode_data_message
from tests.conformance.conftest import LOCK_SHORT_S, Queue
from tests.conformance.management import (
    TIMESTAMP,
    management_of,
    messages_of,
    properties_of,
)
from tests.support.amqp_client import Address, connected
from tests.support.messages import annotations_of, seen

DELAY = Symbol("x-shardbus-delay-ms")


def message(body: bytes, **properties: Value) -> bytes:
    named: dict[str, Value] = properties
    return b"\x00\x53\x74" + encode(named) + encode_data_message(body)


def changed(**changes: Value) -> Modified:
    annotations: dict[Value, Value] = {Symbol(name): value for name, value in changes.items()}
    return Modified(delivery_failed=True, message_annotations=annotations)


async def test_only_failures_raise_the_delivery_count(
    address: Address, credential: Credential, queue: Queue
) -> None:
    """R4: abandoned and expired count, released does not.

    A link that closes without settling what it was given lets those locks run out: a client that
    attached again may still settle at the management node.
    """
    async with connected(address, credential) as client:
        sender = await client.sender(queue.name)
        for number in range(4):
            await sender.send(encode_data_message(b"%d" % number))
        keeping = await client.receiver(queue.name, credit=3)
        abandoned, released, expired = await keeping.take_many(3)
        closing = await client.receiver(queue.name, credit=1)
        [left] = await closing.take_many(1)
        await keeping.settle([abandoned], Modified(delivery_failed=True))
        await keeping.settle([released], RELEASED)
        await closing.close()
        receiver = await client.receiver(queue.name, credit=4)
        returned = await receiver.take_many(2)
        await receiver.settle(returned, ACCEPTED)
        returned += await receiver.take_many(2)

        found = [seen(delivery.payload) for delivery in returned]
        counts = {message.body: message.delivery_count for message in found}
        assert [counts[seen(one.payload).body] for one in (abandoned, released)] == [1, 0]
        assert [counts[seen(one.payload).body] for one in (left, expired)] == [1, 1]


async def test_a_message_can_be_settled_after_its_link_has_closed(
    address: Address, credential: Credential, queue: Queue
) -> None:
    """At the management node, as long as its lock lasts."""
    async with connected(address, credential) as client:
        sender = await client.sender(queue.name)
        await sender.send(encode_data_message(b"x"))
        receiver = await client.receiver(queue.name, credit=1)
        deliveries = await receiver.take_many(1)
        await receiver.close()
        management = await management_of(client, queue.name)
        completed = await management.settle("completed", deliveries)
        again = await management.settle("completed", deliveries)

        assert completed.status == 200
        assert (again.status, again.condition) == (410, "com.microsoft:message-lock-lost")
        assert await management.peek(1) == []


async def test_several_locks_are_renewed_together_or_not_at_all(
    address: Address, credential: Credential, queue: Queue
) -> None:
    """R32: each to the full duration from now; one that is lost fails the request."""
    async with connected(address, credential) as client:
        sender = await client.sender(queue.name)
        for number in range(20):
            await sender.send(encode_data_message(b"%d" % number))
        receiver = await client.receiver(queue.name, credit=20)
        deliveries = await receiver.take_many(20)
        management = await management_of(client, queue.name)
        await asyncio.sleep(0.5)
        before_ms = time.time() * 1000
        renewed = await management.renew(deliveries)
        await receiver.settle(deliveries[:1], ACCEPTED)
        refused = await management.renew(deliveries)

        expirations = renewed.body["expirations"]
        assert isinstance(expirations, Array)
        assert (renewed.status, expirations.code) == (200, TIMESTAMP)
        assert len(expirations.values) == 20
        for end in map(integer_of, expirations.values):
            assert end is not None
            assert abs(end - before_ms - LOCK_SHORT_S * 1000) < 1000
        assert (refused.status, refused.condition) == (410, "com.microsoft:message-lock-lost")


async def test_abandoning_may_change_properties_and_adds_to_earlier_changes(
    address: Address, credential: Credential, queue: Queue
) -> None:
    """R4: by disposition and at the management node."""
    async with connected(address, credential) as client:
        sender = await client.sender(queue.name)
        await sender.send(message(b"x", own="kept", both="old"))
        receiver = await client.receiver(queue.name, credit=1)
        management = await management_of(client, queue.name)
        [one] = await receiver.take_many(1)
        await receiver.settle([one], changed(first=Int(1), both="new"))
        receiver.grant(1)
        [two] = await receiver.take_many(1)
        answer = await management.settle("abandoned", [two], {"first": "one", "second": 2.5})
        receiver.grant(1)
        [three] = await receiver.take_many(1)

        assert answer.status == 200
        assert properties_of(two.payload) == {"own": "kept", "both": "new", "first": Int(1)}
        assert properties_of(three.payload) == {
            "own": "kept",
            "both": "new",
            "first": "one",
            "second": 2.5,
        }
        assert seen(three.payload).body == b"x"
        assert seen(three.payload).delivery_count == 2


async def test_deferring_may_change_properties_too(
    address: Address, credential: Credential, queue: Queue
) -> None:
    """R4."""
    async with connected(address, credential) as client:
        sender = await client.sender(queue.name)
        await sender.send(message(b"x", own=True))
        receiver = await client.receiver(queue.name, credit=1)
        [delivery] = await receiver.take_many(1)
        number = seen(delivery.payload).sequence_number
        annotations: dict[Value, Value] = {Symbol("step"): "one"}
        await receiver.settle([delivery], Modified(True, True, annotations))
        management = await management_of(client, queue.name)
        answer = await management.receive_deferred([number])
        [payload] = messages_of(answer)

        assert answer.status == 200
        assert properties_of(payload) == {"own": True, "step": "one"}
        assert seen(payload).delivery_count == 1


async def test_dead_lettering_may_change_properties_too(
    address: Address, credential: Credential, queue: Queue
) -> None:
    """R4: by what the error carries, and by `properties-to-modify`."""
    async with connected(address, credential) as client:
        sender = await client.sender(queue.name)
        for body in (b"by link", b"by node"):
            await sender.send(message(body, own=1))
        receiver = await client.receiver(queue.name, credit=2)
        management = await management_of(client, queue.name)
        by_link, by_node = await receiver.take_many(2)
        info: dict[Value, Value] = {Symbol("DeadLetterReason"): "R", Symbol("step"): "two"}
        error = AmqpError("com.microsoft:dead-letter", "D", info)
        await receiver.settle([by_link], Rejected(error))
        answer = await management.settle("suspended", [by_node], {"step": "two"})
        dead = await client.receiver(f"{queue.name}/$DeadLetterQueue", credit=2)
        found = [properties_of(delivery.payload) for delivery in await dead.take_many(2)]

        assert answer.status == 200
        assert all(properties["step"] == "two" and properties["own"] == 1 for properties in found)
        assert sorted(str(properties.get("DeadLetterReason")) for properties in found) == [
            "None",
            "R",
        ]


async def test_an_abandoned_message_can_be_held_back_for_a_while(
    address: Address, credential: Credential, queue: Queue
) -> None:
    """Beyond the original: `x-shardbus-delay-ms` in what is modified. Others overtake it."""
    async with connected(address, credential) as client:
        sender = await client.sender(queue.name)
        await sender.send(message(b"delayed", own="kept"))
        receiver = await client.receiver(queue.name, credit=1)
        [delivery] = await receiver.take_many(1)
        annotations: dict[Value, Value] = {DELAY: Uint(1500), Symbol("why"): "busy"}
        await receiver.settle([delivery], Modified(True, False, annotations))
        abandoned_at = time.monotonic()
        await sender.send(encode_data_message(b"next"))
        receiver.grant(2)
        [overtaking] = await receiver.take_many(1)
        management = await management_of(client, queue.name)
        [shown, _] = await management.peek(2)
        [again] = await receiver.take_many(1)
        waited_s = time.monotonic() - abandoned_at

        assert seen(overtaking.payload).body == b"next"
        state = annotations_of(shown, decode_message(shown).head)["x-opt-message-state"]
        assert state == Int(0)
        assert 1.5 <= waited_s + 0.05 < 2.5
        assert seen(again.payload).sequence_number == seen(delivery.payload).sequence_number
        assert seen(again.payload).delivery_count == 1
        assert properties_of(again.payload) == {"own": "kept", "why": "busy"}


@pytest.mark.parametrize("value", [-1, "soon", 604_800_001, 1.5], ids=str)
async def test_a_delay_that_makes_no_sense_is_refused_and_the_lock_stays(
    address: Address, credential: Credential, partitioned_queue: Queue, value: Value
) -> None:
    """Seven days is the most."""
    async with connected(address, credential) as client:
        sender = await client.sender(partitioned_queue.name)
        await sender.send(encode_data_message(b"x"))
        receiver = await client.receiver(partitioned_queue.name, credit=1)
        deliveries = await receiver.take_many(1)
        annotations: dict[Value, Value] = {DELAY: value}
        [refused] = await receiver.settle(deliveries, Modified(True, False, annotations))
        management = await management_of(client, partitioned_queue.name)

        assert isinstance(refused, Rejected)
        assert refused.error is not None
        assert refused.error.condition == "com.microsoft:argument-error"
        assert (await management.renew(deliveries)).status == 200


async def test_credit_brings_so_many_messages_and_leaves_the_rest_to_others(
    address: Address, credential: Credential, queue: Queue
) -> None:
    """R18: prefetch takes what was asked for and no more."""
    async with connected(address, credential) as client:
        sender = await client.sender(queue.name)
        for number in range(32):
            await sender.send(encode_data_message(b"%d" % number))
        one = await client.receiver(queue.name, credit=10)
        ours = await one.take_many(10)
        other = await client.receiver(queue.name, credit=100)
        theirs = await other.take_many(22)

        bodies = sorted(int(seen(delivery.payload).body) for delivery in (*ours, *theirs))
        assert bodies == list(range(32))
        assert one.waiting == other.waiting == 0
