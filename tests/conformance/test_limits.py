"""The limits of the dialect: what is beyond gets its error, what is at it passes."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import (
    ServiceBusError,
    ServiceBusQuotaExceededError,
    ServiceBusServerBusyError,
)

from shardbus.amqp.outcomes import Accepted, AmqpError, DeliveryState, Rejected
from shardbus.app.cli.sas import Credential
from shardbus.codec.types import Symbol, Value
from shardbus.codec.value import encode
from shardbus.message.sections import encode_data_message
from tests.conformance.conftest import Queue
from tests.conformance.management import properties_of
from tests.conformance.sdk import (
    DELETING,
    NOTHING_S,
    AioSdk,
    Sdk,
    Sender,
    SyncSdk,
    pair,
    receive_all,
    texts,
)
from tests.support.amqp_client import Address, connected
from tests.support.queues import create_queue
from tests.support.server import Server, running_server

ID_MAX = 128
STATE_MAX = 256 * 1024
PROPERTY_MAX = 32 * 1024
REASON_MAX = 4096
CREDITS_PER_S = 50


@pytest.fixture(scope="module")
def throttled_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    data_dir = tmp_path_factory.mktemp("throttled") / "data"
    with running_server(data_dir, "--throttle-credits-per-s", str(CREDITS_PER_S)) as server:
        yield server


def with_properties(properties: dict[str, Value]) -> bytes:
    return b"\x00\x53\x74" + encode(properties) + encode_data_message(b"x")


def condition_of(state: DeliveryState | None) -> str:
    """Why a message was refused, "" when it was accepted."""
    if isinstance(state, Accepted):
        return ""
    assert isinstance(state, Rejected)
    assert state.error is not None
    return state.error.condition


async def test_ids_have_at_most_128_characters(
    address: Address, credential: Credential, queue: Queue
) -> None:
    """R35: the SDKs look themselves, so this asks the bus; the link lives on."""
    async with connected(address, credential) as client:
        sender = await client.sender(queue.name)
        for length, condition in ((ID_MAX, ""), (ID_MAX + 1, "com.microsoft:argument-error")):
            long = "ü" * length
            for payload in (
                encode_data_message(b"x", message_id=long),
                encode_data_message(b"x", session_id=long),
                encode_data_message(b"x", partition_key=long),
            ):
                assert condition_of(await sender.send(payload)) == condition


async def test_properties_are_bounded_one_by_one_and_together(
    address: Address, credential: Credential, queue: Queue
) -> None:
    """R35: 32 KB for one, 64 KB for all of them."""
    refused = "com.microsoft:argument-error"
    one = "x" * (PROPERTY_MAX - 1024)
    async with connected(address, credential) as client:
        sender = await client.sender(queue.name)

        assert condition_of(await sender.send(with_properties({"a": one}))) == ""
        assert condition_of(await sender.send(with_properties({"a": one, "b": one}))) == ""
        too_large: dict[str, Value] = {"a": "x" * (PROPERTY_MAX + 1024)}
        assert condition_of(await sender.send(with_properties(too_large))) == refused
        too_many: dict[str, Value] = {"a": one, "b": one, "c": one}
        assert condition_of(await sender.send(with_properties(too_many))) == refused


async def test_reason_and_description_are_cut_at_4096_characters(
    address: Address, credential: Credential, queue: Queue
) -> None:
    """R35: the message is dead-lettered all the same."""
    async with connected(address, credential) as client:
        sender = await client.sender(queue.name)
        await sender.send(encode_data_message(b"x"))
        receiver = await client.receiver(queue.name, credit=1)
        info: dict[Value, Value] = {
            Symbol("DeadLetterReason"): "r" * (REASON_MAX + 1),
            Symbol("DeadLetterErrorDescription"): "d" * (REASON_MAX + 1),
        }
        error = AmqpError("com.microsoft:dead-letter", "", info)
        [state] = await receiver.settle(await receiver.take_many(1), Rejected(error))
        dead = await client.receiver(f"{queue.name}/$DeadLetterQueue", credit=1)
        [delivery] = await dead.take_many(1)

        assert isinstance(state, Rejected)
        assert state.error is None
        assert properties_of(delivery.payload) == {
            "DeadLetterReason": "r" * REASON_MAX,
            "DeadLetterErrorDescription": "d" * REASON_MAX,
        }


async def test_a_session_state_is_at_most_256_kilobytes(sdk: Sdk, session_queue: Queue) -> None:
    """R26, R35: the old state stays when the new one is too large."""
    async with sdk.session(session_queue.name, "s") as session:
        await session.set_state(b"x" * (STATE_MAX - 1))
        with pytest.raises(ServiceBusQuotaExceededError):
            await session.set_state(b"y" * (STATE_MAX + 1))

        assert await session.state() == b"x" * (STATE_MAX - 1)


async def test_a_session_id_that_is_too_long_is_refused_at_the_link(
    sdk: Sdk, session_queue: Queue
) -> None:
    """R26."""
    with pytest.raises(ServiceBusError):
        async with sdk.session(session_queue.name, "s" * (ID_MAX + 1)):
            pass
    async with sdk.session(session_queue.name, "s" * ID_MAX) as session:
        assert session.session_id == "s" * ID_MAX


@pytest.mark.parametrize("kind", [SyncSdk, AioSdk])
async def test_beyond_the_credits_of_a_second_clients_are_told_to_wait(
    throttled_server: Server, kind: type[SyncSdk] | type[AioSdk]
) -> None:
    """A setting, off by default; after the wait it goes on."""
    name = f"throttled-{kind.__name__}".lower()
    create_queue(throttled_server, name)
    sdk = kind(throttled_server.connection_string)
    async with sdk.sender(name) as sender:
        with pytest.raises(ServiceBusServerBusyError, match="50009"):
            for _ in range(CREDITS_PER_S * 10):
                await sender.send(ServiceBusMessage("x"))
        await send_when_allowed(sender, ServiceBusMessage("after"))


@pytest.mark.parametrize("kind", [SyncSdk, AioSdk])
async def test_throttled_receivers_get_nothing_for_a_while_and_no_error(
    throttled_server: Server, kind: type[SyncSdk] | type[AioSdk]
) -> None:
    """What is sent at once costs four seconds' credits: receivers wait until they are paid."""
    name = f"waiting-{kind.__name__}".lower()
    create_queue(throttled_server, name)
    sdk = kind(throttled_server.connection_string)
    bodies = [f"{number:03}" for number in range(4 * CREDITS_PER_S)]
    async with pair(sdk, name, DELETING) as (sender, receiver):
        await send_when_allowed(sender, [ServiceBusMessage(body) for body in bodies])
        early = await receiver.receive(len(bodies), NOTHING_S)
        with pytest.raises(ServiceBusServerBusyError, match="50009"):
            await sender.send(ServiceBusMessage("too much"))
        found = await receive_all(receiver, len(bodies))

        assert early == []
        # Sorted: the SDK's keep-alive thread reads from the connection too, every five seconds, and
        # may put a message behind those that the caller reads meanwhile.
        assert sorted(texts(found)) == bodies


async def send_when_allowed(
    sender: Sender, message: ServiceBusMessage | list[ServiceBusMessage]
) -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            await sender.send(message)
        except ServiceBusServerBusyError:
            continue
        return
    raise AssertionError("the credits never came back")
