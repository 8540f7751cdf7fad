"""Many messages through a partitioned queue: where they go, in what order, and how they come."""

from __future__ import annotations

from collections import Counter, defaultdict

from shardbus.amqp.outcomes import ACCEPTED, Accepted, DeliveryState
from shardbus.app.cli.sas import Credential
from shardbus.message.sections import BATCH_FORMAT, encode_batch, encode_data_message, scan_message
from tests.conformance.conftest import Queue
from tests.support.amqp_client import FLOW, TRANSFER, Address, AmqpClient, Sender, connected
from tests.support.messages import Seen, seen

MESSAGES = 100_000
KEYS = 1_000
CREDIT = 1_000
BATCH = 10


async def send_all(sender: Sender, payloads: list[bytes], message_format: int = 0) -> None:
    """Send, and expect every message to be accepted."""
    outcomes: Counter[bool] = Counter()

    def then(_: int, state: DeliveryState | None) -> None:
        outcomes[isinstance(state, Accepted)] += 1

    await sender.send_all(payloads, then, message_format)
    assert outcomes == {True: len(payloads)}


async def receive_all(client: AmqpClient, queue: str, count: int) -> list[Seen]:
    """Receive and complete so many messages, topping up the credit as a streaming client does."""
    receiver = await client.receiver(queue, credit=CREDIT)
    found: list[Seen] = []
    while len(found) < count:
        deliveries = await receiver.take_some()
        found.extend(seen(delivery.payload) for delivery in deliveries)
        states = await receiver.settle(deliveries, ACCEPTED)
        assert all(isinstance(state, Accepted) for state in states)
        if receiver.link.credit <= CREDIT // 2:
            receiver.grant(CREDIT)
    return found


async def test_each_key_stays_in_one_fragment_and_in_order(
    address: Address, credential: Credential, partitioned_queue: Queue
) -> None:
    """R10, R12: 100,000 messages, 1,000 keys, one receiver."""
    batches = [
        encode_batch(
            [
                encode_data_message(b"%d" % number, partition_key=f"key-{batch % KEYS}")
                for number in range(batch * BATCH, batch * BATCH + BATCH)
            ]
        )
        for batch in range(MESSAGES // BATCH)
    ]

    async with connected(address, credential) as client:
        await send_all(await client.sender(partitioned_queue.name), batches, BATCH_FORMAT)
        found = await receive_all(client, partitioned_queue.name, MESSAGES)

    by_key: defaultdict[str | None, list[Seen]] = defaultdict(list)
    for message in found:
        by_key[message.partition_key].append(message)
    assert len(by_key) == KEYS
    for messages in by_key.values():
        numbers = [int(message.body) for message in messages]
        assert len(messages) == MESSAGES // KEYS
        assert numbers == sorted(numbers)
        assert len({message.fragment for message in messages}) == 1
        assert all(message.fragment == message.partition_id for message in messages)
    assert len({message.fragment for message in found}) == partitioned_queue.fragment_count


async def test_without_keys_the_fragments_differ_by_at_most_one(
    address: Address, credential: Credential, partitioned_queue: Queue
) -> None:
    """R10: round robin, also when the number of messages is no multiple of the fragments."""
    count = 10_007

    async with connected(address, credential) as client:
        sender = await client.sender(partitioned_queue.name)
        await send_all(sender, [encode_data_message(b"%d" % number) for number in range(count)])
        found = await receive_all(client, partitioned_queue.name, count)

    counts = Counter(message.fragment for message in found)
    assert len(counts) == partitioned_queue.fragment_count
    assert max(counts.values()) - min(counts.values()) <= 1


async def test_a_waiting_receiver_is_woken_by_transfers_and_nothing_else(
    address: Address, credential: Credential, partitioned_queue: Queue
) -> None:
    """R19: no polling shows on the wire; the only frames a waiting client gets are its messages."""
    count = 3 * partitioned_queue.fragment_count

    async with connected(address, credential) as waiting, connected(address, credential) as other:
        receiver = await waiting.receiver(partitioned_queue.name, credit=1_000)
        sender = await other.sender(partitioned_queue.name)
        before = waiting.frames.copy()
        for number in range(count):
            await sender.send(encode_data_message(b"%d" % number))
            [delivery] = await receiver.take_many(1)
            assert seen(delivery.payload).body == b"%d" % number

        assert waiting.frames - before == {TRANSFER: count}


async def test_nothing_is_locked_for_a_receiver_without_credit(
    address: Address, credential: Credential, queue: Queue
) -> None:
    """R18: an idle receiver, and one whose credit is used up, hold no message."""
    async with connected(address, credential) as client:
        idle = await client.receiver(queue.name)
        used_up = await client.receiver(queue.name, credit=2)
        sender = await client.sender(queue.name)
        await send_all(sender, [encode_data_message(b"%d" % number) for number in range(50)])
        taken = await used_up.take_many(2)
        other = await client.receiver(queue.name, credit=100)
        rest = await other.take_many(48)

        assert idle.waiting == 0
        assert used_up.waiting == 0
        bodies = {int(seen(delivery.payload).body) for delivery in [*taken, *rest]}
        assert bodies == set(range(50))


async def test_one_unit_of_credit_takes_one_message_from_all_fragments_together(
    address: Address, credential: Credential, partitioned_queue: Queue
) -> None:
    """R17, R18: asking every fragment must not bring a message from each."""
    async with connected(address, credential) as client:
        sender = await client.sender(partitioned_queue.name)
        await send_all(sender, [encode_data_message(b"x") for _ in range(32)])
        receiver = await client.receiver(partitioned_queue.name, credit=1)
        [first] = await receiver.take_many(1)
        receiver.grant(1, drain=True)
        await receiver.drained()

        assert receiver.waiting == 1
        assert client.frames[FLOW] > 0
        other = await client.receiver(partitioned_queue.name, credit=100)
        assert len(await other.take_many(30)) == 30
        assert scan_message(first.payload).body_length > 0


async def test_a_receiver_gets_messages_of_every_fragment_in_turn(
    address: Address, credential: Credential, partitioned_queue: Queue
) -> None:
    """R17: a full fragment does not keep the others waiting."""
    busy = [encode_data_message(b"busy", partition_key="one") for _ in range(500)]

    async with connected(address, credential) as client:
        sender = await client.sender(partitioned_queue.name)
        await send_all(sender, busy)
        await send_all(sender, [encode_data_message(b"quiet") for _ in range(16)])
        receiver = await client.receiver(partitioned_queue.name, credit=160)
        found = [seen(delivery.payload) for delivery in await receiver.take_many(160)]

        assert sum(message.body == b"quiet" for message in found) >= 15
