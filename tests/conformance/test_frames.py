"""The wire, frame by frame: what an SDK relies on without showing it."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from shardbus.amqp.outcomes import ACCEPTED, RELEASED, Accepted, Modified, Rejected
from shardbus.app.cli.sas import Credential
from shardbus.broker.access.sas import mint_token
from shardbus.codec.types import (
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Float,
    Int,
    Short,
    Symbol,
    Timestamp,
    Ubyte,
    Uint,
    Ulong,
    Ushort,
    Uuid,
    Value,
)
from shardbus.codec.value import encode
from shardbus.message.sections import decode_message
from tests.conformance.conftest import LOCK_SHORT_S, Queue
from tests.conformance.sdk import Sdk
from tests.support.amqp_client import (
    HEARTBEAT,
    RECEIVE_AND_DELETE,
    Address,
    AmqpClient,
    connected,
)
from tests.support.messages import annotations_of, seen

FAR_FUTURE_S = 4_000_000_000

EVERY_TYPE: dict[str, Value] = {
    "null": None,
    "true": True,
    "false": False,
    "ubyte": Ubyte(255),
    "ushort": Ushort(65_535),
    "uint 0": Uint(0),
    "uint": Uint(2**32 - 1),
    "ulong": Ulong(2**64 - 1),
    "byte": Byte(-128),
    "short": Short(-32_768),
    "int": Int(-(2**31)),
    "long": -(2**63),
    "float": Float(0.5),
    "double": 1e300,
    "decimal32": Decimal32(b"\x01\x02\x03\x04"),
    "decimal64": Decimal64(bytes(range(8))),
    "decimal128": Decimal128(bytes(range(16))),
    "char": Char(0x1F600),
    "timestamp": Timestamp(-1),
    "uuid": Uuid(uuid.UUID(int=7).bytes),
    "binary": bytes(range(256)),
    "string": "Grüße, 世界",
    "symbol": Symbol("a-symbol"),
    "timespan": Described(Symbol("com.microsoft:timespan"), 864_000_000_000),
}


def section(code: int, value: Value) -> bytes:
    return bytes([0x00, 0x53, code]) + encode(value)


async def through(client: AmqpClient, queue: str, payload: bytes) -> bytes:
    """The payload as a receiver gets it."""
    sender = await client.sender(queue)
    assert isinstance(await sender.send(payload), Accepted)
    receiver = await client.receiver(queue, credit=1)
    [delivery] = await receiver.take_many(1)
    await receiver.settle([delivery], ACCEPTED)
    return delivery.payload


async def test_every_amqp_type_comes_back_byte_for_byte(
    address: Address, credential: Credential, queue: Queue
) -> None:
    body: Value = [*EVERY_TYPE.values(), EVERY_TYPE, Array(0x71, [Int(1), Int(2)])]
    bare = section(0x73, ["an id"]) + section(0x74, EVERY_TYPE) + section(0x77, body)

    async with connected(address, credential) as client:
        payload = await through(client, queue.name, bare)

    assert payload.endswith(bare)
    assert decode_message(payload).application_properties == EVERY_TYPE


async def test_the_python_sdk_reads_what_was_written_with_wide_descriptors(
    address: Address, credential: Credential, queue: Queue, sdk: Sdk
) -> None:
    """It takes the third byte of every section for its number: one message would spoil a page."""

    def wide(code: int, value: Value) -> bytes:
        return b"\x00\x80" + code.to_bytes(8, "big") + encode(value)

    sent = wide(0x73, ["an id"]) + wide(0x74, {"colour": "red"}) + wide(0x75, b"body")
    async with connected(address, credential) as client:
        sender = await client.sender(queue.name)
        assert isinstance(await sender.send(sent), Accepted)

    async with sdk.receiver(queue.name) as receiver:
        [peeked] = await receiver.peek(1)
        [received] = await receiver.receive()
        await receiver.complete(received)

    for message in (peeked, received):
        assert message.message_id == "an id"
        assert message.application_properties == {b"colour": b"red"}
        assert str(message) == "body"


async def test_the_bus_stamps_what_it_knows_and_the_sender_cannot(
    address: Address, credential: Credential, queue: Queue
) -> None:
    """Annotations, their owners and their types."""
    forged: dict[Value, Value] = {
        Symbol("x-opt-sequence-number"): 1,
        Symbol("x-opt-locked-until"): Timestamp(0),
        Symbol("x-opt-own"): "kept",
    }
    sent = section(0x72, forged) + section(0x75, b"x")

    async with connected(address, credential) as client:
        payload = await through(client, queue.name, sent)

    annotations = annotations_of(payload, decode_message(payload).head)
    assert annotations["x-opt-own"] == "kept"
    assert isinstance(annotations["x-opt-sequence-number"], int)
    assert isinstance(annotations["x-opt-enqueued-time"], Timestamp)
    assert isinstance(annotations["x-opt-locked-until"], Timestamp)
    assert annotations["x-opt-locked-until"] != Timestamp(0)
    assert annotations["x-opt-message-state"] == Int(0)
    assert ("x-opt-partition-id" in annotations) == queue.is_partitioned


async def test_a_delivery_tag_is_the_lock_token_and_new_every_time(
    address: Address, credential: Credential, queue: Queue
) -> None:
    """And the token renews its lock at $management in network order."""
    async with connected(address, credential) as client:
        sender = await client.sender(queue.name)
        await sender.send(section(0x75, b"x"))
        receiver = await client.receiver(queue.name, credit=1)
        [first] = await receiver.take_many(1)
        await receiver.settle([first], RELEASED)
        receiver.grant(1)
        [second] = await receiver.take_many(1)
        requests = await client.requests(f"{queue.name}/$management")
        answers = [
            await requests.ask(
                {"lock-tokens": Array(0x98, [Uuid(uuid.UUID(bytes_le=delivery.tag).bytes)])},
                {"operation": "com.microsoft:renew-lock"},
            )
            for delivery in (second, first)
        ]

        assert len(first.tag) == len(second.tag) == 16
        assert first.tag != second.tag
        assert seen(second.payload).delivery_count == 0
        assert answers[0].application_properties["statusCode"] == Int(200)
        assert answers[1].application_properties["statusCode"] == Int(410)
        assert answers[1].application_properties["errorCondition"] == Symbol(
            "com.microsoft:message-lock-lost"
        )
        body = answers[0].body
        assert isinstance(body, dict)
        assert isinstance(body["expirations"], Array)
        assert body["expirations"].code == 0x83


async def test_a_settlement_is_confirmed_with_the_same_kind_of_outcome(
    address: Address, credential: Credential, queue: Queue
) -> None:
    """A rejection that is confirmed carries no error."""
    async with connected(address, credential) as client:
        sender = await client.sender(queue.name)
        for _ in range(4):
            await sender.send(section(0x75, b"x"))
        receiver = await client.receiver(queue.name, credit=4)
        one, two, three, four = await receiver.take_many(4)

        assert await receiver.settle([one], ACCEPTED) == [ACCEPTED]
        assert await receiver.settle([two], RELEASED) == [RELEASED]
        [abandoned] = await receiver.settle([three], Modified(delivery_failed=True))
        [dead] = await receiver.settle([four], Rejected(None))
        assert isinstance(abandoned, Modified)
        assert isinstance(dead, Rejected)
        assert dead.error is None


async def test_a_range_settles_every_delivery_in_it(
    address: Address, credential: Credential, queue: Queue
) -> None:
    """The JavaScript SDK completes ranges."""
    async with connected(address, credential) as client:
        sender = await client.sender(queue.name)
        for _ in range(50):
            await sender.send(section(0x75, b"x"))
        receiver = await client.receiver(queue.name, credit=50)
        deliveries = await receiver.take_many(50)

        states = await receiver.settle(deliveries, ACCEPTED)

        assert states == [ACCEPTED] * 50
        receiver.grant(1, drain=True)
        await receiver.drained()
        assert receiver.waiting == 0


async def test_a_settled_disposition_completes_without_an_answer(
    address: Address, credential: Credential, queue: Queue
) -> None:
    """General AMQP clients settle first."""
    async with connected(address, credential) as client:
        sender = await client.sender(queue.name)
        await sender.send(section(0x75, b"x"))
        receiver = await client.receiver(queue.name, settle_modes=(0, 0), credit=1)
        deliveries = await receiver.take_many(1)
        receiver.settle_without_answer(deliveries, ACCEPTED)
        await asyncio.sleep(LOCK_SHORT_S + 0.5)
        receiver.grant(1, drain=True)
        await receiver.drained()

        assert receiver.waiting == 0


async def test_receive_and_delete_sends_settled_transfers(
    address: Address, credential: Credential, queue: Queue
) -> None:
    async with connected(address, credential) as client:
        sender = await client.sender(queue.name)
        await sender.send(section(0x75, b"x"))
        receiver = await client.receiver(queue.name, settle_modes=RECEIVE_AND_DELETE, credit=1)
        [delivery] = await receiver.take_many(1)

        assert delivery.settled
        assert "x-opt-locked-until" not in annotations_of(
            delivery.payload, decode_message(delivery.payload).head
        )


async def test_a_drain_is_answered_at_once_and_uses_up_the_credit(
    address: Address, credential: Credential, queue: Queue
) -> None:
    """The JavaScript SDK closes a link that lets it wait."""
    async with connected(address, credential) as client:
        sender = await client.sender(queue.name)
        for _ in range(3):
            await sender.send(section(0x75, b"x"))
        receiver = await client.receiver(queue.name)
        receiver.grant(10, drain=True)
        await receiver.drained()

        assert receiver.waiting == 3
        assert receiver.link.credit == 0
        receiver.grant(10, drain=True)
        await receiver.drained()
        assert receiver.waiting == 3


async def test_many_sessions_and_links_share_a_connection(
    address: Address, credential: Credential, queue: Queue
) -> None:
    """JavaScript opens a session for every link."""
    async with connected(address, credential) as client:
        for number in range(30):
            client.new_session()
            sender = await client.sender(queue.name)
            await sender.send(section(0x75, b"%d" % number))
        client.new_session()
        receiver = await client.receiver(queue.name, credit=30)
        deliveries = await receiver.take_many(30)

        bodies = sorted(int(seen(delivery.payload).body) for delivery in deliveries)
        assert bodies == list(range(30))


@pytest.mark.parametrize("mechanism", ["MSSBCBS", "ANONYMOUS", "EXTERNAL"])
async def test_every_mechanism_opens_a_connection_that_a_token_makes_useful(
    address: Address, credential: Credential, partitioned_queue: Queue, mechanism: str
) -> None:
    """MSSBCBS is what .NET insists on."""
    scope = f"amqps://{address.host}/{partitioned_queue.name}"
    token = mint_token(scope, credential.key_name, credential.key, FAR_FUTURE_S)

    async with connected(address, mechanism=mechanism) as client:
        assert await client.put_token(token, scope) in (200, 202)
        sender = await client.sender(f"/{partitioned_queue.name.upper()}")
        assert isinstance(await sender.send(section(0x75, b"x")), Accepted)


async def test_a_quiet_connection_gets_heartbeats(address: Address, credential: Credential) -> None:
    """At half of what the client says it waits for."""
    async with connected(address, credential, idle_timeout_ms=1_000) as client:
        await asyncio.sleep(2.5)

        assert client.frames[HEARTBEAT] >= 3
        assert not client.ended.done()


async def test_an_unknown_management_operation_is_refused_and_the_next_one_works(
    address: Address, credential: Credential, queue: Queue
) -> None:
    async with connected(address, credential) as client:
        requests = await client.requests(f"{queue.name}/$management")
        refused = await requests.ask({}, {"operation": "com.microsoft:make-coffee"})
        malformed = await requests.ask("no map", {"operation": "com.microsoft:peek-message"})
        empty = await requests.ask(
            {"from-sequence-number": 1, "message-count": Int(5)},
            {"operation": "com.microsoft:peek-message"},
        )

        assert refused.application_properties["statusCode"] in (Int(400), Int(501))
        assert malformed.application_properties["statusCode"] == Int(400)
        assert empty.application_properties["statusCode"] == Int(204)
